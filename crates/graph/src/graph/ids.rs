use super::{Graph, Node, Value};
use crate::op::{Op, Role};
use crate::{DType, Dim, GraphError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// An input whose elements are all row ids of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ids {
    /// The name of the input.
    pub input: String,
    /// The rows of the table.
    pub rows: Dim,
}

impl Graph {
    /// The inputs whose elements are all row ids of tables. If such an input is on the host, a run checks its range
    /// first.
    ///
    /// Rewriting a graph does not change them.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let ids = scope.input("ids", DType::I64, &[scope.size("rows")]);
    /// let table = scope.parameter("table", DType::F32, &[100.into(), 8.into()]);
    /// let graph = scope.finish(&[("y", table.gather(&ids))])?;
    /// assert_eq!((&*graph.id_inputs()[0].input, graph.id_inputs()[0].rows.as_const()), ("ids", Some(100)));
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    pub fn id_inputs(&self) -> &[Ids] {
        &self.id_inputs
    }

    /// Finds the inputs whose elements are all row ids of tables, for a graph that was not traced: integers that reach
    /// a lookup through nothing but data movement and type conversions. An input does not count if something is
    /// computed from it first, including clamping, or if only a part of it is looked up.
    ///
    /// # Errors
    /// [`GraphError`] if the graph has a cycle.
    pub fn find_id_inputs(&mut self) -> Result<(), GraphError> {
        // For each value, the inputs of which it holds all elements, unchanged.
        let mut held: HashMap<Value, BTreeSet<String>> = HashMap::new();
        let mut found = Vec::new();
        for id in self.order()? {
            let Some(node) = self.node(id) else { continue };
            let (op, inputs) = (node.op.as_ref(), self.inputs(id));
            let names = |value: &Value| held.get(value).into_iter().flatten().cloned();
            if let [first, index, ..] = inputs.as_slice()
                && let Some(rows) = self.ty(*first).and_then(|ty| op.indexed_rows(ty))
            {
                found.extend(names(index).map(|input| Ids { input, rows: rows.clone() }));
            }
            if !holds_integers(node) {
                continue;
            }
            let names: BTreeSet<String> = match op.role() {
                Role::Input(input) if self.states().contains(&input.name) => continue,
                Role::Input(input) => BTreeSet::from([input.name.clone()]),
                _ if keeps_all(op) => inputs.iter().flat_map(names).collect(),
                _ => continue,
            };
            held.insert(Value { node: id, port: 0 }, names);
        }
        self.id_inputs = smallest(found);
        Ok(())
    }
}

/// True if the result holds all elements of the operands.
fn keeps_all(op: &dyn Op) -> bool {
    op.movement().is_some_and(|movement| movement.is_complete) || op.is_conversion()
}

fn holds_integers(node: &Node) -> bool {
    node.types.first().is_some_and(|ty| matches!(ty.dtype, DType::I32 | DType::I64 | DType::U32))
}

/// For every input, the smallest of the tables with constant numbers of rows, and every other table once.
fn smallest(found: Vec<Ids>) -> Vec<Ids> {
    let mut least: Vec<Ids> = Vec::new();
    for ids in found {
        let fixed = |ids: &Ids| ids.rows.as_const();
        let same = |known: &&mut Ids| {
            known.input == ids.input && (known.rows == ids.rows || fixed(known).is_some() && fixed(&ids).is_some())
        };
        match least.iter_mut().find(same) {
            Some(known) if fixed(&ids) < fixed(known) => *known = ids,
            Some(_) => {}
            None => least.push(ids),
        }
    }
    least
}
