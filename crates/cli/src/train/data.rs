//! Users from files, batch by batch.

use crate::requests::{Requests, open};
use rewire::rank::Batch;
use rewire::runtime::Inputs;
use rewire::train::{Data, DataError, ExampleError, Examples, Random};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Users and their entries per read.
const CHUNK: usize = 1 << 14;

/// Size of the shuffle buffer in users.
const SHUFFLED: usize = 1 << 14;

/// Users from files, or the built-in ones without files.
pub struct Users {
    pub files: Vec<PathBuf>,
    pub examples: Examples,
    pub batch_size: usize,
    pub shuffle_seed: Option<u64>,
    /// Users in batches so far.
    pub count: Arc<AtomicU64>,
}

impl Data for Users {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        let files: Vec<Option<PathBuf>> = match self.files.as_slice() {
            [] => vec![None],
            files => files.iter().cloned().map(Some).collect(),
        };
        let reader = Reader {
            files: files.into_iter(),
            open: None,
            chunk: self.examples.batch(),
            next: 0,
            is_failed: false,
            examples: &self.examples,
        };
        let users: Box<dyn Iterator<Item = Result<User, DataError>>> = match self.shuffle_seed {
            None => Box::new(reader),
            Some(seed) => Box::new(Shuffled { users: reader, drawn: vec![], random: Random::of_epoch(seed, epoch) }),
        };
        Box::new(Batches { users, examples: &self.examples, size: self.batch_size, count: self.count.clone() })
    }
}

/// A user of a batch.
type User = (Batch, usize);

/// The users of files in their order.
struct Reader<'a> {
    files: std::vec::IntoIter<Option<PathBuf>>,
    open: Option<Box<dyn Requests>>,
    chunk: Batch,
    next: usize,
    is_failed: bool,
    examples: &'a Examples,
}

impl Iterator for Reader<'_> {
    type Item = Result<User, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next == self.chunk.len() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.is_failed = true;
                    return Some(Err(error));
                }
            }
        }
        self.next += 1;
        Some(Ok((self.chunk.clone(), self.next - 1)))
    }
}

impl Reader<'_> {
    /// Reads the next chunk; false at the end of the last file.
    fn read(&mut self) -> Result<bool, DataError> {
        if self.is_failed {
            return Ok(false);
        }
        let requests = match &mut self.open {
            Some(requests) => requests,
            None => match self.files.next() {
                Some(file) => self.open.insert(open(file.as_deref(), self.examples.schema())?),
                None => return Ok(false),
            },
        };
        (self.chunk, self.next) = (self.examples.batch(), 0);
        let is_more = requests.read(&mut self.chunk, CHUNK)?;
        if !is_more {
            self.open = None;
        }
        Ok(true)
    }
}

/// Users drawn from a shuffle buffer.
struct Shuffled<'a> {
    users: Reader<'a>,
    drawn: Vec<User>,
    random: Random,
}

impl Iterator for Shuffled<'_> {
    type Item = Result<User, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.drawn.len() < SHUFFLED {
            match self.users.next() {
                Some(Ok(user)) => self.drawn.push(user),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let place = self.random.below(self.drawn.len())?;
        Some(Ok(self.drawn.swap_remove(place)))
    }
}

/// Inputs of as many users as a batch has.
struct Batches<'a> {
    users: Box<dyn Iterator<Item = Result<User, DataError>> + 'a>,
    examples: &'a Examples,
    size: usize,
    count: Arc<AtomicU64>,
}

impl Iterator for Batches<'_> {
    type Item = Result<Inputs, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut batch = self.examples.batch();
            while batch.len() < self.size {
                match self.users.next() {
                    Some(Ok((chunk, user))) => batch.append(&chunk, user),
                    Some(Err(error)) => return Some(Err(error)),
                    None => break,
                }
            }
            if batch.is_empty() {
                return None;
            }
            self.count.fetch_add(batch.len() as u64, Ordering::Relaxed);
            match self.examples.inputs(&batch) {
                // Users without candidates cannot be trained on.
                Err(ExampleError::Empty { .. }) => {}
                inputs => return Some(inputs.map_err(DataError::from)),
            }
        }
    }
}
