//! Builds kernels and data by hand.

use crate::tensor::Tensor;
use rewire_graph::pointwise::{BinaryOp, ExprId};
use rewire_graph::{DType, Dim, Number, Symbol};
use rewire_graph_rewrite::plan::{Accumulation, Body, MemorySpace, Operand, Output, ReduceOp};

pub fn sym(n: u32) -> Dim {
    Dim::symbol(Symbol(n))
}

/// A body under construction.
#[derive(Default)]
pub struct Build {
    pub body: Body,
}

impl Build {
    pub fn operand(&mut self, dtype: DType, shape: Vec<Dim>) -> u16 {
        self.body.operands.push(Operand { dtype, shape, space: MemorySpace::Device });
        (self.body.operands.len() - 1) as u16
    }

    /// An operand that shares its buffer with other pooled operands of its type.
    pub fn pooled(&mut self, dtype: DType, shape: Vec<Dim>) -> u16 {
        self.body.operands.push(Operand { dtype, shape, space: MemorySpace::Pooled });
        (self.body.operands.len() - 1) as u16
    }

    pub fn host(&mut self, shape: Vec<Dim>) -> u16 {
        self.body.operands.push(Operand { dtype: DType::I32, shape, space: MemorySpace::Host });
        (self.body.operands.len() - 1) as u16
    }

    pub fn coord(&mut self, axis: u8, dim: &Dim) -> ExprId {
        self.body.dag.coord(axis, dim.as_const())
    }

    pub fn load(&mut self, operand: u16, index: &[ExprId]) -> ExprId {
        let dtype = self.body.operands[operand as usize].dtype;
        self.body.dag.load(operand, dtype, index.to_vec())
    }

    pub fn bin(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        self.body.dag.binary(op, a, b)
    }

    pub fn float(&mut self, x: f32) -> ExprId {
        self.body.dag.float(x)
    }
}

pub fn output(dtype: DType, shape: Vec<Dim>, index: Vec<ExprId>, value: ExprId) -> Output {
    Output { target: 0, dtype, shape, index, value, columns: None }
}

/// Reproducible values around 0.
pub fn noise(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let data = (0..shape.iter().product::<usize>())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            match dtype {
                DType::I8 => Number::Float((state >> 56) as f64 - 128.0),
                _ if dtype.is_float() => Number::Float((state >> 40) as f64 / f64::from(1 << 24) * 4.0 - 2.0),
                DType::I64 => Number::Integer((state as i64) >> (state & 63)),
                DType::Bool => Number::Integer((state >> 33 & 1) as i64),
                _ => Number::Integer((state >> 33) as i64 % 1000 - 500),
            }
        })
        .collect();
    Tensor { dtype, shape: shape.to_vec(), data }.stored()
}

pub fn indices(dtype: DType, shape: &[usize], below: i64, seed: u64) -> Tensor {
    let mut tensor = noise(DType::I32, shape, seed);
    tensor.dtype = dtype;
    tensor.data.iter_mut().for_each(|x| *x = Number::Integer(x.integer().rem_euclid(below)));
    tensor
}

/// A reduction of a value over an axis.
pub fn combined(op: ReduceOp, axis: u8, value: ExprId) -> Accumulation {
    Accumulation { op, axis, factors: vec![value], dtype: DType::F32 }
}

/// A sum of products over an axis.
pub fn contracted(axis: u8, left: ExprId, right: ExprId) -> Accumulation {
    Accumulation { op: ReduceOp::Sum, axis, factors: vec![left, right], dtype: DType::F32 }
}

/// Outputs that are stored to separate tensors.
pub fn own(mut outputs: Vec<Output>) -> Vec<Output> {
    (0..).zip(&mut outputs).for_each(|(n, output)| output.target = n);
    outputs
}
