use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::op::{
    Cast, Check, HostOp, JaggedJaggedMatMul, MatMul, Op, Permute, Reduce, ReduceOp, Reshape, SegmentReduce,
};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Graph, GraphError, Layout, NodeId, Type, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Splits sums over a symbolic number of rows, such as the gradients of weights and biases, into parts that are summed
/// separately and then together, if the results alone would occupy few threads. The parts depend only on the number of
/// rows, so that sums are reproducible.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialSums;

/// Threads that occupy a large GPU.
const THREADS: usize = 1 << 18;
/// Results per thread of a matmul, and threads per column of a sum.
const PRODUCT_RESULTS: usize = 16;
const COLUMN_THREADS: usize = 2;
/// Largest number of parts of matmuls and of sums.
const PRODUCT_PARTS: usize = 8;
const SUM_PARTS: usize = 64;

impl Pass for PartialSums {
    fn name(&self) -> &str {
        "partial_sums"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let live = graph.live();
        let mut summed = graph.clone();
        let mut offsets = HashMap::new();
        for id in graph.order().map_err(failed)?.into_iter().filter(|id| live.contains(id)) {
            if let Some(sum) = Sum::of(&summed, id)
                && context.permits(self.name(), graph, id)
            {
                let parts = sum.in_parts(&mut summed, &mut offsets, id).map_err(failed)?;
                summed.replace_except(Value { node: id, port: 0 }, parts, &[]);
            }
        }
        Ok(summed)
    }
}

/// A sum over a symbolic number of rows, with the number of its parts.
struct Sum {
    rows: Dim,
    parts: usize,
    form: SumKind,
}

enum SumKind {
    /// `left right`, where the rows are the columns of `left`.
    Product { left: Value, right: Value },
    /// The rows of a tensor.
    Rows(Value),
}

impl Sum {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let inputs = graph.inputs(id);
        let (rows, results, most, form) = if graph.op::<MatMul>(id).is_some() {
            let &[left, right] = inputs.as_slice() else { return None };
            let [[m, rows], [_, n]] = [matrix(graph, left)?, matrix(graph, right)?];
            let results = m.as_const()?.checked_mul(n.as_const()?)?;
            (rows, results / PRODUCT_RESULTS, PRODUCT_PARTS, SumKind::Product { left, right })
        } else {
            let is_sum = |reduce: &&Reduce| reduce.op == ReduceOp::Sum && reduce.axis == 0;
            graph.op::<Reduce>(id).filter(is_sum)?;
            let &[x] = inputs.as_slice() else { return None };
            let (rows, row) = device(graph, x)?.shape.split_first()?;
            let width = row.iter().try_fold(1usize, |all, dim| all.checked_mul(dim.as_const()?))?;
            (rows, width.saturating_mul(COLUMN_THREADS), SUM_PARTS, SumKind::Rows(x))
        };
        let is_one_column = matches!(&form, SumKind::Rows(x) if graph.ty(*x).is_none_or(|ty| ty.rank() < 2));
        let parts = THREADS.checked_div(results).unwrap_or(THREADS).min(most);
        let parts = parts.checked_ilog2().map_or(1, |log| 1 << log);
        (rows.as_const().is_none() && parts > 1 && !is_one_column).then(|| Self { rows: rows.clone(), parts, form })
    }

    /// The sum of partial sums, with the type of `id`.
    fn in_parts(
        &self,
        graph: &mut Graph,
        known: &mut HashMap<(Dim, usize), Value>,
        id: NodeId,
    ) -> Result<Value, GraphError> {
        let path = graph.node(id).map_or_else(String::new, |node| node.path.clone());
        let ty = graph.ty(Value { node: id, port: 0 }).cloned().unwrap_or_else(|| Type::device(DType::F32, vec![]));
        let offsets = match known.get(&(self.rows.clone(), self.parts)) {
            Some(&offsets) => offsets,
            None => {
                let offsets = self.offsets(graph, &path)?;
                known.insert((self.rows.clone(), self.parts), offsets);
                offsets
            }
        };
        let mut add = |op: Arc<dyn Op>, operands: &[Value]| -> Result<Value, GraphError> {
            Ok(Value { node: graph.add(op, operands, &path)?, port: 0 })
        };
        let partial = match self.form {
            SumKind::Product { left, right } => {
                let left = add(Arc::new(Permute { axes: vec![1, 0] }), &[left])?;
                add(Arc::new(JaggedJaggedMatMul), &[left, right, offsets])?
            }
            // Partial sums stay f32.
            SumKind::Rows(x) if ty.dtype != DType::F32 => {
                let x = add(Arc::new(Cast { dtype: DType::F32 }), &[x])?;
                add(Arc::new(SegmentReduce { op: ReduceOp::Sum }), &[x, offsets])?
            }
            SumKind::Rows(x) => add(Arc::new(SegmentReduce { op: ReduceOp::Sum }), &[x, offsets])?,
        };
        let whole = add(Arc::new(Reduce { op: ReduceOp::Sum, axis: 0 }), &[partial])?;
        let whole = add(Arc::new(Reshape { shape: ty.shape.clone() }), &[whole])?;
        if ty.dtype == DType::F32 { Ok(whole) } else { add(Arc::new(Cast { dtype: ty.dtype }), &[whole]) }
    }

    /// The starts of the parts; all have the same number of rows except the last ones.
    fn offsets(&self, graph: &mut Graph, path: &str) -> Result<Value, GraphError> {
        let mut add = |op: HostOp, operands: &[Value]| -> Result<Value, GraphError> {
            Ok(Value { node: graph.add(Arc::new(op), operands, path)?, port: 0 })
        };
        let rows = add(HostOp::Size(self.rows.clone()), &[])?;
        let [parts, beyond] = [self.parts, self.parts - 1].map(Dim::from);
        let (parts, beyond) = (add(HostOp::Size(parts), &[])?, add(HostOp::Size(beyond), &[])?);
        let most = add(HostOp::Binary(BinaryOp::Add), &[rows, beyond])?;
        let each = add(HostOp::Binary(BinaryOp::Div), &[most, parts])?;
        let numbers = add(HostOp::Iota((self.parts + 1).into()), &[])?;
        let starts = add(HostOp::Binary(BinaryOp::Mul), &[numbers, each])?;
        let offsets = add(HostOp::Binary(BinaryOp::Min), &[starts, rows])?;
        let check = Check::Offsets { rows: self.rows.clone() };
        add(HostOp::Check { check, argument: "parts".to_owned() }, &[offsets])
    }
}

fn device(graph: &Graph, value: Value) -> Option<&Type> {
    graph.ty(value).filter(|ty| ty.layout == Layout::Device)
}

fn matrix(graph: &Graph, value: Value) -> Option<[&Dim; 2]> {
    match device(graph, value)?.shape.as_slice() {
        [rows, columns] => Some([rows, columns]),
        _ => None,
    }
}
