use super::{Graph, NodeId};
use crate::op::{Fused, Input, Parameter, Role};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

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
        self.text_with(&Remarks::default())
    }

    /// [`Graph::text`] with remarks at the ends of lines and of the text.
    ///
    /// ```
    /// use rewire_graph::{DType, Remarks, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[4.into()]);
    /// let graph = scope.finish(&[("y", x.silu())])?;
    /// let mut remarks = Remarks::default();
    /// remarks.nodes.insert(graph.outputs()[0].1.node, "cheap".to_owned());
    /// assert!(graph.text_with(&remarks).contains("silu(%0) : f32[4]  ; cheap"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn text_with(&self, remarks: &Remarks) -> String {
        let mut text = String::new();
        self.write_text(&mut text, "", remarks);
        for remark in &remarks.graph {
            let _ = writeln!(text, "; {remark}");
        }
        text
    }

    fn write_text(&self, text: &mut String, indent: &str, remarks: &Remarks) {
        let order = self.order().unwrap_or_default();
        let numbers: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(number, &id)| (id, number)).collect();
        let show = |value: &super::Value| {
            let number = numbers.get(&value.node).copied().unwrap_or(usize::MAX);
            if value.port == 0 { format!("%{number}") } else { format!("%{number}.{}", value.port) }
        };
        for id in &order {
            let Some(node) = self.node(*id) else { continue };
            let number = numbers.get(id).copied().unwrap_or_default();
            let operands: Vec<String> = self.inputs(*id).iter().map(show).collect();
            let types: Vec<String> = node.types.iter().map(ToString::to_string).collect();
            let (op, attributes) = (node.op.name(), self.attributes(*id));
            let path = if node.path.is_empty() { String::new() } else { format!("  # {}", node.path) };
            let remark = remarks.nodes.get(id).map_or_else(String::new, |remark| format!("  ; {remark}"));
            let _ = writeln!(
                text,
                "{indent}%{number} = {op}{attributes}({}) : {}{path}{remark}",
                operands.join(", "),
                types.join(", ")
            );
            if let Role::Fused(fused) = node.op.role() {
                fused.body.write_text(text, &format!("{indent}    "), &Remarks::default());
            }
        }
        for (name, value) in self.outputs() {
            let _ = writeln!(text, "{indent}return {name} = {}", show(value));
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

    /// Graphviz source. Fused operators are boxes around their bodies; modules are labels.
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

fn label(op: &str, attributes: &str, types: &[crate::Type]) -> String {
    let attributes = if attributes.len() > 48 { "" } else { attributes };
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    escape(&format!("{op} {attributes}\n{}", types.join("\n")))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
