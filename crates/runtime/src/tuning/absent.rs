use super::Bucket;
use super::device::{DeviceTunings, Tunings};
use crate::{Gpu, RunError};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Plan;

/// A folder of measured tunings; unavailable without the feature `files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TuningStore {}

impl TuningStore {
    /// There are none.
    pub fn of(&self, _: &Gpu, _: &Plan) -> Option<DeviceTunings> {
        match *self {}
    }

    pub(crate) fn load(&self, _: &Gpu) -> Tunings {
        match *self {}
    }

    pub(crate) fn keep(&self, _: &Gpu, _: Vec<(String, Bucket, Tuning)>) -> Result<(), RunError> {
        match *self {}
    }
}
