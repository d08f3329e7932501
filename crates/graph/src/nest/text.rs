//! The text form of a nest: loops, operands, accumulations and outputs, one per line.

use super::{Accumulation, Axis, Body, Extent, MemorySpace, Nest, Operand, Output};
use crate::op::ReduceOp;
use crate::pointwise::{BinaryOp, Expr, ExprId, UnaryOp};
use crate::{DType, Dim, Scalar};
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

/// The nest as text. Coordinates are `i0, i1, ..`, operands `a0, a1, ..`, accumulations `v0, v1, ..`. An expression
/// with several readers has a line `t0 = ..` before the first of them.
///
/// ```
/// use rewire_graph::{DType, Dim};
/// use rewire_graph::nest::{Body, MemorySpace, Nest, Operand, Output};
/// use rewire_graph::pointwise::BinaryOp;
/// let shape: Vec<Dim> = vec![8.into(), 4.into()];
/// let operand = Operand { dtype: DType::F16, shape: shape.clone(), space: MemorySpace::Device };
/// let mut body = Body { operands: vec![operand], ..Body::default() };
/// let index = vec![body.dag.coord(0, Some(8)), body.dag.coord(1, Some(4))];
/// let x = body.dag.load(0, DType::F16, index.clone());
/// let value = body.dag.binary(BinaryOp::Mul, x, x);
/// let output = Output { target: 0, dtype: DType::F32, shape: shape.clone(), index, value, columns: None };
/// let text = Nest::map(body, shape, vec![output]).to_string();
/// assert_eq!(
///     text,
///     "for i0 in 0..8\nfor i1 in 0..4\na0: f16[8, 4]\nt0 = a0[i0, i1]\nout0: f32[8, 4] at [i0, i1] = t0 * t0\n"
/// );
/// ```
impl Display for Nest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, axis) in self.axes.iter().enumerate() {
            write_axis(f, number, axis)?;
        }
        for (number, operand) in self.body.operands.iter().enumerate() {
            write_operand(f, number, operand)?;
        }
        let mut text = Text { body: &self.body, shared: shared(self), named: HashMap::new() };
        for (number, sum) in self.accumulations.iter().enumerate() {
            text.write_shared(f, &sum.factors)?;
            text.write_sum(f, number, sum)?;
        }
        for output in &self.outputs {
            text.write_shared(f, &output.roots().collect::<Vec<_>>())?;
            text.write_output(f, output)?;
        }
        Ok(())
    }
}

fn write_axis(f: &mut Formatter<'_>, number: usize, axis: &Axis) -> fmt::Result {
    let keyword = if axis.summed { "sum" } else { "for" };
    match &axis.extent {
        Extent::Dense(dim) => writeln!(f, "{keyword} i{number} in 0..{dim}"),
        Extent::Ragged { offsets } => writeln!(f, "{keyword} i{number} in 0..a{offsets}[i0 + 1] - a{offsets}[i0]"),
    }
}

fn write_operand(f: &mut Formatter<'_>, number: usize, operand: &Operand) -> fmt::Result {
    let space = match operand.space {
        MemorySpace::Device => "",
        MemorySpace::Pooled => "pooled ",
        MemorySpace::Host => "host ",
    };
    writeln!(f, "a{number}: {space}{}", Tensor(operand.dtype, &operand.shape))
}

/// A dtype and a shape, `f16[s0, 64]`.
struct Tensor<'a>(DType, &'a [Dim]);

impl Display for Tensor<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.0)?;
        for (number, dim) in self.1.iter().enumerate() {
            write!(f, "{}{dim}", if number == 0 { "" } else { ", " })?;
        }
        write!(f, "]")
    }
}

/// For each expression, true if it is not a leaf and has several readers.
fn shared(nest: &Nest) -> Vec<bool> {
    let dag = &nest.body.dag;
    let roots = nest.roots();
    let mut reads = vec![0; dag.len()];
    let reachable = dag.reachable(&roots);
    let read = reachable.iter().flat_map(|&id| dag.expr(id).operands());
    read.chain(roots).for_each(|id| reads[id.0 as usize] += 1);
    dag.ids().map(|id| reads[id.0 as usize] > 1 && !is_leaf(dag.expr(id))).collect()
}

fn is_leaf(expr: &Expr) -> bool {
    matches!(expr, Expr::Float(_) | Expr::Int(..) | Expr::Bool(_) | Expr::Coord(_) | Expr::Size(_) | Expr::Value(_))
}

/// Writes expressions and remembers the names of those with a line.
struct Text<'a> {
    body: &'a Body,
    shared: Vec<bool>,
    named: HashMap<ExprId, usize>,
}

impl Text<'_> {
    fn write_sum(&self, f: &mut Formatter<'_>, number: usize, sum: &Accumulation) -> fmt::Result {
        let op = match sum.op {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        };
        write!(f, "v{number} = {op} over i{} of ", sum.axis)?;
        for (position, &factor) in sum.factors.iter().enumerate() {
            if position > 0 {
                write!(f, " * ")?;
            }
            self.write(f, factor, sum.factors.len() > 1)?;
        }
        match sum.dtype {
            DType::F32 => writeln!(f),
            dtype => writeln!(f, " in {dtype}"),
        }
    }

    fn write_output(&self, f: &mut Formatter<'_>, output: &Output) -> fmt::Result {
        write!(f, "out{}: {} at [", output.target, Tensor(output.dtype, &output.shape))?;
        self.write_list(f, &output.index)?;
        write!(f, "] = ")?;
        self.write(f, output.value, false)?;
        match output.columns {
            Some((start, end)) => writeln!(f, " for columns {start}..{end}"),
            None => writeln!(f),
        }
    }

    /// Writes a line for each shared expression that `roots` need and that has no line yet.
    fn write_shared(&mut self, f: &mut Formatter<'_>, roots: &[ExprId]) -> fmt::Result {
        for id in self.body.dag.reachable(roots) {
            if self.shared[id.0 as usize] && !self.named.contains_key(&id) {
                write!(f, "t{} = ", self.named.len())?;
                self.write_expr(f, id, false)?;
                writeln!(f)?;
                self.named.insert(id, self.named.len());
            }
        }
        Ok(())
    }

    fn write(&self, f: &mut Formatter<'_>, id: ExprId, nested: bool) -> fmt::Result {
        match self.named.get(&id) {
            Some(number) => write!(f, "t{number}"),
            None => self.write_expr(f, id, nested),
        }
    }

    fn write_list(&self, f: &mut Formatter<'_>, ids: &[ExprId]) -> fmt::Result {
        for (number, &id) in ids.iter().enumerate() {
            write!(f, "{}", if number == 0 { "" } else { ", " })?;
            self.write(f, id, false)?;
        }
        Ok(())
    }

    fn write_call(&self, f: &mut Formatter<'_>, name: &str, arguments: &[ExprId]) -> fmt::Result {
        write!(f, "{name}(")?;
        self.write_list(f, arguments)?;
        write!(f, ")")
    }

    /// Writes an expression, in parentheses if it is an infix operation and `nested`.
    fn write_expr(&self, f: &mut Formatter<'_>, id: ExprId, nested: bool) -> fmt::Result {
        match self.body.dag.expr(id) {
            Expr::Float(bits) => write!(f, "{:?}", f32::from_bits(*bits)),
            Expr::Int(Scalar::I64, value) => write!(f, "{value}i64"),
            Expr::Int(_, value) => write!(f, "{value}"),
            Expr::Bool(value) => write!(f, "{value}"),
            Expr::Coord(axis) => write!(f, "i{axis}"),
            Expr::Size(position) => match self.body.sizes.get(usize::from(*position)) {
                Some(dim) => write!(f, "({dim})"),
                None => write!(f, "size{position}"),
            },
            Expr::Value(number) => write!(f, "v{number}"),
            Expr::Load { operand, index } => {
                write!(f, "a{operand}[")?;
                self.write_list(f, index)?;
                write!(f, "]")
            }
            Expr::Sample { offsets, row } => {
                write!(f, "sample(a{offsets}, ")?;
                self.write(f, *row, false)?;
                write!(f, ")")
            }
            Expr::Uniform { seed, index } => self.write_call(f, "uniform", &[*seed, *index]),
            Expr::Call { function, arguments } => self.write_call(f, function.name(), arguments),
            Expr::Unary(UnaryOp::Neg, a) => {
                write!(f, "-")?;
                self.write(f, *a, true)
            }
            Expr::Unary(op, a) => self.write_call(f, op.name(), &[*a]),
            Expr::Binary(op, a, b) => match symbol(*op) {
                Some(symbol) => self.write_infix(f, symbol, [*a, *b], nested),
                None => self.write_call(f, op.name(), &[*a, *b]),
            },
            Expr::Select(condition, a, b) => self.write_call(f, "select", &[*condition, *a, *b]),
            Expr::Cast(scalar, a) => self.write_call(f, scalar_name(*scalar), &[*a]),
        }
    }

    fn write_infix(&self, f: &mut Formatter<'_>, symbol: &str, [a, b]: [ExprId; 2], nested: bool) -> fmt::Result {
        write!(f, "{}", if nested { "(" } else { "" })?;
        self.write(f, a, true)?;
        write!(f, " {symbol} ")?;
        self.write(f, b, true)?;
        write!(f, "{}", if nested { ")" } else { "" })
    }
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::F32 => "f32",
        Scalar::I32 => "i32",
        Scalar::I64 => "i64",
        Scalar::Bool => "bool",
    }
}

/// The infix symbol of an operation; `None` for functions.
fn symbol(op: BinaryOp) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Mod => "%",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::Pow | BinaryOp::Min | BinaryOp::Max => return None,
    })
}
