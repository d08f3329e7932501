use super::apart::Placed;
use super::predictor::Loaded;
use super::{Column, Predicted, Predictor};
use crate::rank::{CacheLimits, CacheReport, Chain, HistoryRows, Kept, Pages, RankError, Requests, User};
use rewire_runtime::{Session, block_on};
use std::ops::Range;
use std::sync::Arc;

/// An imported ranker of lists (`dlrm_hstu`, `ultra_hstu`) that keeps the histories of users, keys and values of all layers and channels,
/// from call to call: a user who returns with the same history costs the candidates alone.
///
/// A history is recognized by the hash of all values that it is computed from, the time of the request among them where the model reads it, and
/// by the model's parameters: predictions have the bits of [`Predictor::predict`], whatever was kept. Another history, one with further
/// steps too, is computed as a whole. All channels of a user share pages, which have as many rows as the longest channel.
///
/// ```no_run
/// use rewire::predict::{Caches, Column, OwnedCell, Predictor};
/// use rewire::rank::{CacheLimits, RankOptions};
/// let predictor = Predictor::load("model.rewire".as_ref(), &RankOptions::default())?;
/// let mut caches = Caches::new(&predictor, CacheLimits::default())?;
/// let texts = |text: &str| Column::of_cells(vec![OwnedCell::Text(text.to_owned())]);
/// let columns = [("click_seq__item", texts("41;7")?), ("cand_seq__item", texts("12;5")?)];
/// caches.predict(&["u1".into()], &columns)?;
/// caches.predict(&["u1".into()], &columns)?;
/// assert_eq!(caches.report().hits, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Caches {
    predictor: Arc<Loaded>,
    pages: Pages,
}

impl Caches {
    /// Allocates the pages.
    ///
    /// # Errors
    /// [`RankError::NotApart`] for a model without histories that can be kept, or a package that was written without; [`RankError::Run`]
    /// where there is no room.
    pub fn new(predictor: &Predictor, limits: CacheLimits) -> Result<Self, RankError> {
        let predictor = predictor.loaded().clone();
        if predictor.signature.apart().is_none() {
            return Err(RankError::NotApart);
        }
        let rows = HistoryRows { contextual: 0, rows_per_event: 0, appends: false, most: predictor.most };
        let pages = Pages::new(&predictor.model, limits, rows)?;
        Ok(Self { predictor, pages })
    }

    /// The predictions of the rows of a table, row by row those of a user. A row without candidates keeps its history for later ones.
    ///
    /// # Errors
    /// As [`Predictor::predict`]. What was kept of the users may be gone then.
    pub async fn predict_async(
        &mut self,
        users: &[User],
        columns: &[(&str, Column<'_>)],
    ) -> Result<Predicted, RankError> {
        let mut requests = Rows {
            predictor: &self.predictor,
            users,
            columns,
            predicted: self.predictor.predict_some(0..0, columns).await?,
        };
        self.pages.serve(&mut requests).await?;
        Ok(requests.predicted)
    }

    /// [`Caches::predict_async`], blocking.
    ///
    /// # Errors
    /// As [`Caches::predict_async`].
    pub fn predict(&mut self, users: &[User], columns: &[(&str, Column<'_>)]) -> Result<Predicted, RankError> {
        block_on(self.predict_async(users, columns))
    }

    /// Removes what is kept of a user. Returns false where nothing was.
    pub fn forget(&mut self, user: &User) -> bool {
        self.pages.forget(user)
    }

    /// Removes what is kept of all users. The pages stay.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Counts of requests so far, and what is kept.
    pub fn report(&self) -> CacheReport {
        self.pages.report()
    }
}

/// The rows of a table, with the predictions of the first of them.
struct Rows<'a> {
    predictor: &'a Loaded,
    users: &'a [User],
    columns: &'a [(&'a str, Column<'a>)],
    predicted: Predicted,
}

impl<'a> Rows<'a> {
    fn column(&self) -> impl Fn(&str) -> Option<&'a Column<'a>> + use<'a> {
        let columns = self.columns;
        move |name| columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column)
    }

    fn tokens(&self, rows: Range<usize>) -> Result<Vec<Vec<usize>>, RankError> {
        let signature = &self.predictor.signature;
        let apart = signature.apart().ok_or(RankError::NotApart)?;
        Ok(apart.tokens(signature.features(), &self.column(), rows)?)
    }
}

impl Requests for Rows<'_> {
    fn user(&self, request: usize) -> Option<&User> {
        self.users.get(request)
    }

    fn history(&self, request: usize) -> Result<(Chain, usize), RankError> {
        let signature = &self.predictor.signature;
        let apart = signature.apart().ok_or(RankError::NotApart)?;
        let hash = apart.hash(signature.features(), &self.column(), request)?;
        let tokens = self.tokens(request..request + 1)?;
        Ok((vec![hash], tokens.into_iter().flatten().max().unwrap_or(0)))
    }

    async fn serve(
        &mut self,
        session: &mut Session,
        requests: Range<usize>,
        kept: &[Kept],
        since: Option<u64>,
    ) -> Result<bool, RankError> {
        let signature = &self.predictor.signature;
        let (apart, tokens) = (signature.apart().ok_or(RankError::NotApart)?, self.tokens(requests.clone())?);
        let kept = kept.get(requests.clone()).unwrap_or_default();
        let placed = Placed::all(requests, &tokens, kept);
        let predicted = self.predictor.run_apart(session, apart, &self.column(), &placed, since).await?;
        let is_one = predicted.is_some();
        predicted.into_iter().for_each(|predicted| self.predicted.append(predicted));
        Ok(is_one)
    }

    async fn serve_beside(&mut self, request: usize) -> Result<(), RankError> {
        let predicted = self.predictor.predict_some(request..request + 1, self.columns).await?;
        self.predicted.append(predicted);
        Ok(())
    }
}
