use super::tracer::CaseTracer;
use super::{Outputs, ReplayError};
use rewire_graph::DType;
use serde::Deserialize;
use serde::de::{Error, Unexpected};

#[derive(Deserialize)]
struct Rows {
    #[serde(deserialize_with = "dtype")]
    bits: DType,
}

/// The row type with a scale and integers of this many bits.
fn dtype<'de, D: serde::Deserializer<'de>>(bits: D) -> Result<DType, D::Error> {
    let bits = u64::deserialize(bits)?;
    let is_meant = |dtype: &DType| !dtype.format().is_written() && dtype.format().bits as u64 == bits;
    let known = DType::ALL.into_iter().find(is_meant);
    known.ok_or_else(|| D::Error::invalid_value(Unexpected::Unsigned(bits), &"rows of 8, 4 or 2 bits"))
}

/// The row type that a case's attributes define for stored bytes; 8 bits by default.
pub(crate) fn rows(attrs: Option<&String>) -> DType {
    let attrs: Option<Rows> = attrs.and_then(|attrs| serde_json::from_str(attrs).ok());
    attrs.map_or(DType::Rows8, |attrs| attrs.bits)
}

/// Quantizes a table as binding does, and dequantizes it as lookups do.
pub(super) fn quantize_rows(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let Rows { bits } = case.attributes()?;
    let shape = [case.extent("table", 0)?, case.extent("table", 1)?];
    let rows = case.scope.parameter("table", bits, shape);
    Ok(vec![("table".to_owned(), rows.cast(DType::F32)), ("rows".to_owned(), rows)])
}
