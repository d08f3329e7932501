//! Serializes safetensors files.

use super::WeightsError;
use super::metadata::with_rows;
use rewire_graph::{Arrange, DType, HostTensor};
use safetensors::Dtype;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The bytes of a safetensors file with these tensors and this metadata.
///
/// # Errors
/// [`WeightsError::Format`] if the metadata cannot be written, [`WeightsError::Memory`] if there is not enough memory for the
/// bytes.
pub fn serialize(
    tensors: &BTreeMap<String, HostTensor>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, WeightsError> {
    let (mut bytes, views) = header(tensors, metadata)?;
    let needed = views.iter().map(safetensors::View::data_len).sum();
    bytes.try_reserve_exact(needed).map_err(|_| WeightsError::Memory { bytes: needed })?;
    views.iter().for_each(|view| bytes.extend_from_slice(&safetensors::View::data(view)));
    Ok(bytes)
}

/// The header of a safetensors file with these tensors and this metadata, including its length, and the tensors in file order: those of
/// larger elements first, which keeps all aligned.
pub(crate) fn header<'a>(
    tensors: &'a BTreeMap<String, HostTensor>,
    metadata: &BTreeMap<String, String>,
) -> Result<(Vec<u8>, Vec<View<'a>>), WeightsError> {
    use safetensors::View as _;
    let mut views: Vec<_> = tensors.iter().map(|(name, tensor)| View::of(name, tensor)).collect();
    views.arrange_by_key(|view| std::cmp::Reverse(view.tensor.dtype().format().bits));
    let mut entries =
        serde_json::Map::from_iter([("__metadata__".to_owned(), serde_json::json!(with_rows(tensors, metadata)?))]);
    let mut end = 0;
    for view in &mut views {
        view.start = end;
        end += view.data_len();
        let (dtype, shape) = (view.dtype(), &view.shape);
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [view.start, end] });
        entries.insert(view.name.to_owned(), entry);
    }
    let mut text = serde_json::Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let header = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    Ok((header, views))
}

/// A tensor as stored in a file.
pub(crate) struct View<'a> {
    pub name: &'a str,
    tensor: &'a HostTensor,
    shape: Vec<usize>,
    /// Offset after the header.
    pub start: usize,
}

impl<'a> View<'a> {
    fn of(name: &'a str, tensor: &'a HostTensor) -> Self {
        let (mut shape, format) = (tensor.shape().to_vec(), tensor.dtype().format());
        if let Some(width) = shape.last_mut().filter(|_| !format.is_written()) {
            *width = format.row_bytes(*width).unwrap_or(usize::MAX);
        }
        Self { name, tensor, shape, start: 0 }
    }
}

impl safetensors::View for View<'_> {
    fn dtype(&self) -> Dtype {
        let name = self.tensor.dtype().format().name.to_uppercase();
        let named: Result<_, ValueError> = Dtype::deserialize(name.into_deserializer());
        named.unwrap_or(Dtype::U8)
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.tensor.dtype() {
            DType::Bool => self.tensor.to_i64().into_iter().map(|v| u8::from(v != 0)).collect(),
            _ => Cow::Borrowed(self.tensor.bytes()),
        }
    }

    fn data_len(&self) -> usize {
        match self.tensor.dtype() {
            DType::Bool => self.tensor.len(),
            _ => self.tensor.bytes().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Weights;

    #[test]
    fn rows_with_a_scale_are_bytes() {
        let values: Vec<f32> = (0..48).map(|n| (n * 29 % 17) as f32 - 3.0).collect();
        let table = HostTensor::f32(vec![2, 24], &values).unwrap();
        for (dtype, bytes) in [(DType::Rows8, 32), (DType::Rows4, 16), (DType::Rows2, 10)] {
            let rows = table.clone().stored_as(dtype).unwrap();
            let file = serialize(&BTreeMap::from([("t".to_owned(), rows.clone())]), &BTreeMap::new()).unwrap();
            assert!(String::from_utf8_lossy(&file).contains(&format!(r#""dtype":"U8","shape":[2,{bytes}]"#)));
            let weights = Weights::parse(file).unwrap();
            assert_eq!(weights.get("t").unwrap(), Some(rows));
            assert!(weights.metadata().is_empty());
        }
    }
}
