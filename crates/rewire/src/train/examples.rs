use super::ExampleError;
use crate::rank::{Batch, Capacity, Layout, Schema, runs};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::Inputs;
use std::sync::Arc;

/// The input with the action bits of candidates.
pub(super) const LABELS: &str = "labels";
/// The input with the weights of candidates.
pub(super) const WEIGHTS: &str = "weights";

/// Converts batches of users to inputs of training steps. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Examples {
    pub(super) schema: Arc<Schema>,
    pub(super) inputs: Arc<[(String, Option<DType>)]>,
    pub(super) capacity: Capacity,
}

impl Examples {
    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(self.schema.clone())
    }

    /// The schema of the users' requests.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The inputs of a run with all users of a batch. Histories and candidates are laid out as for ranking.
    ///
    /// # Errors
    /// [`ExampleError`] names the user without labels, or reports that no user has a candidate.
    pub fn inputs(&self, batch: &Batch) -> Result<Inputs, ExampleError> {
        let layouts: Vec<Layout> = (0..batch.len()).map(|request| self.capacity.lay_out(batch, request)).collect();
        let all = runs(&self.capacity, &layouts, usize::MAX);
        let Some(run) = all.first() else { return Err(ExampleError::Empty { users: batch.len() }) };
        let mut inputs = run.inputs(&self.inputs, batch)?;
        let mut labels = vec![];
        for sequence in &run.sequences {
            let own = batch.labels(sequence.request).ok_or_else(|| ExampleError::Unlabelled {
                user: batch.users().get(sequence.request).map(ToString::to_string).unwrap_or_default(),
            })?;
            labels.extend_from_slice(own.get(sequence.part.clone()).unwrap_or_default());
        }
        inputs.insert(WEIGHTS, HostTensor::vector(&vec![1.0f32; labels.len()]));
        inputs.insert(LABELS, HostTensor::vector(&labels));
        Ok(inputs)
    }
}
