use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

/// Whole units in `seconds` (I64, at least 0), counted as the reference counts them in F32: `(seconds - seconds mod unit) / unit` with
/// difference and quotient rounded to F32, then rounded to the nearest integer, ties down.
///
/// Not every device rounds division correctly, but conversion from integers is exact to rounding. Therefore an integer of eight times the
/// quotient, whose last bit is set if there is any remainder, is converted: it rounds like the quotient itself.
pub fn rounded_units(seconds: &Tensor, unit: i64) -> Tensor {
    let multiple = (seconds - seconds.binary_scalar(BinaryOp::Mod, unit as f64)).cast(DType::F32);
    let fourfold = (multiple * 4.0).cast(DType::I64);
    let (down, up) = (&fourfold / unit as f64, (&fourfold + (unit - 1) as f64) / unit as f64);
    let quotient = (down + up).cast(DType::F32) * 0.125;
    let whole = quotient.trunc();
    let rest = &quotient - &whole;
    whole.cast(DType::I64) + rest.gt(0.5).cast(DType::I64)
}
