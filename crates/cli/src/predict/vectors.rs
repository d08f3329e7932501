//! Vectors of users and items, and the best items of users.

use super::PredictError;
use super::frame::{Data, Frame};
use super::task::{Rows, Task, value_of};
use crate::error::CliError;
use crate::rank::Fitted;
use crate::requests::open;
use rewire::rank::{Batch, Embedder, Index, RankError, RankOptions, Schema, Vectors};
use rewire::runtime::Report;
use std::path::Path;

/// Catalogue candidates per batch.
const CHUNK: usize = 1 << 14;

impl Task for Embedder {
    fn schema(&self) -> &Schema {
        self.schema()
    }

    fn batch(&self) -> Batch {
        self.batch()
    }

    fn report(&self) -> Report {
        self.report()
    }

    fn max_seq_len(&self) -> usize {
        self.max_seq_len()
    }

    /// `user`, `item` if there is a vector for every candidate, and `embedding`.
    fn columns(&self) -> Vec<(String, Data)> {
        let item = self.is_by_candidate().then_some(("item", Data::Integers(vec![])));
        let columns = [Some(("user", Data::Values(vec![]))), item, Some(("embedding", Data::vectors(0, vec![])))];
        columns.into_iter().flatten().map(|(name, data)| (name.to_owned(), data)).collect()
    }

    fn compute(&self, batch: &Batch) -> Result<Rows, RankError> {
        let Vectors { width, values, of, dropped_events } = self.embed(batch)?;
        let mut counts = vec![0; batch.len()];
        for (request, _) in &of {
            counts.get_mut(*request).into_iter().for_each(|count: &mut usize| *count += 1);
        }
        let users = of.iter().filter_map(|(request, _)| batch.users().get(*request)).map(value_of).collect();
        let mut columns = vec![Data::Values(users)];
        if self.is_by_candidate() {
            columns.push(Data::Integers(of.iter().map(|(_, item)| item.unwrap_or_default()).collect()));
        }
        columns.push(Data::vectors(width, values));
        Ok(Rows { frame: Frame { rows: of.len(), columns }, counts, fitted: Fitted::of_dropped(&dropped_events) })
    }
}

/// Vectors of items.
pub struct Catalogue {
    ids: Vec<i64>,
    values: Vec<f32>,
    width: usize,
}

impl Catalogue {
    /// Embeds the candidates of a file of requests.
    pub fn read(items: &Embedder, file: &Path) -> Result<Self, CliError> {
        let mut input = open(Some(file), items.schema())?;
        let (mut ids, mut values, mut width, mut more) = (vec![], vec![], 0, true);
        while more {
            let mut batch = items.batch();
            more = input.read(&mut batch, CHUNK)?;
            let vectors = items.embed(&batch)?;
            ids.extend(vectors.of.iter().filter_map(|(_, item)| *item));
            values.extend(vectors.values);
            width = vectors.width.max(width);
        }
        match ids.is_empty() {
            true => Err(PredictError::NoItems { file: file.display().to_string() }.into()),
            false => Ok(Self { ids, values, width }),
        }
    }

    /// Items with their concatenated vectors; `None` without items.
    pub fn new(ids: Vec<i64>, values: Vec<f32>) -> Option<Self> {
        let width = values.len().checked_div(ids.len())?;
        Some(Self { ids, values, width })
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// An index of the items on a device.
    pub fn index(&self, options: &RankOptions) -> Result<Index, RankError> {
        Index::new(&self.ids, &self.values, self.width, options)
    }
}

/// The best catalogue items of users.
pub struct Retrieval {
    users: Embedder,
    index: Index,
    top: usize,
}

impl Retrieval {
    pub fn new(users: Embedder, items: &Catalogue, top: usize, options: &RankOptions) -> Result<Self, CliError> {
        if users.is_by_candidate() {
            return Err(PredictError::NoUsers.into());
        }
        Ok(Self { users, index: items.index(options)?, top })
    }
}

impl Task for Retrieval {
    fn schema(&self) -> &Schema {
        self.users.schema()
    }

    fn batch(&self) -> Batch {
        self.users.batch()
    }

    fn report(&self) -> Report {
        self.users.report()
    }

    fn max_seq_len(&self) -> usize {
        self.users.max_seq_len()
    }

    /// `user`, `item` and `score`.
    fn columns(&self) -> Vec<(String, Data)> {
        let columns =
            [("user", Data::Values(vec![])), ("item", Data::Integers(vec![])), ("score", Data::Floats(vec![]))];
        columns.map(|(name, data)| (name.to_owned(), data)).to_vec()
    }

    fn compute(&self, batch: &Batch) -> Result<Rows, RankError> {
        let vectors = self.users.embed(batch)?;
        let best = self.index.top(&vectors.values, vectors.width, self.top)?;
        let counts: Vec<usize> = best.iter().map(Vec::len).collect();
        let users =
            batch.users().iter().zip(&counts).flat_map(|(user, &count)| std::iter::repeat_n(value_of(user), count));
        let mut columns = vec![Data::Values(users.collect())];
        let (items, scores) = best.into_iter().flatten().unzip();
        columns.extend([Data::Integers(items), Data::Floats(scores)]);
        let frame = Frame { rows: counts.iter().sum(), columns };
        Ok(Rows { frame, counts, fitted: Fitted::of_dropped(&vectors.dropped_events) })
    }
}
