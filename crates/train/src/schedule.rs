//! Learning rate schedules.

use crate::config::{ConfigError, number};
use serde::Deserialize;
use std::f64::consts::PI;
use std::num::NonZeroU64;

/// The learning rate of every step.
///
/// ```
/// use rewire_train::{ExponentialDecay, Schedule};
/// let decay = ExponentialDecay {
///     decay_size: 2.try_into()?,
///     decay_factor: 0.5,
///     staircase: true,
///     warmup_learning_rate: 0.0,
///     warmup_size: 2,
///     min_learning_rate: 0.3,
///     by_epoch: false,
/// };
/// let schedule = Schedule::ExponentialDecay(decay);
/// let rates: Vec<f64> = (0..8).map(|step| schedule.rate(1.0, step)).collect();
/// assert_eq!(rates, [0.0, 0.5, 1.0, 1.0, 0.5, 0.5, 0.3, 0.3]);
/// # Ok::<(), std::num::TryFromIntError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Schedule {
    /// A constant rate, the optimizer's.
    #[serde(rename = "constant_learning_rate")]
    Constant {},
    /// Exponential decay.
    #[serde(rename = "exponential_decay_learning_rate")]
    ExponentialDecay(ExponentialDecay),
    /// A list of rates.
    #[serde(rename = "manual_step_learning_rate")]
    ManualStep(ManualStep),
    /// Half a cosine period.
    #[serde(rename = "cosine_annealing_learning_rate")]
    CosineAnnealing(CosineAnnealing),
    /// Repeated half cosine periods.
    #[serde(rename = "cosine_annealing_warm_restarts_learning_rate")]
    CosineAnnealingWarmRestarts(CosineAnnealingWarmRestarts),
}

/// Below step `warmup_size` the rate rises linearly from `warmup_learning_rate` to the base; then it is `max(base
/// decay_factor^p, min_learning_rate)` with `p = (step - warmup_size) / decay_size`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExponentialDecay {
    /// Steps per decay factor.
    pub decay_size: NonZeroU64,
    /// The decay factor.
    #[serde(default = "decay_factor")]
    pub decay_factor: f64,
    /// True rounds `p` down.
    #[serde(default = "is_staircase")]
    pub staircase: bool,
    /// The initial rate of the warm-up.
    #[serde(default)]
    pub warmup_learning_rate: f64,
    /// Steps of the warm-up.
    #[serde(default)]
    pub warmup_size: u64,
    /// The smallest rate after the warm-up.
    #[serde(default)]
    pub min_learning_rate: f64,
    /// True counts epochs instead of steps.
    #[serde(default)]
    pub by_epoch: bool,
}

/// The rate is `learning_rates[i - 1]`, with `i` the number of `schedule_sizes` below the step. If `i` is 0, it is the base.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManualStep {
    /// Steps after which the rate changes, ascending.
    pub schedule_sizes: Vec<u64>,
    /// The rates, one for each of `schedule_sizes`.
    pub learning_rates: Vec<f64>,
    /// True interpolates linearly from the base to the first of `learning_rates`.
    #[serde(default)]
    pub warmup: bool,
    /// True counts epochs instead of steps.
    #[serde(default)]
    pub by_epoch: bool,
}

/// After a warm-up as in [`ExponentialDecay`], the rate is `m + (base - m) (1 + cos(pi t / T_max)) / 2`, with `m` the
/// `min_learning_rate` and `t` the steps since the warm-up, at most `T_max`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineAnnealing {
    /// Steps until the rate is minimal.
    #[serde(rename = "T_max")]
    pub t_max: NonZeroU64,
    /// The smallest rate.
    #[serde(default)]
    pub min_learning_rate: f64,
    /// The initial rate of the warm-up.
    #[serde(default)]
    pub warmup_learning_rate: f64,
    /// Steps of the warm-up.
    #[serde(default)]
    pub warmup_size: u64,
    /// True counts epochs instead of steps.
    #[serde(default)]
    pub by_epoch: bool,
}

/// [`CosineAnnealing`] with restarts: periods of `T_0`, `T_0 T_mult`, `T_0 T_mult^2`, .. steps, each starting at the base.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineAnnealingWarmRestarts {
    /// Steps of the first period.
    #[serde(rename = "T_0")]
    pub t_0: NonZeroU64,
    /// Ratio of successive periods.
    #[serde(rename = "T_mult", default = "one")]
    pub t_mult: NonZeroU64,
    /// The smallest rate.
    #[serde(default)]
    pub min_learning_rate: f64,
    /// The initial rate of the warm-up.
    #[serde(default)]
    pub warmup_learning_rate: f64,
    /// Steps of the warm-up.
    #[serde(default)]
    pub warmup_size: u64,
    /// True counts epochs instead of steps.
    #[serde(default)]
    pub by_epoch: bool,
}

fn decay_factor() -> f64 {
    0.95
}

fn is_staircase() -> bool {
    true
}

fn one() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant {}
    }
}

impl Schedule {
    /// The learning rate of a step, counted from 0, for an optimizer with the rate `base`.
    pub fn rate(&self, base: f64, step: u64) -> f64 {
        match self {
            Self::Constant {} => base,
            Self::ExponentialDecay(schedule) => schedule.rate(base, step),
            Self::ManualStep(schedule) => schedule.rate(base, step),
            Self::CosineAnnealing(schedule) => schedule.rate(base, step),
            Self::CosineAnnealingWarmRestarts(schedule) => schedule.rate(base, step),
        }
    }

    /// True if the rate depends on epochs instead of steps.
    pub fn is_by_epoch(&self) -> bool {
        match self {
            Self::Constant {} => false,
            Self::ExponentialDecay(schedule) => schedule.by_epoch,
            Self::ManualStep(schedule) => schedule.by_epoch,
            Self::CosineAnnealing(schedule) => schedule.by_epoch,
            Self::CosineAnnealingWarmRestarts(schedule) => schedule.by_epoch,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let rates = |warmup: f64, min: f64| {
            number("warmup_learning_rate", warmup, 0.0..).and_then(|()| number("min_learning_rate", min, 0.0..))
        };
        let (key, checked) = match self {
            Self::Constant {} => return Ok(()),
            Self::ExponentialDecay(schedule) => (
                "exponential_decay_learning_rate",
                number("decay_factor", schedule.decay_factor, 0.0..)
                    .and_then(|()| rates(schedule.warmup_learning_rate, schedule.min_learning_rate)),
            ),
            Self::ManualStep(schedule) => ("manual_step_learning_rate", schedule.check()),
            Self::CosineAnnealing(schedule) => {
                ("cosine_annealing_learning_rate", rates(schedule.warmup_learning_rate, schedule.min_learning_rate))
            }
            Self::CosineAnnealingWarmRestarts(schedule) => (
                "cosine_annealing_warm_restarts_learning_rate",
                rates(schedule.warmup_learning_rate, schedule.min_learning_rate),
            ),
        };
        checked.map_err(|error| error.within(key))
    }
}

/// The number of steps since the warm-up; `Err` with the rate during the warm-up.
fn warm_up(base: f64, step: u64, first: f64, size: u64) -> Result<u64, f64> {
    step.checked_sub(size).ok_or((base - first) * (step as f64 / size as f64) + first)
}

/// The rate at step `at` of half a cosine period of `period` steps.
fn cosine(base: f64, min: f64, at: u64, period: u64) -> f64 {
    min + (base - min) * (0.5 * (1.0 + (PI * at as f64 / period as f64).cos()))
}

impl ExponentialDecay {
    fn rate(&self, base: f64, step: u64) -> f64 {
        match warm_up(base, step, self.warmup_learning_rate, self.warmup_size) {
            Err(rate) => rate,
            Ok(since) => {
                let exact = since as f64 / self.decay_size.get() as f64;
                let exponent = if self.staircase { exact.floor() } else { exact };
                (base * self.decay_factor.powf(exponent)).max(self.min_learning_rate)
            }
        }
    }
}

impl ManualStep {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let passed = self.schedule_sizes.iter().filter(|&&size| size < step).count();
        let listed = passed.checked_sub(1).and_then(|last| self.learning_rates.get(last));
        match (listed, self.schedule_sizes.first(), self.learning_rates.first()) {
            (Some(&rate), ..) => rate,
            (None, Some(&size), Some(&first)) if self.warmup => (first - base) * (step as f64 / size as f64) + base,
            _ => base,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let (sizes, rates) = (&self.schedule_sizes, &self.learning_rates);
        if sizes.len() != rates.len() {
            let expected = format!("{} numbers, one for each of `schedule_sizes`", sizes.len());
            return Err(ConfigError::new("learning_rates", expected, rates.len()));
        }
        let is_warm = !self.warmup || sizes.first().is_some_and(|&first| first > 0);
        if !sizes.is_sorted() || !is_warm {
            let expected = if is_warm { "ascending" } else { "above 0, because the warm-up ends at the first one" };
            return Err(ConfigError::new("schedule_sizes", expected, format!("{sizes:?}")));
        }
        rates.iter().try_for_each(|&rate| number("learning_rates", rate, 0.0..))
    }
}

impl CosineAnnealing {
    fn rate(&self, base: f64, step: u64) -> f64 {
        match warm_up(base, step, self.warmup_learning_rate, self.warmup_size) {
            Err(rate) => rate,
            Ok(since) => cosine(base, self.min_learning_rate, since.min(self.t_max.get()), self.t_max.get()),
        }
    }
}

impl CosineAnnealingWarmRestarts {
    fn rate(&self, base: f64, step: u64) -> f64 {
        match warm_up(base, step, self.warmup_learning_rate, self.warmup_size) {
            Err(rate) => rate,
            Ok(since) => {
                let (at, period) = self.period(since);
                cosine(base, self.min_learning_rate, at, period)
            }
        }
    }

    /// The position of a step in its period, and the length of the period.
    fn period(&self, since: u64) -> (u64, u64) {
        let (mut at, mut period) = (since, self.t_0.get());
        if self.t_mult == NonZeroU64::MIN {
            return (at % period, period);
        }
        while at >= period {
            at -= period;
            period = period.saturating_mul(self.t_mult.get());
        }
        (at, period)
    }
}
