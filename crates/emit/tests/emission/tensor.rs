use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{DType, Dim, HostTensor, Scalar, Symbol};
use std::collections::HashMap;

/// A number of a kernel: floats and integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Num {
    F(f64),
    I(i64),
    /// Of what no loop stores.
    Never,
}

impl Num {
    pub fn int(self) -> i64 {
        match self {
            Self::F(x) => x as i64,
            Self::I(x) => x,
            Self::Never => 0,
        }
    }
    pub fn float(self) -> f64 {
        match self {
            Self::F(x) => x,
            Self::I(x) => x as f64,
            Self::Never => 0.0,
        }
    }
}

/// A dense tensor without padding.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Vec<Num>,
}

impl Tensor {
    pub fn ints(dtype: DType, data: &[i64]) -> Self {
        Self { dtype, shape: vec![data.len()], data: data.iter().map(|&x| Num::I(x)).collect() }
    }

    pub fn at(&self, index: &[i64]) -> Num {
        assert_eq!(index.len(), self.shape.len());
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&self.shape) {
            assert!(i >= 0 && (i as usize) < n, "load at {index:?} of {:?}", self.shape);
            at = at * n + i as usize;
        }
        self.data[at]
    }

    /// The tensor in the memory of kernels, with junk or zeros between its rows.
    pub fn padded_bytes(&self, junk: bool) -> Vec<u8> {
        let format = self.dtype.format();
        let mut bytes =
            vec![if junk { 0x71 } else { 0 }; format.bytes(format.elements(&self.shape).unwrap() as u64) as usize];
        format.to_kernels(&self.shape, self.host().bytes(), &mut bytes);
        bytes.resize(bytes.len().max(16).next_multiple_of(16), 0);
        bytes
    }

    /// The tensor as its type rounds it.
    pub fn stored(self) -> Self {
        Self::of_host(self.dtype, self.host())
    }

    fn host(&self) -> HostTensor {
        let (dtype, shape) = (self.dtype, self.shape.clone());
        let numbers = self.data.iter();
        match dtype {
            DType::I64 => HostTensor::i64(shape, &numbers.map(|number| number.int()).collect::<Vec<_>>()),
            DType::I32 | DType::U32 => {
                let bytes = numbers.flat_map(|number| (number.int() as i32).to_le_bytes()).collect();
                HostTensor::from_bytes(dtype, shape, bytes)
            }
            _ => HostTensor::from_f64(dtype, shape, &numbers.map(|number| number.float()).collect::<Vec<_>>()),
        }
        .unwrap()
    }

    pub fn from_padded(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let mut host = vec![];
        dtype.format().to_host(&shape, bytes, &mut host);
        Self::of_host(dtype, HostTensor::from_bytes(dtype, shape, host).unwrap())
    }

    /// The numbers of a host tensor; `U32` are the bits of `I32`.
    fn of_host(dtype: DType, host: HostTensor) -> Self {
        let shape = host.shape().to_vec();
        let data = match dtype.is_float() {
            true => host.to_f64().into_iter().map(Num::F).collect(),
            false if dtype == DType::I64 => host.to_i64().into_iter().map(Num::I).collect(),
            false => host.to_i64().into_iter().map(|x| Num::I((x as i32).into())).collect(),
        };
        Self { dtype, shape, data }
    }
}

pub fn extent(dim: &Dim, symbols: &HashMap<Symbol, i64>) -> usize {
    dim.evaluate(|s| symbols.get(&s).copied()).unwrap()
}

/// What expressions are evaluated with.
pub struct Point<'a> {
    pub dag: &'a Dag,
    pub operands: &'a [Tensor],
    pub sizes: &'a [i64],
    pub coords: &'a [i64],
    /// What is accumulated, by its position and the coordinates.
    pub values: &'a dyn Fn(u8, &[i64]) -> Num,
}

impl Point<'_> {
    pub fn eval(&self, id: ExprId) -> Num {
        let int = |id| self.eval(id).int();
        match self.dag.expr(id) {
            &Expr::Float(bits) => Num::F(f32::from_bits(bits).into()),
            &Expr::Int(_, x) => Num::I(x),
            &Expr::Bool(x) => Num::I(x.into()),
            &Expr::Coord(axis) => Num::I(self.coords[axis as usize]),
            &Expr::Size(n) => Num::I(self.sizes[n as usize]),
            &Expr::Value(n) => (self.values)(n, self.coords),
            Expr::Load { operand, index } => {
                let index: Vec<i64> = index.iter().map(|&i| int(i)).collect();
                self.operands[*operand as usize].at(&index)
            }
            &Expr::Sample { offsets, row } => {
                let (offsets, row) = (&self.operands[offsets as usize].data, int(row));
                let last = offsets.len() - 2;
                Num::I((0..=last).rev().find(|&b| offsets[b].int() <= row).unwrap_or(0) as i64)
            }
            &Expr::Uniform { seed, index } => Num::F(philox(int(seed) as u64, int(index) as u32)),
            Expr::Call { function, arguments } => {
                let arguments: Vec<f32> = arguments.iter().map(|&a| self.eval(a).float() as f32).collect();
                Num::F(function.definition().unwrap().evaluate(&arguments).into())
            }
            &Expr::Unary(op, a) => match self.eval(a) {
                Num::I(x) => Num::I(op.evaluate_int(self.dag.scalar(a), x)),
                x => Num::F(op.evaluate(x.float())),
            },
            &Expr::Binary(op, a, b) => match (self.eval(a), self.eval(b)) {
                (Num::I(x), Num::I(y)) => Num::I(op.evaluate_int(self.dag.scalar(a), x, y)),
                (x, y) => {
                    let result = op.evaluate(x.float(), y.float());
                    if op.is_comparison() { Num::I(result as i64) } else { Num::F(result) }
                }
            },
            &Expr::Select(c, a, b) => self.eval(if int(c) != 0 { a } else { b }),
            &Expr::Cast(to, a) => {
                let x = self.eval(a);
                match to {
                    Scalar::F32 => Num::F(x.float() as f32 as f64),
                    to => Num::I(match x {
                        Num::I(x) => to.wrap(x),
                        x => to.truncate(x.float()),
                    }),
                }
            }
        }
    }
}

fn philox(seed: u64, index: u32) -> f64 {
    let mut word = [index / 4, 0, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let p = u64::from(word[0]) * 0xD251_1F53;
        let q = u64::from(word[2]) * 0xCD9E_8D57;
        word = [(q >> 32) as u32 ^ word[1] ^ key[0], q as u32, (p >> 32) as u32 ^ word[3] ^ key[1], p as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    f64::from(word[(index % 4) as usize] >> 8) / f64::from(1 << 24)
}
