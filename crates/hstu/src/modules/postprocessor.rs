use super::layers::{layer_norm, linear};
use super::{Buffer, ConfigError, NORM_EPS, eps, parts, scalar, width};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Scope, Tensor, TensorSizeError};
use serde::Deserialize;

/// `{kind: options}` of what is done with the last layer's rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputPostprocessorConfig {
    /// Rows of length 1.
    L2normPostprocessor(L2NormConfig),
    /// Layer norm.
    LayernormPostprocessor(LayerNormConfig),
    /// Layer norm of rows joined with the phase of their timestamp in periods such as days.
    TimestampLayernormPostprocessor(TimestampLayerNormConfig),
}

/// Options of the l2 norm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2NormConfig {}

/// Options of the layer norm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNormConfig {
    /// Added to the variance.
    #[serde(default = "norm_eps")]
    pub eps: f64,
}

/// Options of the timestamp layer norm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampLayerNormConfig {
    /// Seconds in a unit, one entry a period: 3600 counts hours.
    pub time_duration_period_units: Vec<i64>,
    /// Units in the period: 24 hours are a day.
    pub time_duration_units_per_period: Vec<i64>,
    /// Added to the variance.
    #[serde(default = "norm_eps")]
    pub eps: f64,
}

/// The length below which a row counts as this long.
const SHORTEST: f64 = 1e-6;

/// What the reference takes for pi.
const HALF_TURN: f64 = 314.0 / 100.0;

fn norm_eps() -> f64 {
    NORM_EPS
}

/// What is done with the last layer's rows.
#[derive(Clone, Debug)]
pub struct OutputPostprocessor {
    /// Kind and options.
    pub config: OutputPostprocessorConfig,
    /// Width of rows.
    pub embedding_dim: usize,
}

impl OutputPostprocessorConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that has no possible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let config = match self {
            Self::L2normPostprocessor(_) => return Ok(()),
            Self::LayernormPostprocessor(config) => return eps("layernorm_postprocessor.eps", config.eps),
            Self::TimestampLayernormPostprocessor(config) => config,
        };
        eps("timestamp_layernorm_postprocessor.eps", config.eps)?;
        let (units, periods) = (&config.time_duration_period_units, &config.time_duration_units_per_period);
        if units.len() != periods.len() {
            let expected = format!("{} entries, one a unit", units.len());
            return Err(ConfigError::new("time_duration_units_per_period", expected, periods.len()));
        }
        let positive = |key: &str, entries: &[i64]| {
            parts(key, entries.len())?;
            entries.iter().try_for_each(|&entry| scalar(key, entry))?;
            match entries.iter().find(|&&entry| entry < 1) {
                Some(entry) => Err(ConfigError::new(key, "of entries of at least 1", entry)),
                None => Ok(()),
            }
        };
        positive("time_duration_period_units", units)?;
        positive("time_duration_units_per_period", periods)
    }

    /// State-dict tensors that follow from the configuration.
    pub fn buffers(&self) -> Result<Vec<Buffer>, TensorSizeError> {
        let Self::TimestampLayernormPostprocessor(config) = self else { return Ok(vec![]) };
        let entries = [
            ("_period_units", &config.time_duration_period_units),
            ("_units_per_period", &config.time_duration_units_per_period),
        ];
        entries
            .into_iter()
            .map(|(name, values)| {
                let floats: Vec<f32> = values.iter().map(|&n| n as f32).collect();
                Ok(Buffer { name: name.to_owned(), value: HostTensor::f32(vec![1, floats.len()], &floats)? })
            })
            .collect()
    }
}

impl OutputPostprocessor {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that has no possible value.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("embedding_dim", self.embedding_dim)?;
        self.config.check()
    }

    /// Rows `x` `[.., D]` with their `timestamps` `[..]`.
    pub fn forward(&self, scope: &Scope, x: &Tensor, timestamps: &Tensor) -> Tensor {
        match &self.config {
            OutputPostprocessorConfig::L2normPostprocessor(_) => x.unit_rows(SHORTEST),
            OutputPostprocessorConfig::LayernormPostprocessor(config) => {
                layer_norm(scope, "_layer_norm", x, config.eps)
            }
            OutputPostprocessorConfig::TimestampLayernormPostprocessor(config) => {
                let phases = config.phases(timestamps);
                let parts: Vec<&Tensor> = std::iter::once(x).chain(&phases).collect();
                let joined = scope.concat(&parts, x.rank().saturating_sub(1));
                let combined = linear(scope, "_time_feature_combiner", &joined, self.embedding_dim);
                layer_norm(scope, "_layer_norm", &combined, config.eps)
            }
        }
    }
}

impl TimestampLayerNormConfig {
    /// Cosine and sine of the phase of `timestamps` `[..]` in every period, `[.., 1]` each.
    fn phases(&self, timestamps: &Tensor) -> Vec<Tensor> {
        let mut shape = timestamps.shape().to_vec();
        shape.push(1.into());
        let seconds = timestamps.cast(DType::I64).reshape(&shape);
        let periods = self.time_duration_period_units.iter().zip(&self.time_duration_units_per_period);
        periods
            .flat_map(|(&unit, &per_period)| {
                let all = if timestamps.dtype().is_float() { rounded(&seconds, unit) } else { &seconds / unit as f64 };
                let units = all.binary_scalar(BinaryOp::Mod, per_period as f64);
                let angle = ((&units.cast(DType::F32) / per_period as f64) * 2.0) * HALF_TURN;
                [angle.cos(), angle.sin()]
            })
            .collect()
    }
}

/// The whole units in `seconds`, I64 from 0, as the reference counts those of F32 timestamps: `(seconds - seconds mod unit) / unit`, the difference
/// and the quotient rounded to F32, then down, or up where the fraction is above one half.
///
/// Division is not correctly rounded on every device, and conversion of integers is. An integer with eight times the quotient, whose
/// last bit is set for any remainder, is rounded as the quotient itself.
fn rounded(seconds: &Tensor, unit: i64) -> Tensor {
    let multiple = (seconds - seconds.binary_scalar(BinaryOp::Mod, unit as f64)).cast(DType::F32);
    let fourfold = (multiple * 4.0).cast(DType::I64);
    let (down, up) = (&fourfold / unit as f64, (&fourfold + (unit - 1) as f64) / unit as f64);
    let quotient = (down + up).cast(DType::F32) * 0.125;
    let whole = quotient.trunc();
    let rest = &quotient - &whole;
    whole.cast(DType::I64) + rest.gt(0.5).cast(DType::I64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::{Dim, interpret};
    use std::collections::HashMap;

    /// torch.div with `rounding_mode="floor"`.
    fn reference(seconds: f32, unit: f32) -> f32 {
        let quotient = (seconds - seconds % unit) / unit;
        let whole = quotient.floor();
        if quotient - whole > 0.5 { whole + 1.0 } else { whole }
    }

    #[test]
    fn units_are_counted_in_single_precision() -> Result<(), Box<dyn std::error::Error>> {
        let mut state = 1u64;
        let mut seconds: Vec<f32> = vec![0.0, 1.0, 59.5, 3599.0, 3600.0, 16_777_216.0, 1_652_283_904.0];
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seconds.push((state >> 33) as f32 / (1 << (state & 7)) as f32);
        }
        let mut inexact = 0;
        for unit in [1, 2, 5, 7, 60, 97, 128, 300, 600, 3600, 86_400, 604_800] {
            let scope = Scope::new();
            let times = scope.input("times", DType::F32, &[Dim::from(seconds.len())]);
            let graph = scope.finish(&[("units", rounded(&times.cast(DType::I64), unit))])?;
            let inputs = HashMap::from([("times".to_owned(), HostTensor::vector(&seconds))]);
            let found = interpret(&graph, &inputs, &HashMap::new())?.remove("units").ok_or("no units")?;
            for (&seconds, found) in seconds.iter().zip(found.to_i64()) {
                assert_eq!(found as f32, reference(seconds, unit as f32), "{seconds} in {unit}");
                inexact += usize::from(found != seconds as i64 / unit);
            }
        }
        assert!(inexact > 1000);
        Ok(())
    }
}
