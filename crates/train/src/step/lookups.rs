//! Scatter-adds with an index that depends only on inputs: before a run the host sorts the index, and the device computes
//! segmented sums.

use super::StepError;
use rewire_graph::op::{Cast, Dropout, IndexAdd, ReduceOp, Role};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Graph, GraphError, Ragged, Scope, Tensor, Value};

/// An index that the host sorts.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// Prefix of the names of its inputs.
    pub name: String,
    /// The tensors that are concatenated to the index, as values of the differentiated graph.
    pub parts: Vec<Value>,
    /// Number of rows that the index refers to.
    pub table_rows: usize,
    /// True if sums have one row for each distinct row of the index; false for all rows of the table.
    pub is_sparse: bool,
    /// True if a step reads a tensor of the distinct rows, at [positions](Lookup::place) that the host computes.
    pub is_placed: bool,
    /// The last row of the table, if it is not trained.
    pub untrained: Option<usize>,
}

impl Lookup {
    /// The name of the output with part `part` of the index.
    pub fn part(&self, part: usize) -> String {
        format!("{}.{part}", self.name)
    }

    /// The name of the input with the positions of a part's rows among the distinct rows.
    pub fn place(&self, part: usize) -> String {
        format!("{}.place.{part}", self.name)
    }

    /// The name of the input with the positions of the index, sorted by row.
    pub fn order(&self) -> String {
        format!("{}.order", self.name)
    }

    /// The name of the input with the number of positions per row.
    pub fn lengths(&self) -> String {
        format!("{}.lengths", self.name)
    }

    /// The name of the input with the distinct rows.
    pub fn rows(&self) -> String {
        format!("{}.rows", self.name)
    }

    /// The number of trained rows among ascending ones.
    pub fn trained(&self, rows: &[u32]) -> usize {
        rows.partition_point(|row| self.untrained.is_none_or(|untrained| (*row as usize) < untrained))
    }

    /// Declares the input of distinct rows, `[count]`.
    pub fn traced_rows(&self, scope: &Scope, count: &Dim) -> Tensor {
        scope.input(&self.rows(), DType::U32, [count])
    }

    /// The sums of `values` by row; `values` have one entry per position of the index.
    pub fn sum(&self, scope: &Scope, values: &[Tensor]) -> Tensor {
        let rows: Dim = match self.is_sparse {
            true => self.traced_rows(scope, &scope.size(&format!("rows of {}", self.name))).dim(0),
            false => self.table_rows.into(),
        };
        let segments: Ragged = scope.lengths(&self.lengths(), rows);
        let order = scope.input(&self.order(), DType::U32, [&segments.total]);
        let values = scope.concat(&values.iter().collect::<Vec<_>>(), 0);
        values.gather(&order).segment_reduce(ReduceOp::Sum, &segments)
    }
}

/// The operands of a scatter-add: values `[L, ..]` and the index `[L]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addends {
    pub values: Value,
    pub index: Value,
}

/// The scatter-adds whose sum is a gradient; `None` if it has other terms.
pub(crate) fn addends(graph: &Graph, gradient: Value) -> Option<Vec<Addends>> {
    let (mut stack, mut found) = (vec![gradient], vec![]);
    while let Some(value) = stack.pop() {
        let (id, inputs) = (value.node, graph.inputs(value.node));
        if graph.op::<IndexAdd>(id).is_some() {
            found.push(Addends { values: *inputs.first()?, index: *inputs.get(1)? });
        } else if graph.op::<Cast>(id).is_some() || graph.op::<BinaryOp>(id) == Some(&BinaryOp::Add) {
            stack.extend(inputs.into_iter().rev());
        } else {
            return None;
        }
    }
    Some(found)
}

/// True if an index depends only on inputs of a run.
pub(crate) fn is_known_to_host(graph: &Graph, index: Value) -> Result<bool, GraphError> {
    let part = graph.part_for(&[("index".to_owned(), index)])?;
    let is_unknown = |id| match part.role(id) {
        Some(Role::Parameter(_)) => true,
        Some(Role::Input(input)) => graph.states().contains(&input.name),
        _ => part.op::<Dropout>(id).is_some(),
    };
    Ok(!part.ids().any(is_unknown))
}

/// The values of addends with all axes of the index merged into one; `None` if several of them are dynamic sizes.
pub(crate) fn flattened(scope: &Scope, addends: &Addends) -> Option<Tensor> {
    let (values, index) = (scope.value(addends.values), scope.value(addends.index));
    let count = index.shape().iter().try_fold(Dim::from(1), |count, extent| count.product(extent))?;
    let inner = values.shape().iter().skip(index.rank()).cloned();
    Some(values.reshape(std::iter::once(count).chain(inner).collect::<Vec<_>>()))
}

/// The number of rows of a table.
pub(crate) fn table_rows(graph: &Graph, name: &str, table: Value) -> Result<usize, StepError> {
    let rows = graph.ty(table).and_then(|ty| ty.shape.first()).and_then(Dim::as_const);
    rows.ok_or_else(|| StepError::Table { name: name.to_owned(), reason: "has no rows".to_owned() })
}
