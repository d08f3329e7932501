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

/// A number such as `0.5`, `.5`, `+1` or `1e-3`. The reader of JSON reads it: another one would add its table of powers to libraries for
/// browsers, 10 KB.
pub(crate) fn number_of(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let or_zero = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    let (whole, fraction) = (or_zero(whole.trim_start_matches('0')), or_zero(fraction));
    serde_json::from_str(&format!("{sign}{whole}.{fraction}e{exponent}")).ok()
}
