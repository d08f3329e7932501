//! Random expressions: each emits a valid shader, and integer expressions have the same results as plain loops.

use crate::build::{Build, combined, noise, output, own, sym};
use crate::check;
use proptest::prelude::*;
use rewire_emit::emit;
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Number, Scalar};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{Axis, Computation, Nest, ReduceOp};
use std::collections::HashSet;

const STORED: [DType; 7] = [DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U32, DType::Bool];
const ROWS: usize = 5;

/// The choice of the next expression: an operator and three operands, modulo their numbers.
type Choices = (u8, u8, u8, u8);

struct Program {
    b: Build,
    nodes: Vec<ExprId>,
    floats: bool,
}

impl Program {
    fn new(rows: &Dim, width: &Dim, floats: bool) -> Self {
        let mut b = Build::default();
        let (i, j) = (b.coord(0, rows), b.coord(1, width));
        let mut nodes = vec![i, j];
        for dtype in STORED {
            let shape = vec![rows.clone(), width.clone()];
            let operand = if matches!(dtype, DType::I32 | DType::F16 | DType::BF16) {
                b.pooled(dtype, shape)
            } else {
                b.operand(dtype, shape)
            };
            if floats || !dtype.is_float() {
                nodes.push(b.load(operand, &[i, j]));
            }
        }
        let offsets = b.host(vec![4usize.into()]);
        nodes.push(b.body.dag.sample(offsets, i));
        for value in [7, i64::from(i32::MIN), i64::from(i32::MAX)] {
            nodes.push(b.body.dag.int(value));
        }
        for value in [-7, i64::MIN, (1 << 53) + 1] {
            nodes.push(b.body.dag.constant(Scalar::I64, value));
        }
        nodes.push(b.body.dag.constant(Scalar::Bool, 1));
        Self { b, nodes, floats }
    }

    /// An earlier expression of a type.
    fn pick(&mut self, scalar: Scalar, choice: u8) -> ExprId {
        let dag = &mut self.b.body.dag;
        let fitting: Vec<_> = self.nodes.iter().copied().filter(|&id| dag.scalar(id) == scalar).collect();
        match fitting.len() {
            0 => dag.constant(scalar, i64::from(choice)),
            n => fitting[choice as usize % n],
        }
    }

    fn step(&mut self, width: &Dim, (kind, a, b, c): Choices) {
        use BinaryOp::*;
        const BINARY: [BinaryOp; 16] = [Add, Sub, Mul, Div, Mod, Pow, Min, Max, Eq, Ne, Lt, Le, Gt, Ge, And, Or];
        use UnaryOp::*;
        const UNARY: [UnaryOp; 18] =
            [Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sigmoid, Silu, Relu, Tanh, Erf, Sin, Cos, Floor, Ceil, Trunc, Round, Not];
        let types: &[Scalar] = match self.floats {
            true => &[Scalar::F32, Scalar::I32, Scalar::I64, Scalar::Bool],
            false => &[Scalar::I32, Scalar::I64, Scalar::Bool],
        };
        let scalar = types[c as usize % types.len()];
        let x = self.pick(scalar, a);
        let new = match kind % 6 {
            0 | 1 => {
                let y = self.pick(scalar, b);
                let op = BINARY[(kind / 6) as usize % BINARY.len()];
                if !op.accepts(scalar) {
                    return;
                }
                self.b.bin(op, x, y)
            }
            2 => {
                let op = UNARY[(kind / 6) as usize % UNARY.len()];
                if !op.accepts(scalar) {
                    return;
                }
                self.b.body.dag.unary(op, x)
            }
            3 => {
                let to = types[b as usize % types.len()];
                self.b.body.dag.cast(to, x)
            }
            4 => {
                let (condition, y) = (self.pick(Scalar::Bool, c), self.pick(scalar, b));
                self.b.body.dag.select(condition, x, y)
            }
            _ => self.gather(width, a, b),
        };
        self.nodes.push(new);
    }

    /// A load at a computed column, modulo the width.
    fn gather(&mut self, width: &Dim, a: u8, b: u8) -> ExprId {
        let extent = match width.as_const() {
            Some(n) => self.b.body.dag.int(n as i64),
            None => {
                self.b.body.sizes.push(width.clone());
                self.b.body.dag.size((self.b.body.sizes.len() - 1) as u16)
            }
        };
        let index = self.pick(Scalar::I32, a);
        let index = self.b.bin(BinaryOp::Mod, index, extent);
        let stored = if self.floats { usize::from(b) % 6 } else { 2 + usize::from(b) % 4 };
        self.b.load(stored as u16, &[self.nodes[0], index])
    }
}

fn stored(scalar: Scalar) -> DType {
    match scalar {
        Scalar::F32 => DType::F16,
        Scalar::I32 => DType::I32,
        Scalar::I64 => DType::I64,
        Scalar::Bool => DType::Bool,
    }
}

fn kernel(steps: &[Choices], width: &Dim, floats: bool, reduce: bool) -> Computation {
    let rows = Dim::from(ROWS);
    let mut program = Program::new(&rows, width, floats);
    steps.iter().for_each(|&step| program.step(width, step));
    let (i, j) = (program.nodes[0], program.nodes[1]);
    let last: Vec<_> = program.nodes.iter().rev().take(3).copied().collect();
    let shape = vec![rows.clone(), width.clone()];
    let outputs = last
        .iter()
        .map(|&value| output(stored(program.b.body.dag.scalar(value)), shape.clone(), vec![i, j], value))
        .collect();
    if !reduce {
        return Computation::of(Nest::map(program.b.body, shape, own(outputs))).unwrap();
    }
    let value = program.b.body.dag.cast(Scalar::F32, last[0]);
    let accumulations = [ReduceOp::Sum, ReduceOp::Max].map(|op| combined(op, 1, value)).to_vec();
    let outputs = own(outputs);
    Computation::of(Nest { body: program.b.body, axes: Axis::points(shape), accumulations, outputs }).unwrap()
}

/// Number of tensors that a kernel reads and writes.
fn buffers(kernel: &Computation) -> usize {
    let (dag, roots) = (&kernel.body().dag, kernel.nest().map(Nest::roots).unwrap_or_default());
    let read = dag.reachable(&roots).into_iter().filter_map(|id| match dag.expr(id) {
        Expr::Load { operand, .. } => Some(*operand),
        Expr::Sample { offsets, .. } => Some(*offsets),
        _ => None,
    });
    read.collect::<HashSet<_>>().len() + kernel.written().len()
}

fn steps() -> impl Strategy<Value = Vec<Choices>> {
    proptest::collection::vec(any::<Choices>(), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_expressions_are_valid(steps in steps(), width in 0usize..10, f16: bool, reduce: bool) {
        let width = if width == 0 { sym(0) } else { width.into() };
        let kernel = kernel(&steps, &width, true, reduce);
        let target = Target { f16, storage_buffers: 16, ..Target::BASELINE };
        if let Err(error) = emit(&kernel, &target, &Tuning::default()) {
            return Err(TestCaseError::fail(error.to_string()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_integers_are_what_loops_compute(steps in steps(), width in 1usize..10, symbolic: bool) {
        let dim = if symbolic { sym(0) } else { width.into() };
        let kernel = kernel(&steps, &dim, false, false);
        // The kernel must fit in the storage buffers of the baseline.
        prop_assume!(buffers(&kernel) <= Target::BASELINE.storage_buffers as usize);
        let mut data: Vec<_> = STORED.iter().map(|&dtype| noise(dtype, &[ROWS, width], 5)).collect();
        for (n, value) in data[3].data.iter_mut().enumerate() {
            *value = Number::Integer([i32::MIN, i32::MAX, -1, 0, 46_341, -65_536, 1 << 30, 12][n * 7 % 8].into());
        }
        data.push(crate::tensor::Tensor::ints(DType::I32, &[0, 2, 2, 9]));
        check("integers", &kernel, &data, &[(0, width as i64)]);
    }
}
