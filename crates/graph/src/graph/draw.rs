use super::{Graph, NodeId};
use crate::op::{Fused, Input, Parameter, Role};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Annotations for drawings of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// By node.
    pub nodes: HashMap<NodeId, String>,
    /// Lines about the whole graph.
    pub graph: Vec<String>,
}

impl Graph {
    /// The graph as text, one line per node, producers first: `%3 = matmul(%1, %2) : f32[s0, 64]  # module.path`.
    ///
    /// The body of a fused operator is indented below it. Nodes are numbered in order, so equal graphs have equal text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text, "");
        text
    }

    /// A readable form of [`Graph::text`], with remarks: first the computing nodes, then inputs with the host values
    /// computed from them, then parameters and constants, abbreviated. Node numbers are those of [`Graph::text`].
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
        text.push_str("\n; inputs, and host values computed from them\n");
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

    /// Graphviz source. A fused operator is a box around its body; labels are module paths.
    pub fn dot(&self) -> String {
        self.dot_with(&Remarks::default())
    }

    /// [`Graph::dot`] with remarks on fused operators and below the graph.
    pub fn dot_with(&self, remarks: &Remarks) -> String {
        let mut text = String::from(
            "digraph rewire {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"Helvetica\", fontsize=10];\n",
        );
        let mut names = BTreeMap::new();
        for id in self.order().unwrap_or_default() {
            let Some(node) = self.node(id) else { continue };
            match node.op.role() {
                Role::Fused(fused) => self.dot_fused(&mut text, &mut names, id, (fused, remarks)),
                _ => {
                    let name = format!("n{}", id.number());
                    let label = label(node.op.name(), &self.attributes(id), &node.types);
                    let color = match node.op.name() {
                        "input" => "#d9ead3",
                        "parameter" => "#fff2cc",
                        "constant" => "#eeeeee",
                        _ => "white",
                    };
                    let _ = writeln!(text, "  {name} [label=\"{label}\", fillcolor=\"{color}\"];");
                    names.insert(super::Value { node: id, port: 0 }, name.clone());
                    for value in self.inputs(id) {
                        if let Some(source) = names.get(&value) {
                            let _ = writeln!(text, "  {source} -> {name};");
                        }
                    }
                }
            }
        }
        for (n, (name, value)) in self.outputs().iter().enumerate() {
            let _ = writeln!(text, "  out{n} [label=\"{}\", fillcolor=\"#f4cccc\"];", escape(name));
            if let Some(source) = names.get(value) {
                let _ = writeln!(text, "  {source} -> out{n};");
            }
        }
        if !remarks.graph.is_empty() {
            let _ = writeln!(text, "  label=\"{}\";", escape(&remarks.graph.join("\n")));
        }
        text.push_str("}\n");
        text
    }

    fn dot_fused(
        &self,
        text: &mut String,
        names: &mut BTreeMap<super::Value, String>,
        id: NodeId,
        (fused, remarks): (&Fused, &Remarks),
    ) {
        let number = id.number();
        let remark = remarks.nodes.get(&id).map_or_else(String::new, |remark| format!("\n{remark}"));
        let path = self.node(id).map_or("", |node| node.path.as_str());
        let _ = writeln!(
            text,
            "  subgraph cluster_{number} {{\n    label=\"{}\"; style=filled; color=\"#9fc5e8\"; fillcolor=\"#eaf3fb\"; fontname=\"Helvetica\"; fontsize=10;",
            escape(&format!("{} {path}{remark}", fused.name))
        );
        let body = &fused.body;
        let mut edges = String::new();
        let mut inner: BTreeMap<super::Value, String> = BTreeMap::new();
        let operands = self.inputs(id);
        for node_id in body.order().unwrap_or_default() {
            let Some(node) = body.node(node_id) else { continue };
            let value = super::Value { node: node_id, port: 0 };
            if let Some(position) = Fused::operand(node.op.as_ref()) {
                if let Some(source) = operands.get(position).and_then(|operand| names.get(operand)) {
                    inner.insert(value, source.clone());
                }
                continue;
            }
            let name = format!("n{number}_{}", node_id.number());
            let label = label(node.op.name(), &body.attributes(node_id), &node.types);
            let _ = writeln!(text, "    {name} [label=\"{label}\"];");
            for operand in body.inputs(node_id) {
                if let Some(source) = inner.get(&operand) {
                    let _ = writeln!(edges, "  {source} -> {name};");
                }
            }
            inner.insert(value, name);
        }
        let _ = writeln!(text, "  }}\n{edges}");
        for (port, (_, value)) in body.outputs().iter().enumerate() {
            if let Some(source) = inner.get(value) {
                names.insert(super::Value { node: id, port: port as u32 }, source.clone());
            }
        }
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

/// The numbers of nodes in the text form: their positions in the order.
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

fn label(op: &str, attributes: &str, types: &[crate::Type]) -> String {
    let attributes = if attributes.len() > 48 { "" } else { attributes };
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    escape(&format!("{op} {attributes}\n{}", types.join("\n")))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
