use super::{Graph, Node, NodeId};
use crate::op::{Fused, Input, Parameter, Role};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Attributes of more characters are left out of drawings.
const MAX_ATTRIBUTES: usize = 48;

/// What is written beside the nodes of a drawing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// By node.
    pub nodes: HashMap<NodeId, String>,
    /// Of the whole graph, a line each.
    pub graph: Vec<String>,
}

impl Graph {
    /// One line a node, producers first: `%3 = matmul(%1, %2) : f32[s0, 64]  # module.path`.
    ///
    /// Fused operators show their body indented below. Nodes are numbered by order, so equal graphs
    /// have equal texts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text, "");
        text
    }

    /// [`Graph::text`] for people, with remarks: what computes first, then inputs with what the host computes of them, then
    /// parameters and constants, short. The numbers are those of the text.
    ///
    /// ```
    /// use rewire_graph::{DType, Remarks, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[4.into()]);
    /// let graph = scope.finish(&[("y", x.silu())])?;
    /// let mut remarks = Remarks::default();
    /// remarks.nodes.insert(graph.outputs()[0].1.node, "cheap".to_owned());
    /// assert!(graph.text_with(&remarks).starts_with("%1 = silu(%0) : f32[4]  ; cheap\nreturn y = %1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn text_with(&self, remarks: &Remarks) -> String {
        let order = self.order().unwrap_or_default();
        let is_held = |id: &NodeId| matches!(self.role(*id), Some(Role::Parameter(_) | Role::Constant(_)));
        let is_before = |id: &NodeId| matches!(self.role(*id), Some(Role::Input(_) | Role::Host(_)));
        let (held, rest): (Vec<NodeId>, Vec<NodeId>) = order.iter().partition(|id| is_held(id));
        let (before, computed): (Vec<NodeId>, Vec<NodeId>) = rest.into_iter().partition(is_before);
        let numbers = Numbers::of(&order);
        let mut text: String = remarks.graph.iter().map(|remark| format!("; {remark}\n")).collect();
        self.write_nodes(&mut text, &computed, &numbers, "", remarks);
        self.write_outputs(&mut text, &numbers, "");
        text.push_str("\n; inputs, and what the host computes of them\n");
        self.write_nodes(&mut text, &before, &numbers, "", remarks);
        text.push_str("\n; parameters and constants\n");
        for id in held {
            let Some(node) = self.node(id) else { continue };
            let name = match node.op.role() {
                Role::Parameter(Parameter { name, .. }) => name.clone(),
                _ => format!("constant{}", self.attributes(id)),
            };
            let _ = writeln!(text, "%{} = {name} : {}", numbers.of_node(id), joined(&node.types));
        }
        text
    }

    fn write_text(&self, text: &mut String, indent: &str) {
        let order = self.order().unwrap_or_default();
        let numbers = Numbers::of(&order);
        self.write_nodes(text, &order, &numbers, indent, &Remarks::default());
        self.write_outputs(text, &numbers, indent);
    }

    fn write_nodes(&self, text: &mut String, ids: &[NodeId], numbers: &Numbers, indent: &str, remarks: &Remarks) {
        for &id in ids {
            let Some(node) = self.node(id) else { continue };
            let operands: Vec<String> = self.inputs(id).iter().map(|value| numbers.of_value(value)).collect();
            let (op, attributes) = (node.op.name(), self.attributes(id));
            let path = if node.path.is_empty() { String::new() } else { format!("  # {}", node.path) };
            let again = if node.is_recomputed { "  ; not kept" } else { "" };
            let remark = remarks.nodes.get(&id).map_or_else(String::new, |remark| format!("  ; {remark}"));
            let _ = writeln!(
                text,
                "{indent}%{} = {op}{attributes}({}) : {}{path}{again}{remark}",
                numbers.of_node(id),
                operands.join(", "),
                joined(&node.types)
            );
            if let Role::Fused(fused) = node.op.role() {
                fused.body.write_text(text, &format!("{indent}    "));
            }
        }
    }

    fn write_outputs(&self, text: &mut String, numbers: &Numbers, indent: &str) {
        for (name, value) in self.outputs() {
            let _ = writeln!(text, "{indent}return {name} = {}", numbers.of_value(value));
        }
    }

    pub(super) fn attributes(&self, id: NodeId) -> String {
        let Some(node) = self.node(id) else { return String::new() };
        match node.op.role() {
            Role::Constant(constant) if constant.tensor.len() == 1 => {
                format!("[{}]", constant.tensor.to_f64().first().copied().unwrap_or_default())
            }
            Role::Constant(_) | Role::Fused(_) => String::new(),
            Role::Input(Input { name, .. }) | Role::Parameter(Parameter { name, .. }) => format!("[{name}]"),
            Role::Host(_) | Role::Computed => match node.op.attributes() {
                serde_json::Value::Null => String::new(),
                attributes => format!("[{attributes}]"),
            },
        }
    }

    /// Graphviz source: [`Graph::dot_with`] without remarks.
    pub fn dot(&self) -> String {
        self.dot_with(&Remarks::default())
    }

    /// Graphviz source. A node has its operator, attributes, module path and types; one of a fused operator lists its body.
    /// Remarks of the graph are a node without edges.
    ///
    /// ```
    /// use rewire_graph::{DType, Remarks, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[4.into()]);
    /// let graph = scope.finish(&[("y", x.silu())])?;
    /// assert!(graph.dot_with(&Remarks::default()).contains("n0 -> n1;"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dot_with(&self, remarks: &Remarks) -> String {
        let mut text = String::from(
            "digraph rewire {\n  rankdir=TB;\n  node [shape=box, style=filled, fillcolor=white, fontname=\"Helvetica\", fontsize=10];\n",
        );
        if !remarks.graph.is_empty() {
            let _ = writeln!(text, "  remarks [label=\"{}\", color=\"white\"];", escape(&remarks.graph.join("\n")));
        }
        let order = self.order().unwrap_or_default();
        let numbers = Numbers::of(&order);
        for id in order {
            let Some(node) = self.node(id) else { continue };
            let (number, color) = (numbers.of_node(id), color(node.op.role()));
            let label = self.label(id, remarks.nodes.get(&id)).join("\n");
            let _ = writeln!(text, "  n{number} [label=\"{}\", fillcolor=\"{color}\"];", escape(&label));
            for value in self.inputs(id) {
                let _ = writeln!(text, "  n{} -> n{number};", numbers.of_node(value.node));
            }
        }
        for (n, (name, value)) in self.outputs().iter().enumerate() {
            let _ = writeln!(text, "  out{n} [label=\"{}\", fillcolor=\"#f4cccc\"];", escape(name));
            let _ = writeln!(text, "  n{} -> out{n};", numbers.of_node(value.node));
        }
        text.push_str("}\n");
        text
    }

    /// The lines of a node's box.
    fn label(&self, id: NodeId, remark: Option<&String>) -> Vec<String> {
        let Some(node) = self.node(id) else { return vec![] };
        let attributes = self.attributes(id);
        let attributes = if attributes.len() > MAX_ATTRIBUTES { "" } else { attributes.as_str() };
        let mut lines = vec![format!("{}{attributes}", node.op.name())];
        lines.extend([node.path.clone()].into_iter().filter(|path| !path.is_empty()));
        if let Role::Fused(fused) = node.op.role() {
            lines.extend(fused.body.body_lines());
        }
        lines.push(joined(&node.types));
        lines.extend(remark.cloned());
        lines
    }

    /// A line an operator, `%3 = silu(%2)`, of the body of a fused operator.
    fn body_lines(&self) -> Vec<String> {
        let order = self.order().unwrap_or_default();
        let numbers = Numbers::of(&order);
        let computed = order.iter().filter_map(|&id| Some((id, self.node(id)?)));
        let computed = computed.filter(|(_, node)| Fused::operand(node.op.as_ref()).is_none());
        let line = |(id, node): (NodeId, &Node)| {
            let operands: Vec<String> = self.inputs(id).iter().map(|value| numbers.of_value(value)).collect();
            format!("%{} = {}({})", numbers.of_node(id), node.op.name(), operands.join(", "))
        };
        computed.map(line).collect()
    }

    /// How often each operator occurs, by name.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for node in self.ids().filter_map(|id| self.node(id)) {
            *counts.entry(node.op.name().to_owned()).or_insert(0) += 1;
        }
        counts
    }
}

/// The numbers of nodes in a text: their places in the order.
struct Numbers(BTreeMap<NodeId, usize>);

impl Numbers {
    fn of(order: &[NodeId]) -> Self {
        Self(order.iter().enumerate().map(|(number, &id)| (id, number)).collect())
    }

    fn of_node(&self, id: NodeId) -> usize {
        self.0.get(&id).copied().unwrap_or(usize::MAX)
    }

    fn of_value(&self, value: &super::Value) -> String {
        let number = self.of_node(value.node);
        if value.port == 0 { format!("%{number}") } else { format!("%{number}.{}", value.port) }
    }
}

fn joined(types: &[crate::Type]) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The fill of a node's box.
fn color(role: Role<'_>) -> &'static str {
    match role {
        Role::Input(_) => "#d9ead3",
        Role::Parameter(_) => "#fff2cc",
        Role::Constant(_) => "#eeeeee",
        Role::Fused(_) => "#eaf3fb",
        Role::Host(_) | Role::Computed => "white",
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
