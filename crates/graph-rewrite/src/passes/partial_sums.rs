use crate::rules::{Attempt, Rule};
use rewire_graph::op::{Check, HostOp, JaggedJaggedMatMul, MatMul, Reduce, ReduceOp, SegmentReduce};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Graph, GraphError, Layout, NodeId, Scope, Tensor, Type, Value};

/// Splits sums over a symbolic number of rows, such as the gradients of weights and biases, into partial sums over
/// chunks of rows (split-k), if the sum has too few results to occupy a GPU. The chunks depend only on the number of
/// rows, so sums are reproducible.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialSums;

/// Threads that occupy a large GPU.
const THREADS: usize = 1 << 18;
/// Results per thread of a matmul, and threads per column of a sum.
const PRODUCT_RESULTS: usize = 16;
const COLUMN_THREADS: usize = 2;
/// Largest number of chunks of matmuls and of sums.
const PRODUCT_PARTS: usize = 8;
const SUM_PARTS: usize = 64;

impl Rule for PartialSums {
    fn name(&self) -> &str {
        "partial_sums"
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(sum) = Sum::of(graph, root) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &graph.inputs(root), |scope, operands| {
            let ty = graph.ty(Value { node: root, port: 0 })?;
            Some(sum.in_parts(scope, operands).reshape(&ty.shape).cast(ty.dtype))
        })
    }
}

/// A sum over a symbolic number of rows, with its number of chunks.
struct Sum {
    rows: Dim,
    parts: usize,
}

impl Sum {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let inputs = graph.inputs(id);
        let (rows, results, most) = if graph.op::<MatMul>(id).is_some() {
            let &[left, right] = inputs.as_slice() else { return None };
            let [[m, rows], [_, n]] = [matrix(graph, left)?, matrix(graph, right)?];
            let results = m.as_const()?.checked_mul(n.as_const()?)?;
            (rows, results / PRODUCT_RESULTS, PRODUCT_PARTS)
        } else {
            let is_sum = |reduce: &&Reduce| reduce.op == ReduceOp::Sum && reduce.axis == 0;
            graph.op::<Reduce>(id).filter(is_sum)?;
            let &[x] = inputs.as_slice() else { return None };
            let (rows, row) = device(graph, x)?.shape.split_first().filter(|(_, row)| !row.is_empty())?;
            let width = row.iter().try_fold(1usize, |all, dim| all.checked_mul(dim.as_const()?))?;
            (rows, width.saturating_mul(COLUMN_THREADS), SUM_PARTS)
        };
        let parts = THREADS.checked_div(results).unwrap_or(THREADS).min(most);
        (rows.as_const().is_none() && parts > 1).then(|| Self { rows: rows.clone(), parts })
    }

    /// The sum of the partial sums, which stay f32.
    fn in_parts(&self, scope: &Scope, operands: &[Tensor]) -> Tensor {
        let offsets = self.offsets(scope);
        let partial = match operands {
            // The summed rows are the columns of the left operand.
            [left, right] => scope.apply(JaggedJaggedMatMul, &[&left.permute(&[1, 0]), right, &offsets]),
            operands => {
                let rows: Vec<Tensor> = operands.iter().map(|x| x.cast(DType::F32)).collect();
                let read: Vec<&Tensor> = rows.iter().chain([&offsets]).collect();
                scope.apply(SegmentReduce { op: ReduceOp::Sum }, &read)
            }
        };
        partial.sum(0)
    }

    /// The offsets of the chunks, which have the same number of rows except the last ones.
    fn offsets(&self, scope: &Scope) -> Tensor {
        let rows = scope.host_size(self.rows.clone());
        let most = &rows + &scope.host_size(self.parts - 1);
        let each = most.binary(BinaryOp::Div, &scope.host_size(self.parts));
        let starts = &scope.host_iota(self.parts + 1) * &each;
        let check = Check::Offsets { rows: self.rows.clone() };
        scope.apply(HostOp::Check { check, argument: "parts".to_owned() }, &[&starts.minimum(&rows)])
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
