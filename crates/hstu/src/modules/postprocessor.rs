use super::layers::{layer_norm, linear};
use super::{Buffer, ConfigError, NORM_EPS, eps, parts, scalar, width};
use crate::ops::rounded_units;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Scope, Tensor, TensorSizeError};
use serde::Deserialize;

/// Postprocessing of the last layer's rows, as `{kind: options}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputPostprocessorConfig {
    /// Normalizes rows to length 1.
    L2normPostprocessor(L2NormConfig),
    /// Layer norm.
    LayernormPostprocessor(LayerNormConfig),
    /// Concatenates rows with the phases of their timestamps in periods such as days, then applies a linear layer and layer norm.
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
    /// Epsilon that is added to the variance.
    #[serde(default = "norm_eps")]
    pub eps: f64,
}

/// Options of the timestamp layer norm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampLayerNormConfig {
    /// Seconds per unit of each period, such as 3600 for hours.
    pub time_duration_period_units: Vec<i64>,
    /// Units per period, such as 24 for days.
    pub time_duration_units_per_period: Vec<i64>,
    /// Epsilon that is added to the variance.
    #[serde(default = "norm_eps")]
    pub eps: f64,
}

/// Lower bound of the length that rows are divided by.
const SHORTEST: f64 = 1e-6;

/// The reference's approximation of pi.
const HALF_TURN: f64 = 314.0 / 100.0;

fn norm_eps() -> f64 {
    NORM_EPS
}

/// Postprocesses the last layer's rows.
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
    /// [`ConfigError`] names the first invalid key.
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
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("embedding_dim", self.embedding_dim)?;
        self.config.check()
    }

    /// Postprocesses rows `x` `[.., D]` with their `timestamps` `[..]`.
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
                let all =
                    if timestamps.dtype().is_float() { rounded_units(&seconds, unit) } else { &seconds / unit as f64 };
                let units = all.binary_scalar(BinaryOp::Mod, per_period as f64);
                let angle = ((&units.cast(DType::F32) / per_period as f64) * 2.0) * HALF_TURN;
                [angle.cos(), angle.sin()]
            })
            .collect()
    }
}
