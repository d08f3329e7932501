//! Parses the operator names of nodes.

use super::schema::{Argument, Graph, Node, SymInt};
use crate::Unsupported;
use crate::aten::{self, Lowering};

/// Control flow operators, which the frame lowers itself.
const HIGHER_ORDER: [&str; 3] =
    ["higher_order.cond", "higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"];

/// An operator: namespace and name, and overload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name without the suffix of in-place operators.
    pub base: String,
    pub overload: String,
    /// True if the operator changes its first argument.
    pub is_in_place: bool,
}

impl Target {
    pub fn of(text: &str) -> Self {
        let name = text.strip_prefix("torch.ops.").unwrap_or(text);
        let mut parts = name.splitn(3, '.');
        let (space, op) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let overload = parts.next().filter(|overload| *overload != "default").unwrap_or_default().to_owned();
        let is_in_place = space == "aten" && op.ends_with('_') && !op.starts_with("__");
        let op = if is_in_place { op.strip_suffix('_').unwrap_or(op) } else { op };
        Self { base: format!("{space}.{op}"), overload, is_in_place }
    }

    pub fn is_higher_order(&self) -> bool {
        HIGHER_ORDER.contains(&self.base.as_str())
    }

    /// The lowering of the operator; `None` if there is none.
    pub fn lowering(&self) -> Option<Lowering> {
        // Overloads that write to given tensors, or that name axes, are not supported.
        let is_named = ["imname", "names"].iter().any(|part| self.overload.contains(part));
        if is_named || self.overload.split('_').any(|part| part == "out") {
            return None;
        }
        let full = format!("{}.{}", self.base, self.overload);
        aten::lowering(&full).or_else(|| aten::lowering(&self.base))
    }
}

/// The module that a node belongs to.
pub(crate) fn module(node: &Node) -> &str {
    let stack = node.metadata.get("nn_module_stack").map_or("", String::as_str);
    stack.rsplit(';').next().and_then(|entry| entry.split(',').nth(1)).unwrap_or_default()
}

/// Collects all operators of a graph that have no lowering.
pub(super) fn check(graph: &Graph, unsupported: &mut Unsupported) {
    for node in &graph.nodes {
        let target = Target::of(&node.target);
        if !target.is_higher_order() && target.lowering().is_none() {
            unsupported.add(&node.target, "no lowering", module(node));
        }
        if target.base.starts_with("aten.as_strided") && !reads_in_order(graph, node) {
            unsupported.add(&node.target, "a tensor whose elements are not in order", module(node));
        }
        for argument in &node.inputs {
            if let Argument::AsGraph(inner) = &argument.arg {
                check(&inner.graph, unsupported);
            }
        }
    }
}

/// True if the first operand is contiguous and starts at the beginning of its storage.
fn reads_in_order(graph: &Graph, node: &Node) -> bool {
    let Some(Argument::AsTensor(operand)) = node.inputs.first().map(|argument| &argument.arg) else { return false };
    let Some(meta) = graph.tensor_values.get(&operand.name) else { return false };
    let mut expected = Some(1i64);
    for (size, stride) in meta.sizes.iter().zip(&meta.strides).rev() {
        if *stride != expected.map_or(SymInt::AsInt(-1), SymInt::AsInt) {
            return false;
        }
        // Only the outermost extent may be symbolic.
        expected = match size {
            SymInt::AsInt(size) => expected.and_then(|stride| stride.checked_mul(*size)),
            SymInt::AsExpr(_) => None,
        };
    }
    meta.storage_offset == SymInt::AsInt(0)
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn targets_have_a_name_and_an_overload() {
        let of = |text: &str| {
            let target = Target::of(text);
            (target.base, target.overload, target.is_in_place)
        };
        assert_eq!(of("torch.ops.aten.add_.Tensor"), ("aten.add".to_owned(), "Tensor".to_owned(), true));
        assert_eq!(of("torch.ops.aten.__and__.Tensor"), ("aten.__and__".to_owned(), "Tensor".to_owned(), false));
        assert_eq!(of("torch.ops.aten.relu.default"), ("aten.relu".to_owned(), String::new(), false));
        assert_eq!(of("_operator.mul"), ("_operator.mul".to_owned(), String::new(), false));
    }

    #[test]
    fn results_in_given_tensors_have_no_lowering() {
        assert!(Target::of("torch.ops.aten.add.out").lowering().is_none());
        assert!(Target::of("torch.ops.aten.to.dtype_layout").lowering().is_some());
    }

    #[test]
    fn no_operator_has_two_lowerings() {
        let mut names: Vec<&str> = crate::aten::operators().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
