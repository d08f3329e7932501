//! Numbers of configurations, in the types that kernels compute with.

/// Values that [`is_f32`] takes, for messages.
pub(crate) const F32: &str = "0 or at least 1.2e-38 and at most 3.4e38 in size, as f32 has it";
/// Values that [`is_unit`] takes, for messages.
pub(crate) const UNIT: &str = "at least 2.8e-20 and at most 3.4e38, so that f32 holds what it divides";
/// The largest integer up to which scalars are exact.
pub(crate) const MOST_EXACT: i64 = 1 << 53;

/// True for 0, and for what f32 holds with all its digits: no infinity, and nothing so small that a GPU takes it for 0.
pub(crate) fn is_f32(value: f64) -> bool {
    value == 0.0 || (value as f32).is_normal()
}

/// True for what a 64-bit number of seconds is divided by: no quotient is infinite.
pub(crate) fn is_unit(value: f64) -> bool {
    value > 0.0 && is_f32(value) && (i64::MAX as f32 / value as f32).is_finite()
}
