//! The training configuration, with the reference's names.

mod clipping;
mod dense;
mod error;
mod part;
mod scheduled;
mod sparse;

pub use clipping::{ClippingType, GradClipping};
pub use dense::{Adadelta, Adagrad, Adam, AdamW, DenseOptimizer, RmsProp, Sgd};
pub use error::ConfigError;
pub(crate) use error::number;
pub use part::PartOptimizer;
pub use scheduled::{Configured, Scheduled};
pub use sparse::{SparseOptimizer, TableAdagrad, TableAdam, TableSgd, WeightDecayMode};

use rewire_graph::{DType, keys_to};
use serde::Deserialize;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

/// Options of a training.
///
/// ```
/// use rewire_train::TrainConfig;
/// let config = r#"{ "batch_size": 8, "epochs": 1,
///     "dense_optimizer": { "adam_optimizer": { "lr": 0.1, "beta1": 1.5 } },
///     "sparse_optimizer": { "sgd_optimizer": { "lr": 0.1 } } }"#;
/// let error = TrainConfig::from_json(config).map_err(|error| error.to_string());
/// assert_eq!(
///     error.err().as_deref(),
///     Some("`dense_optimizer.adam_optimizer.beta1` must be at least 0 and below 1 as f32 has it, got 1.5")
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Users per batch.
    pub batch_size: NonZeroUsize,
    /// Number of steps; set either this or `epochs`.
    #[serde(default)]
    pub steps: Option<NonZeroU64>,
    /// Number of passes over all users; set either this or `steps`.
    #[serde(default)]
    pub epochs: Option<NonZeroU64>,
    /// Seed for shuffling users; if left out, users keep the order of the file.
    #[serde(default)]
    pub shuffle_seed: Option<u64>,
    /// Batches per step. Their gradients are averaged.
    #[serde(default = "one")]
    pub gradient_accumulation_steps: NonZeroUsize,
    /// True makes every batch a step for tables and learning rates, as with optimizers fused into the backward pass. Only
    /// dense optimizers then accumulate `gradient_accumulation_steps` batches.
    #[serde(default)]
    pub fused_tables: bool,
    /// Clipping of the gradients of dense parameters.
    #[serde(default)]
    pub grad_clipping: GradClipping,
    /// The optimizer of all parameters except tables.
    pub dense_optimizer: Scheduled<DenseOptimizer>,
    /// Optimizers of some dense parameters. If several name a parameter, the first one is used.
    #[serde(default)]
    pub part_optimizers: Vec<PartOptimizer>,
    /// The optimizer of tables.
    pub sparse_optimizer: Scheduled<SparseOptimizer>,
    /// How tables are sharded over ranks.
    #[serde(default)]
    pub sharding: Sharding,
    /// The storage type of activations; `F32` if left out.
    #[serde(default)]
    pub mixed_precision: Option<MixedPrecision>,
    /// Loss scaling, which keeps f16 gradients in range; `None` disables it.
    #[serde(default)]
    pub grad_scaler: Option<GradScaler>,
    /// Moving averages of the dense parameters; none if left out.
    #[serde(default)]
    pub ema: Option<Ema>,
    /// Memory limit in bytes for the tensors of a step, not counting parameters and optimizer states. Tensors that
    /// exceed it are recomputed in the backward pass, cheapest first; results keep their bits. If left out, all tensors
    /// for gradients are stored.
    #[serde(default)]
    pub memory_limit: Option<NonZeroU64>,
    /// A folder for tables and their moments, which are then in unnamed files there instead of memory. The system caches
    /// used pages; a step reads and writes only the rows of its batches.
    #[serde(default)]
    pub tables_folder: Option<PathBuf>,
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// How tables and their moments are sharded over the ranks of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// Every rank has a copy of all tables.
    #[default]
    DataParallel,
    /// Every table is on one rank; tables are assigned round robin.
    TableWise,
    /// Every rank has a contiguous block of the rows of each table. Blocks have equal sizes; the last ones may be smaller.
    RowWise,
}

/// A 16-bit storage type of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum MixedPrecision {
    /// f16.
    #[serde(rename = "FP16")]
    F16,
    /// bf16.
    #[serde(rename = "BF16")]
    BF16,
}

/// Dynamic loss scaling, as `torch.amp.GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GradScaler {
    /// The initial scale.
    pub init_scale: f64,
    /// Multiplies the scale after `growth_interval` steps without an overflow.
    pub growth_factor: f64,
    /// Multiplies the scale after an overflow.
    pub backoff_factor: f64,
    /// Steps without an overflow until the scale grows.
    pub growth_interval: NonZeroU64,
}

/// Exponential moving averages of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ema {
    /// The weight of the old average in a step, from 0 to 1.
    pub decay: f64,
}

impl TrainConfig {
    /// Parses the text of a JSON file. Unknown keys are errors.
    ///
    /// # Errors
    /// [`ConfigError`] if the text is not JSON, or a key is unknown, missing or out of bounds.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_str(text).map_err(|source| match keys_to(text, &source) {
            Some(key) => ConfigError::Key { key, source },
            None => ConfigError::Parse(source),
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks the constraints that types do not express.
    ///
    /// # Errors
    /// [`ConfigError`] names the key that is out of bounds, or the unsupported optimizer.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.steps.is_some() == self.epochs.is_some() {
            let actual = if self.steps.is_some() { "both" } else { "neither" };
            return Err(ConfigError::new("steps", "given, or `epochs`, and not both", actual));
        }
        self.grad_clipping.check().map_err(|error| error.within("grad_clipping"))?;
        self.dense_optimizer.check().map_err(|error| error.within("dense_optimizer"))?;
        self.sparse_optimizer.check().map_err(|error| error.within("sparse_optimizer"))?;
        for (index, part) in self.part_optimizers.iter().enumerate() {
            part.scheduled.check().map_err(|error| error.within(&format!("part_optimizers[{index}]")))?;
        }
        if let Some(scaler) = &self.grad_scaler {
            scaler.check().map_err(|error| error.within("grad_scaler"))?;
        }
        self.ema.map_or(Ok(()), |ema| number("ema.decay", ema.decay, 0.0..=1.0))
    }
}

impl TrainConfig {
    /// Batches of a step.
    pub(crate) fn step_batches(&self) -> usize {
        if self.fused_tables { 1 } else { self.gradient_accumulation_steps.get() }
    }

    /// True if the dense optimizers are applied after a batch; step and batch count from 0.
    pub(crate) fn is_last(&self, step: u64, batch: usize) -> bool {
        let batches = self.gradient_accumulation_steps.get() as u64;
        let done = step.wrapping_mul(self.step_batches() as u64).wrapping_add(batch as u64);
        done % batches == batches - 1
    }

    /// The dense optimizers, each with its kind, a part of its states' names. The default optimizer comes first.
    pub(crate) fn dense_optimizers(&self) -> Vec<(String, &Scheduled<DenseOptimizer>)> {
        let parts = self.part_optimizers.iter().enumerate();
        let parts = parts.map(|(index, part)| (format!("part{index}"), &part.scheduled));
        std::iter::once(("dense".to_owned(), &self.dense_optimizer)).chain(parts).collect()
    }

    /// The position of a parameter's optimizer among [`TrainConfig::dense_optimizers`].
    pub(crate) fn dense_optimizer_of(&self, parameter: &str) -> usize {
        self.part_optimizers.iter().position(|part| part.parameters.contains(parameter)).map_or(0, |index| index + 1)
    }
}

impl MixedPrecision {
    /// The type of elements.
    pub fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
        }
    }
}

impl Default for GradScaler {
    fn default() -> Self {
        let growth_interval = NonZeroU64::MIN.saturating_add(1999);
        Self { init_scale: 65536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval }
    }
}

impl GradScaler {
    fn check(&self) -> Result<(), ConfigError> {
        number("init_scale", self.init_scale, f64::from(f32::MIN_POSITIVE)..)?;
        number("growth_factor", self.growth_factor, 1.0..)?;
        number("backoff_factor", self.backoff_factor, f64::from(f32::MIN_POSITIVE)..1.0)?;
        // The step count is an f32.
        let interval = self.growth_interval.get();
        if interval <= 1 << 24 {
            return Ok(());
        }
        Err(ConfigError::new("growth_interval", format!("at most {}", 1 << 24), interval))
    }
}
