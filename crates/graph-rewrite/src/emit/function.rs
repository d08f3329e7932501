//! WGSL of scalar functions and of their component-wise forms on four lanes.

use super::EmitError;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, UnaryOp};

/// The WGSL type of a scalar.
pub(super) fn type_of(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::F32 => "f32",
        Scalar::I32 => "i32",
        Scalar::I64 => "vec2<u32>",
        Scalar::Bool => "bool",
    }
}

/// Text of a function, and whether it holds for `vec4` arguments as well.
pub(super) struct Text {
    pub code: String,
    pub wide: bool,
}

fn both(code: String) -> Text {
    Text { code, wide: true }
}

fn scalar_only(code: String) -> Text {
    Text { code, wide: false }
}

/// A float literal. Infinities and NaN have none in WGSL, and are made of their bits.
pub(super) fn float_literal(value: f32) -> String {
    if !value.is_finite() {
        return format!("float_of_bits({:#010x}u)", value.to_bits());
    }
    if value.is_sign_negative() { format!("({value:?}f)") } else { format!("{value:?}f") }
}

/// An integer literal of type `scalar`.
pub(super) fn int_literal(scalar: Scalar, value: i64) -> String {
    if scalar == Scalar::I64 {
        let bits = value as u64;
        return format!("vec2<u32>({}u, {}u)", bits as u32, (bits >> 32) as u32);
    }
    match value as i32 {
        i32::MIN => "i32(-2147483648)".to_owned(),
        value if value < 0 => format!("({value})"),
        value => value.to_string(),
    }
}

/// A function of `a`; with `wide`, of four lanes where the text allows it.
pub(super) fn unary(op: UnaryOp, scalar: Scalar, a: &str, wide: bool) -> Result<Text, EmitError> {
    use UnaryOp::*;
    if !op.accepts(scalar) {
        return Err(EmitError::Undefined { function: op.name(), scalar });
    }
    let suffix = suffix(wide);
    let zero = if wide { "vec4<f32>(0.0f)" } else { "0.0f" };
    Ok(match (op, scalar) {
        (Neg, Scalar::I64) => scalar_only(format!("i64_neg({a})")),
        (Abs, Scalar::I64) => scalar_only(format!("i64_abs({a})")),
        (Neg, _) => both(format!("-{a}")),
        (Abs, _) => both(format!("abs({a})")),
        (Exp, _) => both(format!("exponential{suffix}({a})")),
        (Log, _) => scalar_only(format!("logarithm({a})")),
        (Sqrt, _) => both(format!("sqrt({a})")),
        (Rsqrt, _) => both(format!("inverseSqrt({a})")),
        (Sigmoid, _) => both(format!("sigmoid{suffix}({a})")),
        (Silu, _) => both(format!("silu{suffix}({a})")),
        (Relu, _) => both(format!("larger{suffix}({zero}, {a})")),
        (Tanh, _) => scalar_only(format!("tanh_of({a})")),
        (Erf, _) => scalar_only(format!("erf({a})")),
        (Sin, _) => scalar_only(format!("sine({a})")),
        (Cos, _) => scalar_only(format!("cosine({a})")),
        (Floor, _) => both(format!("floor({a})")),
        (Ceil, _) => both(format!("ceil({a})")),
        (Trunc, _) => both(format!("trunc({a})")),
        (Round, _) => both(format!("round({a})")),
        (Not, _) => both(format!("!{a}")),
    })
}

/// What is known of the operands of an integer function.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    /// Neither operand is negative.
    pub natural: bool,
    /// The right operand, if it is a constant.
    pub divisor: Option<i64>,
}

/// A function of `a` and `b`, both of type `scalar`.
pub(super) fn binary(
    op: BinaryOp,
    scalar: Scalar,
    (a, b): (&str, &str),
    facts: Facts,
    wide: bool,
) -> Result<Text, EmitError> {
    if !op.accepts(scalar) {
        return Err(EmitError::Undefined { function: op.name(), scalar });
    }
    Ok(match scalar {
        Scalar::I64 => scalar_only(int64(op, a, b)),
        Scalar::I32 if matches!(op, BinaryOp::Div | BinaryOp::Mod) => division(op, a, b, facts, wide),
        Scalar::F32 => float(op, a, b, wide),
        _ => common(op, scalar, a, b),
    })
}

/// The end of the name of a library function that takes four lanes.
fn suffix(wide: bool) -> &'static str {
    if wide { "4" } else { "" }
}

fn float(op: BinaryOp, a: &str, b: &str, wide: bool) -> Text {
    match op {
        BinaryOp::Mod => scalar_only(format!("float_mod({a}, {b})")),
        BinaryOp::Min => both(format!("smaller{}({a}, {b})", suffix(wide))),
        BinaryOp::Max => both(format!("larger{}({a}, {b})", suffix(wide))),
        // What naga makes of `!=` is false for NaN.
        BinaryOp::Ne => both(format!("!({a} == {b})")),
        _ => common(op, Scalar::F32, a, b),
    }
}

fn common(op: BinaryOp, scalar: Scalar, a: &str, b: &str) -> Text {
    use BinaryOp::*;
    match op {
        Add => both(format!("{a} + {b}")),
        Sub => both(format!("{a} - {b}")),
        Mul => both(format!("{a} * {b}")),
        Div => both(format!("{a} / {b}")),
        Mod => scalar_only(format!("floor_mod({a}, {b})")),
        Pow => scalar_only(format!("power({a}, {b})")),
        Min => both(format!("min({a}, {b})")),
        Max => both(format!("max({a}, {b})")),
        Eq => both(format!("{a} == {b}")),
        Ne => both(format!("{a} != {b}")),
        Lt => both(format!("{a} < {b}")),
        Le => both(format!("{a} <= {b}")),
        Gt => both(format!("{a} > {b}")),
        Ge => both(format!("{a} >= {b}")),
        And if scalar == Scalar::Bool => both(format!("{a} & {b}")),
        Or if scalar == Scalar::Bool => both(format!("{a} | {b}")),
        And => both(format!("{a} & {b}")),
        Or => both(format!("{a} | {b}")),
    }
}

fn division(op: BinaryOp, a: &str, b: &str, facts: Facts, wide: bool) -> Text {
    let quotient = op == BinaryOp::Div;
    let splat = |text: String, ty: &str| if wide { format!("vec4<{ty}>({text})") } else { text };
    match facts.divisor {
        Some(0) => both(splat("0".to_owned(), "i32")),
        Some(n) if n > 0 && n & (n - 1) == 0 => {
            let (shift, mask) = (format!("{}u", n.trailing_zeros()), (n - 1).to_string());
            match quotient {
                true => both(format!("{a} >> {}", splat(shift, "u32"))),
                false => both(format!("{a} & {}", splat(mask, "i32"))),
            }
        }
        Some(n) if n > 0 && facts.natural => {
            let (signed, unsigned) = if wide { ("vec4<i32>", "vec4<u32>") } else { ("i32", "u32") };
            let sign = if quotient { "/" } else { "%" };
            both(format!("{signed}({unsigned}({a}) {sign} {unsigned}({n}u))"))
        }
        _ => scalar_only(format!("{}({a}, {b})", if quotient { "floor_div" } else { "floor_mod" })),
    }
}

fn int64(op: BinaryOp, a: &str, b: &str) -> String {
    use BinaryOp::*;
    match op {
        Add => format!("i64_add({a}, {b})"),
        Sub => format!("i64_sub({a}, {b})"),
        Mul | Pow => format!("i64_mul({a}, {b})"),
        Div => format!("i64_floor_div({a}, {b})"),
        Mod => format!("i64_floor_mod({a}, {b})"),
        Min => format!("select({b}, {a}, i64_lt({a}, {b}))"),
        Max => format!("select({a}, {b}, i64_lt({a}, {b}))"),
        Eq => format!("all({a} == {b})"),
        Ne => format!("any({a} != {b})"),
        Lt => format!("i64_lt({a}, {b})"),
        Le => format!("!i64_lt({b}, {a})"),
        Gt => format!("i64_lt({b}, {a})"),
        Ge => format!("!i64_lt({a}, {b})"),
        And => format!("{a} & {b}"),
        Or => format!("{a} | {b}"),
    }
}

/// A conversion of `a`.
pub(super) fn cast(from: Scalar, to: Scalar, a: &str, wide: bool) -> Text {
    use Scalar::*;
    let ty = |name: &str| if wide { format!("vec4<{name}>") } else { name.to_owned() };
    match (from, to) {
        (F32 | I32 | Bool, F32) | (Bool, I32) => both(format!("{}({a})", ty(type_of(to)))),
        (F32, I32) => both(format!("i32_from_f32{}({a})", suffix(wide))),
        (F32, Bool) => both(format!("!({a} == {}(0.0f))", ty("f32"))),
        (I32, Bool) => both(format!("{a} != {}(0)", ty("i32"))),
        (I64, F32) => scalar_only(format!("i64_to_f32({a})")),
        (F32, I64) => scalar_only(format!("i64_from_f32({a})")),
        (I64, I32) => scalar_only(format!("bitcast<i32>({a}.x)")),
        (I32, I64) => scalar_only(format!("i64_from_i32({a})")),
        (Bool, I64) => scalar_only(format!("vec2<u32>(u32({a}), 0u)")),
        (I64, Bool) => scalar_only(format!("any({a} != vec2<u32>(0u))")),
        (I32, I32) | (I64, I64) | (Bool, Bool) => both(a.to_owned()),
    }
}
