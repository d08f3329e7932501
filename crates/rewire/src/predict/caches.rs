use super::apart::Placed;
use super::predictor::Loaded;
use super::{Column, Predicted, Predictor};
use crate::rank::{CacheLimits, CacheReport, Chain, HistoryRows, Kept, Pages, RankError, Requests, User};
use rewire_runtime::{Session, block_on};
use std::ops::Range;
use std::sync::Arc;

/// An imported list ranker (`dlrm_hstu`, `ultra_hstu`) with a KV cache of user histories, for all layers and channels. Returning users
/// with an unchanged history cost only candidate scoring.
///
/// A history is identified by the model's parameters and the hash of all values that it is computed from, including the time of the request
/// if the model reads it. Predictions equal those of [`Predictor::predict`] bit for bit, whatever is cached. A changed history, even one
/// with additional steps, is recomputed completely. All channels of a user share pages, which are sized for the longest channel.
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
    /// [`RankError::NotApart`] if the model's histories cannot be cached or its package was written without a cache; [`RankError::Run`]
    /// if memory is insufficient.
    pub fn new(predictor: &Predictor, limits: CacheLimits) -> Result<Self, RankError> {
        let predictor = predictor.loaded().clone();
        if predictor.signature.apart().is_none() {
            return Err(RankError::NotApart);
        }
        let rows = HistoryRows { contextual: 0, rows_per_event: 0, appends: false, most: predictor.most };
        let pages = Pages::new(&predictor.model, limits, rows)?;
        Ok(Self { predictor, pages })
    }

    /// Predicts the rows of a table, where row `i` belongs to user `i`. A row without candidates caches its history for later calls.
    ///
    /// # Errors
    /// As [`Predictor::predict`]. The cached histories of these users may be lost then.
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

    /// Removes a user from the cache. Returns false if the user was not cached.
    pub fn forget(&mut self, user: &User) -> bool {
        self.pages.forget(user)
    }

    /// Removes all users from the cache. The pages stay allocated.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Counts of requests so far, and the content of the cache.
    pub fn report(&self) -> CacheReport {
        self.pages.report()
    }
}

/// The rows of a table, with the predictions made so far.
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
        // Ids and parameters of all runs are of one version.
        session.hold();
        let predicted = self.predictor.run_apart(session, apart, &self.column(), &placed, since).await;
        session.release();
        let predicted = predicted?;
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
