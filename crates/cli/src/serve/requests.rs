//! JSON bodies of requests.

use super::error::{Fault, ServeError};
use rewire::generate::Sampling;
use rewire::program::{ScalarType, TypedTensor};
use rewire::rank::Batch;
use rewire::{HostTensor, graph::DType};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The body of `rank` and of vectors: `{"requests": [REQUEST], "top": K}`.
#[derive(Debug)]
pub struct RankBody {
    pub batch: Batch,
    pub top: Option<usize>,
}

impl RankBody {
    /// Fills an empty batch with up to `limit` requests.
    pub fn parse(body: &[u8], mut batch: Batch, limit: usize) -> Result<Self, Fault> {
        let (mut fault, mut json) = (None, serde_json::Deserializer::from_slice(body));
        let parsed = BodySeed { batch: &mut batch, limit, fault: &mut fault }.deserialize(&mut json);
        match parsed.and_then(|top| json.end().map(|()| top)) {
            Ok(top) => Ok(Self { batch, top }),
            Err(error) => Err(fault.unwrap_or_else(|| Fault::of_text(error))),
        }
    }
}

/// Fills a batch and returns `top`. A fault of a request is kept in addition to the error of the parser.
struct BodySeed<'a> {
    batch: &'a mut Batch,
    limit: usize,
    fault: &'a mut Option<Fault>,
}

impl<'de> DeserializeSeed<'de> for BodySeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BodySeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `requests`")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut top, mut has_requests) = (None, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "requests" if !has_requests => {
                    has_requests = true;
                    map.next_value_seed(RequestsSeed(&mut self))?;
                }
                "top" if top.is_none() => top = Some(map.next_value()?),
                "requests" | "top" => return Err(A::Error::custom(format!("the key `{key}` is there twice"))),
                _ => return Err(A::Error::unknown_field(&key, &["requests", "top"])),
            }
        }
        if has_requests { Ok(top) } else { Err(A::Error::missing_field("requests")) }
    }
}

struct RequestsSeed<'s, 'a>(&'s mut BodySeed<'a>);

impl<'de> DeserializeSeed<'de> for RequestsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RequestsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let BodySeed { batch, limit, fault } = self.0;
        while let Some(pushed) = seq.next_element_seed(&mut **batch)? {
            if let Err(error) = pushed {
                let message = error.to_string();
                **fault = Some(error.into());
                return Err(A::Error::custom(message));
            }
            if batch.len() > *limit {
                **fault = Some(ServeError::RowsLimit { limit: *limit }.into());
                return Err(A::Error::custom("too many requests"));
            }
        }
        Ok(())
    }
}

/// The body of `generate`. Without a trie, tokens are sampled.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateBody {
    pub prompts: Vec<Vec<u32>>,
    /// Beam width of the search in the trie of the server.
    pub beams: Option<usize>,
    pub tokens: Option<usize>,
    pub temperature: Option<f64>,
    pub top_k: Option<usize>,
    pub top_p: Option<f64>,
    pub seed: Option<u64>,
    pub stop: Option<Vec<u32>>,
}

impl GenerateBody {
    pub fn parse(body: &[u8], limit: usize) -> Result<Self, Fault> {
        let parsed: Self = serde_json::from_slice(body).map_err(Fault::of_text)?;
        match parsed.prompts.len() > limit {
            true => Err(ServeError::RowsLimit { limit }.into()),
            false => Ok(parsed),
        }
    }

    /// True if an option is given that only applies to sampling.
    pub fn has_sampling(&self) -> bool {
        let Self { tokens, temperature, top_k, top_p, seed, stop, .. } = self;
        let is_number = tokens.is_some() || top_k.is_some() || seed.is_some();
        is_number || temperature.is_some() || top_p.is_some() || stop.is_some()
    }

    pub fn sampling(&self) -> Sampling {
        let default = Sampling::default();
        Sampling {
            tokens: self.tokens.unwrap_or(default.tokens),
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k,
            top_p: self.top_p.unwrap_or(default.top_p),
            seed: self.seed.unwrap_or(default.seed),
            stop: self.stop.clone().unwrap_or(default.stop),
        }
    }
}

/// The body of `run`: tensors by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunBody {
    inputs: BTreeMap<String, JsonTensor>,
}

/// A tensor, its elements in row-major order.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JsonTensor {
    dtype: ScalarType,
    shape: Vec<usize>,
    values: Vec<Number>,
}

/// An element. Floats that are not finite are null.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Number {
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// The shortest decimal that is this f32, for output only.
    Short(f32),
    None,
}

/// Parses the tensors of `run`.
pub fn tensors(body: &[u8]) -> Result<BTreeMap<String, TypedTensor>, Fault> {
    let RunBody { inputs } = serde_json::from_slice(body).map_err(Fault::of_text)?;
    inputs.into_iter().map(|(name, tensor)| tensor.read(&name).map(|tensor| (name, tensor))).collect()
}

impl JsonTensor {
    fn read(self, name: &str) -> Result<TypedTensor, Fault> {
        let Self { dtype: ty, shape, values } = self;
        let count = shape.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent));
        if count != Some(values.len()) {
            return Err(Fault::of_text(format!("`{name}` has {} values for the shape {shape:?}", values.len())));
        }
        let tensor = if ty.is_float() {
            HostTensor::from_f64(ty.dtype(), shape, &values.iter().map(Number::float).collect::<Vec<_>>())
        } else {
            let (is_wide, least) = (ty.dtype() == DType::I64, i64::from(i32::MIN));
            let is_stored = |value: &i64| is_wide || (least..=i64::from(i32::MAX)).contains(value);
            let integers: Option<Vec<i64>> = values.iter().map(|value| value.integer().filter(is_stored)).collect();
            let integers =
                integers.ok_or_else(|| Fault::of_text(format!("`{name}` is {ty}: expected such integers")))?;
            match is_wide {
                true => HostTensor::i64(shape, &integers),
                false => {
                    HostTensor::from_f64(ty.dtype(), shape, &integers.iter().map(|&one| one as f64).collect::<Vec<_>>())
                }
            }
        };
        let tensor = tensor.map_err(|error| Fault::of_text(format!("`{name}`: {error}")))?;
        Ok(TypedTensor { ty, tensor })
    }

    /// A tensor as JSON.
    pub fn of(TypedTensor { ty, tensor }: &TypedTensor) -> Self {
        let values = match ty.dtype() {
            DType::Bool => tensor.to_f64().into_iter().map(|value| Number::Bool(value != 0.0)).collect(),
            DType::I32 | DType::I64 => tensor.to_i64().into_iter().map(Number::Integer).collect(),
            _ => tensor.to_f32().into_iter().map(Number::of_float).collect(),
        };
        Self { dtype: *ty, shape: tensor.shape().to_vec(), values }
    }
}

impl Number {
    fn of_float(value: f32) -> Self {
        if value.is_finite() { Self::Short(value) } else { Self::None }
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Integer(value) => Some(*value),
            Self::Float(value) => rewire::rank::whole(*value),
            Self::Short(_) | Self::None => None,
        }
    }

    fn float(&self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(*value)),
            Self::Integer(value) => *value as f64,
            Self::Float(value) => *value,
            Self::Short(value) => f64::from(*value),
            Self::None => f64::NAN,
        }
    }
}
