//! Evaluates one expression at one point, recursively, in f64.

use super::Data;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, UnaryOp};
use rewire_graph::{HostTensor, Scalar};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NaiveValue {
    Float(f64),
    Int(i64),
}

impl NaiveValue {
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Float(x) => x,
            Self::Int(x) => x as f64,
        }
    }

    pub(super) fn int(self) -> i64 {
        match self {
            Self::Float(x) => x as i64,
            Self::Int(x) => x,
        }
    }
}

pub(super) struct Point<'a> {
    pub dag: &'a Dag,
    pub data: &'a [Data],
    pub coords: &'a [i64],
    pub values: &'a [f64],
}

fn wrap(scalar: Scalar, value: i64) -> NaiveValue {
    NaiveValue::Int(scalar.wrap(value))
}

impl Point<'_> {
    pub(super) fn evaluate(&self, id: ExprId) -> NaiveValue {
        let dag = self.dag;
        let scalar = dag.scalar(id);
        match *dag.expr(id) {
            Expr::Float(bits) => NaiveValue::Float(f32::from_bits(bits).into()),
            Expr::Int(_, value) => wrap(scalar, value),
            Expr::Bool(value) => NaiveValue::Int(value.into()),
            Expr::Coord(axis) => NaiveValue::Int(self.coords[usize::from(axis)]),
            Expr::Size(_) => NaiveValue::Int(0),
            Expr::Value(position) => NaiveValue::Float(self.values[usize::from(position)]),
            Expr::Load { operand, ref index } => {
                let index: Vec<i64> = index.iter().map(|&i| self.evaluate(i).int()).collect();
                self.load(operand, &index, scalar)
            }
            Expr::Sample { offsets, row } => {
                let row = self.evaluate(row).int();
                let Data::Host(offsets) = &self.data[usize::from(offsets)] else { panic!("offsets are on the host") };
                NaiveValue::Int((0..offsets.len()).rev().find(|&b| offsets[b] <= row).unwrap_or(0) as i64)
            }
            Expr::Uniform { seed, index } => {
                NaiveValue::Float(philox(self.evaluate(seed).int() as u64, self.evaluate(index).int() as u32))
            }
            Expr::Call { ref function, ref arguments } => {
                let arguments: Vec<f32> = arguments.iter().map(|&a| self.evaluate(a).float() as f32).collect();
                NaiveValue::Float(function.definition().expect("a CPU form").evaluate(&arguments).into())
            }
            Expr::Unary(op, a) => self.unary(op, scalar, self.evaluate(a)),
            Expr::Binary(op, a, b) => self.binary(op, dag.scalar(a), self.evaluate(a), self.evaluate(b)),
            Expr::Select(c, a, b) => self.evaluate(if self.evaluate(c).int() != 0 { a } else { b }),
            Expr::Cast(to, a) => match (to, self.evaluate(a)) {
                (Scalar::F32, value) => NaiveValue::Float(f64::from(value.float() as f32)),
                (to, NaiveValue::Float(x)) => NaiveValue::Int(to.truncate(x)),
                (to, NaiveValue::Int(x)) => wrap(to, x),
            },
        }
    }

    fn load(&self, operand: u16, index: &[i64], scalar: Scalar) -> NaiveValue {
        let (tensor, shape) = match &self.data[usize::from(operand)] {
            Data::Host(values) => return NaiveValue::Int(values[index.first().copied().unwrap_or(0) as usize]),
            Data::Device(tensor) => (tensor, tensor.shape()),
        };
        let mut at = 0;
        for (&i, &n) in index.iter().zip(shape) {
            assert!((0..n as i64).contains(&i), "index {index:?} of shape {shape:?}");
            at = at * n + i as usize;
        }
        let size = tensor.bytes().len() / tensor.len();
        let bytes = tensor.bytes()[at * size..][..size].to_vec();
        let element = HostTensor::from_bytes(tensor.dtype(), vec![], bytes).unwrap();
        match scalar {
            Scalar::F32 => NaiveValue::Float(element.to_f64()[0]),
            _ => wrap(scalar, element.to_i64()[0]),
        }
    }

    fn unary(&self, op: UnaryOp, scalar: Scalar, a: NaiveValue) -> NaiveValue {
        match scalar {
            Scalar::F32 => NaiveValue::Float(op.evaluate(a.float())),
            _ => NaiveValue::Int(op.evaluate_int(scalar, a.int())),
        }
    }

    fn binary(&self, op: BinaryOp, read: Scalar, a: NaiveValue, b: NaiveValue) -> NaiveValue {
        match read {
            Scalar::F32 if op.is_comparison() => NaiveValue::Int(op.evaluate(a.float(), b.float()) as i64),
            Scalar::F32 => NaiveValue::Float(op.evaluate(a.float(), b.float())),
            _ => NaiveValue::Int(op.evaluate_int(read, a.int(), b.int())),
        }
    }
}

/// Philox4x32-10 as in its paper.
fn philox(seed: u64, index: u32) -> f64 {
    let mut counter = [index / 4, 0, 0, 0];
    let (mut k0, mut k1) = (seed as u32, (seed >> 32) as u32);
    for round in 0..10 {
        if round > 0 {
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        let p0 = 0xD251_1F53u64 * u64::from(counter[0]);
        let p1 = 0xCD9E_8D57u64 * u64::from(counter[2]);
        counter = [(p1 >> 32) as u32 ^ counter[1] ^ k0, p1 as u32, (p0 >> 32) as u32 ^ counter[3] ^ k1, p0 as u32];
    }
    f64::from(counter[index as usize % 4] >> 8) / 16_777_216.0
}

#[test]
fn philox_meets_published_vectors() {
    // The first word of counter 0 under key 0 in the Random123 distribution is 6627e8d5.
    assert_eq!(philox(0, 0), f64::from(0x6627_e8d5u32 >> 8) / 16_777_216.0);
}
