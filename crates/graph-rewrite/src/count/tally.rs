use super::{Count, Domain, Sizes};
use rewire_graph::nest::{Body, MemorySpace, Nest, Output};
use rewire_graph::pointwise::functions::FUNCTION;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{Ordered, Scalar};
use std::collections::{BTreeMap, BTreeSet};

/// Cost in operations of a random number.
const UNIFORM: u64 = 40;

/// Accumulates the traffic and operations of a kernel.
pub(crate) struct Tally<'a> {
    body: &'a Body,
    sizes: &'a Sizes,
    /// Bytes read, by operand and load.
    loads: BTreeMap<(u16, ExprId), u64>,
    count: Count,
}

impl<'a> Tally<'a> {
    /// An empty tally of a nest.
    pub fn new(nest: &'a Nest, sizes: &'a Sizes) -> Self {
        Self { body: &nest.body, sizes, loads: BTreeMap::new(), count: Count::default() }
    }

    /// Adds the cost of `roots` at all points of a domain.
    pub fn add(&mut self, roots: &[ExprId], domain: &Domain) {
        let (body, dag) = (self.body, &self.body.dag);
        let points = domain.all();
        for id in dag.reachable(roots) {
            if let Expr::Load { operand, .. } = *dag.expr(id)
                && let Some(operand_type) = body.operands.get(usize::from(operand))
            {
                let bytes = operand_type.dtype.format().bytes(domain.points(dag.coords(id)));
                let known = self.loads.entry((operand, id)).or_insert(0);
                let again = if *known > 0 { domain.times } else { domain.times.saturating_sub(1) };
                self.count.reread = self.count.reread.saturating_add(bytes.saturating_mul(again));
                *known = bytes.max(*known);
            }
            if dag.coords(id) != 0 || dag.values(id) != 0 {
                let times = points.saturating_mul(domain.times);
                self.operations(times.saturating_mul(own_operations(dag, id)));
            }
        }
    }

    /// Adds operations that are not in expressions.
    pub fn operations(&mut self, more: u64) {
        self.count.scalar = self.count.scalar.saturating_add(more);
    }

    /// Adds outputs that are written at all points of a domain with this number of columns.
    pub fn write(&mut self, outputs: &[Output], domain: &Domain, columns: u64) {
        self.add(&outputs.iter().flat_map(Output::roots).collect::<Vec<_>>(), domain);
        let columns = columns.max(1);
        for output in outputs {
            let own = output.columns.map_or(columns, |(start, end)| (end - start) as u64);
            let bytes = output.dtype.format().bytes((domain.all() / columns).saturating_mul(own));
            self.count.written = self.count.written.saturating_add(bytes);
        }
    }

    /// Adds operations of products. Matrix units compute them if their operands are f16.
    pub fn products(&mut self, more: u64, f16: bool) {
        self.count.products = self.count.products.saturating_add(more);
        if f16 {
            self.count.half_products = self.count.half_products.saturating_add(more);
        }
    }

    /// The count. Bytes read from an operand are limited to its size.
    pub fn finish(self) -> Count {
        let size = |operand: u16| match self.body.operands.get(usize::from(operand)) {
            Some(operand) if operand.space != MemorySpace::Host => {
                operand.dtype.format().bytes(self.sizes.product(&operand.shape))
            }
            _ => 0,
        };
        let operands: BTreeSet<u16> = self.loads.keys().map(|(operand, _)| *operand).ordered_set();
        let read = |operand: u16| {
            let loads = self.loads.range((operand, ExprId(0))..=(operand, ExprId(u32::MAX)));
            loads.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add).min(size(operand))
        };
        Count { read: operands.into_iter().map(read).fold(0, u64::saturating_add), ..self.count }
    }
}

/// Operations of an expression, with every subexpression counted once.
pub fn operations(dag: &Dag, root: ExprId) -> u64 {
    dag.reachable(&[root]).into_iter().map(|id| own_operations(dag, id)).fold(0, u64::saturating_add)
}

/// Operations of an expression without its operands. Indices, conversions and bools are free.
fn own_operations(dag: &Dag, id: ExprId) -> u64 {
    let arithmetic = |scalar: Scalar| u64::from(matches!(scalar, Scalar::F32 | Scalar::I64));
    match *dag.expr(id) {
        Expr::Unary(op, a) => op.declaration().cost * arithmetic(dag.scalar(a)),
        Expr::Binary(op, a, _) if dag.scalar(a) == Scalar::F32 => op.declaration().cost,
        Expr::Call { .. } => FUNCTION,
        Expr::Binary(_, a, _) => arithmetic(dag.scalar(a)),
        Expr::Select(_, a, _) => arithmetic(dag.scalar(a)),
        Expr::Uniform { .. } => UNIFORM,
        _ => 0,
    }
}
