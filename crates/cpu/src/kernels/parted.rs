//! Matrices whose rows are concatenated rows of operands, such as embeddings.

use super::coords::Coords;
use super::error::CpuError;
use super::lanes::ROWS;
use super::machine::{RowInputs, Vm};
use super::operand::Env;
use super::panel::fill;
use super::product::Matrix;
use super::program::Program;
use super::reductions::row_value;
use super::run::scattered;
use super::scratch::room;
use rewire_graph::DType;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph_rewrite::plan::Body;

/// Number of columns from which a separate row per part pays.
const WIDE: usize = 8;

/// The matrix of an expression that divides its column by a constant. Each quotient is a part of a row, in which loads
/// are contiguous.
#[derive(Clone, Debug)]
pub(super) struct PartedMatrix {
    program: Program,
    /// The coordinates of rows and parts.
    axes: [u8; 2],
    parts: usize,
    /// Number of columns per part.
    width: usize,
}

impl PartedMatrix {
    /// `spare` is a coordinate that the expression does not use. `None` if the division makes no further load
    /// contiguous.
    pub(super) fn new(
        body: &Body,
        id: ExprId,
        (row, column, spare): (u8, u8, u8),
        columns: usize,
    ) -> Result<Option<Self>, CpuError> {
        let dag = &body.dag;
        debug_assert!(dag.coords(id) >> spare & 1 == 0, "the spare coordinate is in use");
        let divisor = |id: ExprId| match *dag.expr(id) {
            Expr::Binary(BinaryOp::Div, a, b) if *dag.expr(a) == Expr::Coord(column) => match *dag.expr(b) {
                Expr::Int(_, divisor) => usize::try_from(divisor).ok(),
                _ => None,
            },
            _ => None,
        };
        let Some(width) = dag.reachable(&[id]).into_iter().filter_map(divisor).min() else { return Ok(None) };
        if width < WIDE || !columns.is_multiple_of(width) || dag.values(id) != 0 {
            return Ok(None);
        }
        let (mut parted, parts) = (Dag::new(), columns / width);
        let roots = parted.graft(dag, &[id], |parted, expr, _| {
            (*expr == Expr::Coord(column)).then(|| {
                let (part, size) = (parted.coord(spare, Some(parts)), parted.int(width as i64));
                let (point, start) = (parted.coord(column, Some(width)), parted.binary(BinaryOp::Mul, part, size));
                parted.binary(BinaryOp::Add, start, point)
            })
        });
        let divided = Body { dag: parted, operands: body.operands.clone(), sizes: body.sizes.clone() };
        if scattered(&divided, &roots, column) >= scattered(body, &[id], column) {
            return Ok(None);
        }
        let program = Program::compile(&divided.dag, &body.operands, &roots, column, &row_value)?;
        Ok(Some(Self { program, axes: [row, spare], parts, width }))
    }

    pub(super) fn machine<'a>(&'a self, env: &'a Env<'a>) -> Result<Vm<'a>, CpuError> {
        Vm::new(&self.program, env)
    }

    /// The rows of the matrix from `first` on.
    pub(super) fn matrix<'e>(
        &self,
        machine: &mut Vm<'_>,
        coords: &mut Coords,
        elements: &'e mut Vec<f32>,
        (first, rows): (usize, usize),
    ) -> Result<Matrix<'e>, CpuError> {
        let (all, columns, [row, spare]) = (rows * self.parts, self.parts * self.width, self.axes);
        let elements = room(elements, rows * columns)?;
        for (group, lines) in elements.chunks_mut((ROWS * self.width).max(1)).enumerate() {
            let start = group * ROWS;
            let count = ROWS.min(all - start);
            let parts = start..start + count;
            coords.put(row, 0..count, parts.clone().map(|part| (first + part / self.parts) as i32));
            coords.put(spare, 0..count, parts.map(|part| (part % self.parts) as i32));
            let inputs = RowInputs { rows: count, coords: coords.all(), ..RowInputs::default() };
            fill(machine, inputs, (0, self.width), (lines, self.width), |_| 0);
        }
        coords.set(row.into(), first);
        coords.set(spare.into(), 0);
        let out_of_range = || CpuError::Content { dtype: DType::F32, shape: vec![rows, columns] };
        Matrix::new(elements, (rows, columns), (columns, 1)).ok_or_else(out_of_range)
    }
}
