//! Metadata of a file about its tensors.

use super::WeightsError;
use super::write::Described;
use rewire_graph::{DType, Ordered};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The metadata key with the row types of some tensors.
pub(super) const ROWS: &str = "rewire.rows";

/// The metadata key with the tensors that are stored transposed.
pub(super) const COLUMNS: &str = "rewire.columns";

/// The metadata of a file with some tensors stored transposed.
pub(crate) fn with_columns<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let names: Vec<&str> = names.collect();
    let told = (!names.is_empty()).then(|| (COLUMNS.to_owned(), serde_json::json!(names).to_string()));
    told.into_iter().ordered_map()
}

/// The metadata with the row types that bytes do not determine.
pub(super) fn with_rows(
    tensors: &Described<'_>,
    metadata: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, WeightsError> {
    let mut metadata = metadata.clone();
    let is_told = |dtype: DType| !dtype.format().is_written() && dtype != DType::Rows8;
    let told = tensors.iter().filter(|(_, (dtype, _))| is_told(*dtype));
    let told: BTreeMap<&str, &str> = told.map(|(name, (dtype, _))| (*name, dtype.format().name)).ordered_map();
    if !told.is_empty() {
        let told = serde_json::to_string(&told).map_err(|error| told_wrong(ROWS, &error, 0))?;
        metadata.insert(ROWS.to_owned(), told);
    }
    Ok(metadata)
}

/// Removes and returns the content of a metadata entry.
pub(super) fn told_of<T: Default + DeserializeOwned>(
    metadata: &mut BTreeMap<String, String>,
    entry: &str,
    bytes: usize,
) -> Result<T, WeightsError> {
    let told = metadata.remove(entry).map(|told| serde_json::from_str(&told)).transpose();
    told.map(Option::unwrap_or_default).map_err(|error| told_wrong(entry, &error, bytes))
}

fn told_wrong(entry: &str, error: &serde_json::Error, bytes: usize) -> WeightsError {
    let reason = format!("`{entry}` of the metadata is not valid JSON: {error}");
    WeightsError::Format { reason, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{Weights, serialize};
    use rewire_graph::HostTensor;

    #[test]
    fn rows_that_are_columns_are_told() {
        let values: Vec<f32> = (0..24).map(|n| (n * 29 % 17) as f32).collect();
        let weight = HostTensor::f32(vec![3, 8], &values).unwrap();
        let rows = weight.clone().transposed().unwrap().stored_as(DType::Rows8).unwrap();
        let tensors = BTreeMap::from([("w".to_owned(), rows.clone()), ("v".to_owned(), weight.clone())]);
        let file = serialize(&tensors, &with_columns(["w"].into_iter())).unwrap();
        let weights = Weights::parse(file).unwrap();
        let laid = |name: &str, by_column| weights.laid(name, by_column).unwrap().unwrap();
        assert_eq!((laid("w", false), laid("v", false)), (rows.clone().transposed().unwrap(), weight.clone()));
        assert_eq!((laid("w", true), laid("v", true)), (rows, weight.transposed().unwrap()));
        assert!(weights.metadata().is_empty());
    }
}
