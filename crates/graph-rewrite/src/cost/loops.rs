use crate::count::Sizes;
use rewire_graph::op::{Accumulated, Accumulator, Elements, ReduceOp, Span};
use rewire_graph::pointwise::{Dag, ExprId};
use rewire_graph::{Dim, Layout, Scalar, Type};

/// Matmul operations and other operations that an operator needs for its result.
pub(super) fn operations(sum: &dyn Accumulated, operands: &[&Type], result: &Type, sizes: &Sizes) -> (u64, u64) {
    let results = match (result.layout, result.shape.as_slice()) {
        (Layout::Scores, [_, heads, rows, keys]) => {
            sizes.pairs(sizes.extent(rows), sizes.extent(keys)).saturating_mul(sizes.extent(heads))
        }
        _ => sizes.product(&result.shape),
    };
    let mut loops =
        Loops { dag: Dag::new(), operands, sizes, rank: result.rank(), repeats: results, products: 0, scalar: 0 };
    let coords: Vec<ExprId> = (0..result.rank() as u8).map(|axis| loops.dag.coord(axis, None)).collect();
    sum.element(&mut loops, &coords);
    (loops.products, loops.scalar)
}

/// Counts the operations in the loops of a definition.
struct Loops<'a> {
    dag: Dag,
    operands: &'a [&'a Type],
    sizes: &'a Sizes,
    /// Axes of the result.
    rank: usize,
    /// How often the current loop runs.
    repeats: u64,
    products: u64,
    scalar: u64,
}

impl Elements for Loops<'_> {
    fn dag(&mut self) -> &mut Dag {
        &mut self.dag
    }

    fn operands(&self) -> usize {
        self.operands.len()
    }

    fn ty(&self, operand: usize) -> &Type {
        self.operands[operand]
    }

    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId {
        let dtype = self.operands[operand].dtype;
        self.dag.load(operand as u16, dtype, index.to_vec())
    }

    fn sample(&mut self, _: usize, row: ExprId) -> ExprId {
        row
    }

    fn size(&mut self, dim: &Dim) -> ExprId {
        self.dag.constant(Scalar::I32, self.sizes.extent(dim) as i64)
    }
}

impl Accumulator for Loops<'_> {
    fn accumulate(
        &mut self,
        _: ReduceOp,
        span: Span,
        point: &[ExprId],
        factors: &mut dyn FnMut(&mut dyn Accumulator, ExprId) -> Vec<ExprId>,
    ) -> ExprId {
        let extent = match &span {
            Span::Dense(dim) => self.sizes.extent(dim),
            Span::Ragged { .. } => self.sizes.sample(),
        };
        let outer = self.repeats;
        // A loop over fewer axes than the result runs once for all elements along the other axes.
        self.repeats = if point.len() < self.rank { outer } else { outer.saturating_mul(extent) };
        let repeats = self.repeats;
        let at = self.dag.coord(self.rank as u8, None);
        match factors(self, at).len() {
            0 | 1 => self.scalar = self.scalar.saturating_add(repeats),
            _ => self.products = self.products.saturating_add(repeats.saturating_mul(2)),
        }
        self.repeats = outer;
        self.dag.float(0.0)
    }
}
