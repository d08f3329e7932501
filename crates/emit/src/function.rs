//! WGSL of scalar functions and of their component-wise `vec4` forms.

use super::EmitError;
use rewire_graph::Scalar;
use rewire_graph::pointwise::functions::Declaration;
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

/// WGSL of a function, and whether it also accepts `vec4` arguments.
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

/// The declared WGSL of a function. With `wide`, the WGSL of its `vec4` form if it has one.
fn declared(of: &Declaration, scalar: Scalar, wide: bool, (a, b): (&str, &str)) -> Result<Text, EmitError> {
    let wgsl = of.wgsl(scalar).ok_or(EmitError::Undefined { function: of.name, scalar })?;
    Ok(Text { code: wgsl.text(wide, a, b), wide: wgsl.wide.is_some() })
}

/// A float literal. WGSL has no literals for infinities and NaN, which are built from their bits.
pub(super) fn float_literal(value: f32) -> String {
    if !value.is_finite() {
        return format!("float_of_bits({:#010x}u)", value.to_bits());
    }
    // The shortest decimal that rounds to the largest float exceeds it, and browsers reject it.
    let text = if value.abs() == f32::MAX { format!("{:?}f", f64::from(value)) } else { format!("{value:?}f") };
    if value.is_sign_negative() { format!("({text})") } else { text }
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

/// A function of `a`; with `wide`, for `vec4` if supported.
pub(super) fn unary(op: UnaryOp, scalar: Scalar, a: &str, wide: bool) -> Result<Text, EmitError> {
    declared(op.declaration(), scalar, wide, (a, ""))
}

/// A float quotient of `x` by `y`, rounded once. WGSL allows an error of 2.5 units in the last place, which can change
/// the integer to which it is rounded.
pub(super) fn quotient(quotient: &str, (x, y): (&str, &str), wide: bool) -> String {
    let most = if wide { "vec4<f32>(3.0e38f)" } else { "3.0e38f" };
    format!("select({quotient} + fma(-{quotient}, {y}, {x}) / {y}, {quotient}, abs({quotient}) > {most})")
}

/// Properties of the operands of an integer function.
#[derive(Clone, Copy, Default)]
pub(super) struct OperandInfo {
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
    facts: OperandInfo,
    wide: bool,
) -> Result<Text, EmitError> {
    let by_constant = match (op, facts.divisor) {
        (BinaryOp::Div | BinaryOp::Mod, Some(divisor)) if scalar == Scalar::I32 => {
            division(op == BinaryOp::Div, a, divisor, facts.natural, wide)
        }
        _ => None,
    };
    by_constant.map_or_else(|| declared(op.declaration(), scalar, wide, (a, b)), Ok)
}

/// A quotient by a constant, or the remainder, without signed integer division.
fn division(quotient: bool, a: &str, divisor: i64, natural: bool, wide: bool) -> Option<Text> {
    let splat = |text: String, ty: &str| if wide { format!("vec4<{ty}>({text})") } else { text };
    Some(both(match divisor {
        0 => splat("0".to_owned(), "i32"),
        n if n > 0 && n & (n - 1) == 0 => match quotient {
            true => format!("{a} >> {}", splat(format!("{}u", n.trailing_zeros()), "u32")),
            false => format!("{a} & {}", splat((n - 1).to_string(), "i32")),
        },
        n if n > 0 && natural => {
            let (signed, unsigned) = if wide { ("vec4<i32>", "vec4<u32>") } else { ("i32", "u32") };
            let sign = if quotient { "/" } else { "%" };
            format!("{signed}({unsigned}({a}) {sign} {unsigned}({n}u))")
        }
        _ => return None,
    }))
}

/// A conversion of `a`.
pub(super) fn cast(from: Scalar, to: Scalar, a: &str, wide: bool) -> Text {
    use Scalar::*;
    let ty = |name: &str| if wide { format!("vec4<{name}>") } else { name.to_owned() };
    match (from, to) {
        (F32 | I32 | Bool, F32) | (Bool, I32) => both(format!("{}({a})", ty(type_of(to)))),
        (F32, I32) => both(format!("i32_from_f32{}({a})", if wide { "4" } else { "" })),
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
