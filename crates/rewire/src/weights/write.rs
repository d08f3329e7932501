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
    let described: Described = tensors.iter().map(|(name, tensor)| (name.as_str(), described(tensor))).collect();
    let Header { mut bytes, places, content } = header(&described, metadata)?;
    bytes.try_reserve_exact(content).map_err(|_| WeightsError::Memory { bytes: content })?;
    let ordered = places.iter().filter_map(|(name, _)| tensors.get(*name));
    ordered.for_each(|tensor| bytes.extend_from_slice(&file_bytes(tensor)));
    Ok(bytes)
}

/// Types and shapes of tensors by name.
pub(crate) type Described<'a> = BTreeMap<&'a str, (DType, Vec<usize>)>;

/// The type and shape of a tensor.
pub(crate) fn described(tensor: &HostTensor) -> (DType, Vec<usize>) {
    (tensor.dtype(), tensor.shape().to_vec())
}

/// The header of a safetensors file, including its length.
pub(crate) struct Header<'a> {
    pub bytes: Vec<u8>,
    /// The tensors in file order, with their offsets after the header: those of larger elements first, which keeps all aligned.
    pub places: Vec<(&'a str, usize)>,
    /// Bytes of all tensors.
    pub content: usize,
}

#[cfg(feature = "files")]
impl Header<'_> {
    /// Writes the header and its tensors at the current position of a file; returns the offsets of the tensors in the
    /// file.
    pub fn write(
        &self,
        file: &mut std::fs::File,
        tensors: &BTreeMap<String, HostTensor>,
    ) -> std::io::Result<BTreeMap<&str, u64>> {
        use std::io::{Seek, Write};
        let start = file.stream_position()? + self.bytes.len() as u64;
        file.write_all(&self.bytes)?;
        for tensor in self.places.iter().filter_map(|(name, _)| tensors.get(*name)) {
            file.write_all(&file_bytes(tensor))?;
        }
        Ok(self.places.iter().map(|(name, place)| (*name, start + *place as u64)).collect())
    }
}

/// The header of a file with these tensors and this metadata.
pub(crate) fn header<'a>(
    tensors: &Described<'a>,
    metadata: &BTreeMap<String, String>,
) -> Result<Header<'a>, WeightsError> {
    let mut names: Vec<&str> = tensors.keys().copied().collect();
    names.arrange_by_key(|name| std::cmp::Reverse(tensors.get(name).map(|(dtype, _)| dtype.format().bits)));
    let mut entries =
        serde_json::Map::from_iter([("__metadata__".to_owned(), serde_json::json!(with_rows(tensors, metadata)?))]);
    let (mut end, mut places) = (0, vec![]);
    for name in names {
        let Some((dtype, shape)) = tensors.get(name) else { continue };
        let start = end;
        places.push((name, start));
        end += stored_bytes(*dtype, shape);
        let (dtype, shape) = (stored_type(*dtype), stored_shape(*dtype, shape));
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        entries.insert(name.to_owned(), entry);
    }
    let mut text = serde_json::Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let bytes = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    Ok(Header { bytes, places, content: end })
}

/// The file type for elements of a type: bytes for quantized rows, which have no type in safetensors.
fn stored_type(dtype: DType) -> Dtype {
    let name = dtype.format().name.to_ascii_uppercase();
    let named: Result<_, ValueError> = Dtype::deserialize(name.into_deserializer());
    named.unwrap_or(Dtype::U8)
}

fn stored_shape(dtype: DType, shape: &[usize]) -> Vec<usize> {
    let (mut shape, format) = (shape.to_vec(), dtype.format());
    if let Some(width) = shape.last_mut().filter(|_| !format.is_written()) {
        *width = format.row_bytes(*width).unwrap_or(usize::MAX);
    }
    shape
}

fn stored_bytes(dtype: DType, shape: &[usize]) -> usize {
    match dtype {
        DType::Bool => shape.iter().product(),
        _ => dtype.format().host_bytes(shape).unwrap_or(usize::MAX),
    }
}

/// The bytes of a tensor, or of some of its rows, in a file.
pub(crate) fn file_bytes(tensor: &HostTensor) -> Cow<'_, [u8]> {
    match tensor.dtype() {
        DType::Bool => tensor.to_i64().into_iter().map(|v| u8::from(v != 0)).collect(),
        _ => Cow::Borrowed(tensor.bytes()),
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
