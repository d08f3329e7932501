//! Random inputs of imported models.

use crate::draft::{DraftError, draw_lengths, take};
use crate::{Noise, Shape};
use rewire::predict::{Feature, FeatureValues, Imported};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::HostMemory;

/// Number of history and candidate steps of every sample.
struct Steps {
    history: Vec<i64>,
    candidates: Vec<i64>,
}

/// Random inputs of a model, with one id or number per row or step.
pub(crate) fn rows(
    imported: &Imported,
    shape: &Shape,
    noise: &mut Noise,
    memory: &mut HostMemory,
) -> Result<Vec<(String, HostTensor)>, DraftError> {
    let history = draw_lengths(noise, memory, shape.batch, shape.len_dist, shape.max_len)?;
    let (low, high) = shape.targets.within(shape.max_len);
    let candidates = history.iter().map(|_| noise.between(low as i64, high as i64).max(1)).collect();
    let steps = Steps { history, candidates };
    let mut inputs = vec![];
    for name in imported.columns() {
        let features = imported.features();
        let Some(feature) = features.features.get(name) else { continue };
        let is_candidate = features
            .groups
            .iter()
            .any(|group| group.group_name.starts_with("candidate") && group.feature_names.contains(name));
        let lengths = match (&feature.sequence, is_candidate) {
            (None, _) => vec![1; shape.batch],
            (Some(_), true) => steps.candidates.clone(),
            (Some(_), false) => steps.history.clone(),
        };
        inputs.push((format!("{}.lengths", features.lengths_of(feature)), HostTensor::lengths(&lengths)));
        let count = lengths.iter().sum::<i64>() as usize;
        take(memory, DType::F32, &[count, feature.value_dim.max(1)])?;
        inputs.extend(values(feature, count, noise)?);
    }
    let is_read = |name: &str| imported.inputs().iter().any(|port| port.name == name);
    inputs.retain(|(name, _)| is_read(name));
    inputs.sort_by(|a, b| a.0.cmp(&b.0));
    inputs.dedup_by(|a, b| a.0 == b.0);
    Ok(inputs)
}

/// Random values of a feature for `count` rows or steps.
fn values(feature: &Feature, count: usize, noise: &mut Noise) -> Result<Vec<(String, HostTensor)>, DraftError> {
    Ok(match feature.values {
        FeatureValues::Floats { .. } => {
            vec![(feature.input("values"), noise.floats(DType::F32, &[count, feature.value_dim])?)]
        }
        FeatureValues::Ids { rows, .. } => vec![
            (feature.input("values"), noise.ids(count, rows)?),
            (feature.input("weights"), HostTensor::f32(vec![count], &vec![1.0; count])?),
            (feature.input("key_lengths"), HostTensor::lengths(&vec![1; count])),
        ],
    })
}
