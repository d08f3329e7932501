use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

/// The whole units in `seconds`, I64 from 0, as the reference counts those of F32 timestamps: `(seconds - seconds mod unit) / unit`, with
/// the difference and the quotient rounded to F32, then down, or up if the fraction is above one half.
///
/// Division is not correctly rounded on every device, but conversion of integers is. An integer with eight times the quotient, whose
/// last bit is set for any remainder, rounds like the quotient itself.
pub fn rounded_units(seconds: &Tensor, unit: i64) -> Tensor {
    let multiple = (seconds - seconds.binary_scalar(BinaryOp::Mod, unit as f64)).cast(DType::F32);
    let fourfold = (multiple * 4.0).cast(DType::I64);
    let (down, up) = (&fourfold / unit as f64, (&fourfold + (unit - 1) as f64) / unit as f64);
    let quotient = (down + up).cast(DType::F32) * 0.125;
    let whole = quotient.trunc();
    let rest = &quotient - &whole;
    whole.cast(DType::I64) + rest.gt(0.5).cast(DType::I64)
}
