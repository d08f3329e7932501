//! Range checks of numbers in configurations.

/// Description of the values that [`is_f32`] accepts, for error messages.
pub(crate) const F32: &str = "0 or at least 1.2e-38 and at most 3.4e38 in size, as f32 has it";
/// Description of the values that [`is_unit`] accepts, for error messages.
pub(crate) const UNIT: &str = "at least 2.8e-20 and at most 3.4e38, so that quotients fit f32";
/// The largest integer up to which f64 scalars are exact.
pub(crate) const MOST_EXACT: i64 = 1 << 53;

/// True for 0 and numbers that are normal in f32, so neither infinite nor flushed to 0 by a GPU.
pub(crate) fn is_f32(value: f64) -> bool {
    value == 0.0 || (value as f32).is_normal()
}

/// True for valid divisors of a 64-bit number of seconds: the quotient is finite in f32.
pub(crate) fn is_unit(value: f64) -> bool {
    value > 0.0 && is_f32(value) && (i64::MAX as f32 / value as f32).is_finite()
}
