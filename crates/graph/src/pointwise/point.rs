use super::dag::{Dag, Expr, ExprId};
use crate::{Number, Scalar};

/// A point at which expressions are evaluated, in f64 and 64-bit integers: the values that they read there.
pub trait Point {
    /// The coordinate along an axis.
    fn coord(&self, axis: u8) -> i64;

    /// A size of the body.
    fn size(&self, position: u16) -> i64;

    /// The result of an accumulation.
    fn accumulated(&self, position: u8) -> Number;

    /// An element of an operand.
    fn load(&self, operand: u16, index: &[i64], scalar: Scalar) -> Number;

    /// The sample that contains a row, by the operand with the offsets of samples.
    fn sample(&self, offsets: u16, row: i64) -> i64;

    /// The value of an expression; `of` returns those of its operands.
    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Number) -> Number
    where
        Self: Sized,
    {
        let integer = |id: ExprId| of(id).integer();
        match dag.expr(id) {
            &Expr::Float(bits) => Number::Float(f32::from_bits(bits).into()),
            &Expr::Int(_, value) => Number::Integer(value),
            &Expr::Bool(value) => Number::Integer(value.into()),
            &Expr::Coord(axis) => Number::Integer(self.coord(axis)),
            &Expr::Size(position) => Number::Integer(self.size(position)),
            &Expr::Value(position) => self.accumulated(position),
            Expr::Load { operand, index } => {
                let index: Vec<i64> = index.iter().map(|&id| integer(id)).collect();
                self.load(*operand, &index, dag.scalar(id))
            }
            &Expr::Sample { offsets, row } => Number::Integer(self.sample(offsets, integer(row))),
            &Expr::Uniform { seed, index } => Number::Float(uniform(integer(seed) as u64, integer(index) as u32)),
            Expr::Call { function, arguments } => {
                let arguments: Vec<f32> = arguments.iter().map(|&id| of(id).float() as f32).collect();
                let definition = function.definition();
                Number::Float(definition.map_or(f64::NAN, |definition| definition.evaluate(&arguments).into()))
            }
            &Expr::Unary(op, a) => match dag.scalar(a) {
                Scalar::F32 => Number::Float(in_range(op.evaluate(of(a).float()))),
                scalar => Number::Integer(op.evaluate_int(scalar, integer(a))),
            },
            &Expr::Binary(op, a, b) => match (dag.scalar(a), op.is_comparison()) {
                (Scalar::F32, false) => Number::Float(in_range(op.evaluate(of(a).float(), of(b).float()))),
                (Scalar::F32, true) => Number::Integer(op.evaluate(of(a).float(), of(b).float()) as i64),
                (scalar, _) => Number::Integer(op.evaluate_int(scalar, integer(a), integer(b))),
            },
            &Expr::Select(condition, a, b) => of(if integer(condition) != 0 { a } else { b }),
            &Expr::Cast(scalar, a) => match (scalar, of(a)) {
                (Scalar::F32, Number::Integer(a)) => Number::Float((a as f32).into()),
                (Scalar::F32, a) => a,
                (scalar, Number::Float(a)) => Number::Integer(scalar.truncate(a)),
                (scalar, Number::Integer(a)) => Number::Integer(scalar.wrap(a)),
            },
        }
    }

    /// The value of an expression, from its operands by recursion.
    fn evaluate(&self, dag: &Dag, id: ExprId) -> Number
    where
        Self: Sized,
    {
        self.value(dag, id, |operand| self.evaluate(dag, operand))
    }
}

/// Rounds results beyond the range of f32 to infinity.
pub(crate) fn in_range(value: f64) -> f64 {
    let single = value as f32;
    if single.is_infinite() { single.into() } else { value }
}

/// Word `index % 4` of Philox4x32-10 (Salmon et al., 2011), its upper 24 bits as a fraction.
fn uniform(seed: u64, index: u32) -> f64 {
    let mut counter = [index / 4, 0, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    f64::from(counter[(index % 4) as usize] >> 8) / f64::from(1 << 24)
}

#[test]
fn philox_meets_published_vectors() {
    // The first word of counter 0 under key 0 in the Random123 distribution is 6627e8d5.
    assert!((uniform(0, 0) - f64::from(0x6627_e8d5u32 >> 8) / 16_777_216.0).abs() < f64::EPSILON);
}
