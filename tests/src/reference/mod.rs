//! The reference of operators, modules and models: their documentation from the source, the kernels of an example of each,
//! and the errors of invalid uses.

mod composites;
mod methods;
mod modules;
mod ops;
mod primitives;
mod ranking;
mod source;

pub use methods::{Methods, called, methods};
pub use source::Source;
pub(crate) use source::unlinked;

use crate::backend;
use rewire_emit::emit;
use rewire_graph::{Dim, Graph, GraphError, Scope, Tensor};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{self, Plan};
use rewire_graph_rewrite::schedule::Schedule;
use rewire_runtime::{Kernel, Model, ModelOptions};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Deref;

/// Traces something.
pub type Trace = fn(&Sketch) -> Tensor;

/// A scope that returns the same size for the same name, so that inputs can share it.
#[derive(Debug, Default)]
pub struct Sketch {
    scope: Scope,
    sizes: RefCell<BTreeMap<String, Dim>>,
}

impl Sketch {
    /// As [`Scope::size`].
    pub fn size(&self, name: &str) -> Dim {
        self.sizes.borrow_mut().entry(name.to_owned()).or_insert_with(|| self.scope.size(name)).clone()
    }

    /// As [`Scope::finish`].
    pub fn finish(self, outputs: &[(&str, Tensor)]) -> Result<Graph, GraphError> {
        self.scope.finish(outputs)
    }
}

impl Deref for Sketch {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}

/// An operator or function: an example of its use, and invalid uses.
#[derive(Clone, Debug)]
pub struct Function {
    /// The type or function in the source.
    pub item: &'static str,
    /// A use.
    pub example: Trace,
    /// Invalid uses, one per constraint.
    pub violations: Vec<Trace>,
}

/// A module: a configuration, its trace, and invalid values.
#[derive(Clone, Debug)]
pub struct Module {
    /// The type in the source.
    pub item: &'static str,
    /// The kind, if a type has several.
    pub kind: &'static str,
    /// A configuration.
    pub config: serde_json::Value,
    /// Traces a configuration.
    pub build: fn(serde_json::Value) -> Result<Graph, String>,
    /// Invalid values by JSON pointer.
    pub violations: Vec<(&'static str, serde_json::Value)>,
}

impl Module {
    /// The graph of the configuration.
    pub fn graph(&self) -> Result<Graph, String> {
        (self.build)(self.config.clone())
    }

    /// The errors of the invalid values, in order; `None` if there was none.
    pub fn errors(&self) -> Vec<Option<String>> {
        let error = |(pointer, value): &(&str, serde_json::Value)| {
            let mut config = self.config.clone();
            let (parent, key) = pointer.rsplit_once('/')?;
            match config.pointer_mut(parent)? {
                serde_json::Value::Array(entries) => *entries.get_mut(key.parse::<usize>().ok()?)? = value.clone(),
                parent if value.is_null() => drop(parent.as_object_mut()?.remove(key)),
                parent => drop(parent.as_object_mut()?.insert(key.to_owned(), value.clone())),
            }
            (self.build)(config).err()
        };
        self.violations.iter().map(error).collect()
    }
}

impl Function {
    /// The graph of the example.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let scope = Sketch::default();
        let out = (self.example)(&scope);
        scope.finish(&[("out", out)])
    }

    /// The errors of the invalid uses, in order; `None` if there was none.
    pub fn errors(&self) -> Vec<Option<GraphError>> {
        let error = |violation: &Trace| {
            let scope = Sketch::default();
            let out = violation(&scope);
            scope.finish(&[("out", out)]).err()
        };
        self.violations.iter().map(error).collect()
    }
}

/// Operators of the traced graph.
pub fn primitives() -> Vec<Function> {
    primitives::all()
}

/// Functions of tensors that trace several operators.
pub fn composites() -> Vec<Function> {
    composites::all()
}

/// HSTU operators.
pub fn ops() -> Vec<Function> {
    ops::all()
}

/// Functions of the ranking layers.
pub fn ranking_functions() -> Vec<Function> {
    ranking::functions()
}

/// Modules and models.
pub fn modules() -> Vec<Module> {
    modules::all()
}

/// Ranking layers.
pub fn ranking() -> Vec<Module> {
    ranking::all()
}

/// The kernels of a graph by schedule, after checking that they run on the CPU and are emitted for every WebGPU device.
pub fn kernels(graph: &Graph) -> Result<String, String> {
    let plan = backend::plan(graph)?;
    let schedules: BTreeSet<&str> = plan.steps.iter().map(|step| schedule(&step.computation)).collect();
    for step in &plan.steps {
        emit(&step.computation, &Target::BASELINE, &Tuning::default()).map_err(|e| format!("{}: {e}", step.name))?;
    }
    let (count, load) = (plan.steps.len(), plan.load.len());
    loads(plan, graph)?;
    let schedules: Vec<&str> = schedules.into_iter().collect();
    Ok(match count {
        0 if load > 0 => "on the CPU, once, when parameters are bound".to_owned(),
        0 => "none, the host computes it".to_owned(),
        1 => schedules.join(", "),
        _ => format!("{count} ({})", schedules.join(", ")),
    })
}

fn schedule(kernel: &plan::Computation) -> &'static str {
    kernel.schedule().map_or("custom", Schedule::name)
}

fn loads(plan: Plan, graph: &Graph) -> Result<(), String> {
    let parameters = graph.parameters();
    let find = |name: &str| {
        let parameter = parameters.iter().find(|parameter| parameter.name == name)?;
        Some(crate::noise::Noise::new(1, name).floats(parameter.dtype, &parameter.shape, 1.0))
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Model::load(plan, find, options).map(drop).map_err(|error| error.to_string())
}

/// The page.
pub fn page() -> Result<String, String> {
    let source = Source::read()?;
    let mut page = String::from(
        "# Reference\n\nWritten by `cargo xtask reference` from the source, from the kernels that an example of each entry lowers to, and from \
         the errors of\ninvalid uses. Kernels are listed by schedule; every kernel runs on the CPU and on GPUs. Constraints are errors that name \
         the operator and\nthe argument or key. A wrong number of operands, and an unknown or missing key, is an error everywhere.\n",
    );
    write_methods(&mut page)?;
    let sections = [
        (
            "Operators of the graph",
            "`rewire_graph::op`, traced by methods of `Tensor`, `Ragged` and `Scope`.",
            primitives(),
        ),
        ("Functions of tensors", "Methods of `rewire_graph::Tensor` that trace several operators.", composites()),
        ("Operators of generative recommenders", "`rewire_hstu::ops`.", ops()),
        ("Functions for ranking", "`rewire_hstu::modules::ranking`.", ranking_functions()),
    ];
    let mut written = BTreeSet::new();
    for (title, about, functions) in sections {
        let _ = write!(page, "\n## {title}\n\n{about}\n");
        for function in functions {
            write_function(&mut page, &source, &function)?;
            written.insert(function.item.to_owned());
        }
    }
    let sections = [
        ("Modules and models", "`rewire_hstu::modules` and `rewire_hstu::models`.", modules()),
        ("Ranking layers", "`rewire_hstu::modules::ranking`.", ranking()),
    ];
    for (title, about, modules) in sections {
        let _ = write!(page, "\n## {title}\n\n{about} The parameters are those of the example.\n");
        for module in modules {
            write_module(&mut page, &source, &module, &mut written)?;
        }
    }
    let _ = write!(page, "\n## Options\n\nOther types of keys, in order of name.\n");
    for item in source.options().iter().filter(|item| !written.contains(*item)) {
        let _ = write!(page, "\n### `{item}`\n\n{}\n", source.docs(item)?);
        write_fields(&mut page, &source, item)?;
    }
    Ok(page)
}

fn write_methods(page: &mut String) -> Result<(), String> {
    page.push_str("\n## Methods\n\nA method with two names blocks under the first and is a future under the second.\n");
    for Methods { item, docs, lines, .. } in methods()? {
        let _ = write!(page, "\n### `{item}`\n\n{docs}\n\n| method | meaning |\n|---|---|\n");
        for (call, meaning) in lines {
            let _ = writeln!(page, "| {call} | {meaning} |");
        }
    }
    Ok(())
}

fn write_function(page: &mut String, source: &Source, function: &Function) -> Result<(), String> {
    let item = function.item;
    let graph = function.graph().map_err(|error| format!("{item}: {error}"))?;
    let kernels = kernels(&graph).map_err(|error| format!("{item}: {error}"))?;
    let errors: Option<Vec<GraphError>> = function.errors().into_iter().collect();
    let errors = errors.ok_or_else(|| format!("{item}: an invalid use is not an error"))?;
    let own = item.rsplit("::").next().unwrap_or(item);
    let _ = write!(page, "\n### `{item}`\n\n{}\n\n- Kernels: {kernels}\n", source.docs(item)?);
    write_constraints(page, errors.iter().filter_map(|error| constraint(error, own)));
    write_fields(page, source, item)
}

fn write_module(
    page: &mut String,
    source: &Source,
    module: &Module,
    written: &mut BTreeSet<String>,
) -> Result<(), String> {
    let item = module.item;
    let title = if module.kind.is_empty() { format!("`{item}`") } else { format!("`{item}`, `{}`", module.kind) };
    let graph = module.graph().map_err(|error| format!("{title}: {error}"))?;
    let kernels = kernels(&graph).map_err(|error| format!("{title}: {error}"))?;
    let is_first = written.insert(item.to_owned());
    let docs = if is_first { format!("{}\n\n", source.docs(item)?) } else { String::new() };
    let _ = write!(page, "\n### {title}\n\n{docs}- Kernels: {kernels}\n");
    let _ = writeln!(page, "- Example: `{}`", module.config);
    let parameters: Vec<String> =
        graph.parameters().into_iter().map(|parameter| format!("`{}` {:?}", parameter.name, parameter.shape)).collect();
    if !parameters.is_empty() {
        let _ = writeln!(page, "- Parameters: {}", parameters.join(", "));
    }
    let errors: Option<Vec<String>> = module.errors().into_iter().collect();
    let errors = errors.ok_or_else(|| format!("{title}: an invalid value is not an error"))?;
    write_constraints(page, errors.iter().filter_map(|error| constraint_of_key(error)));
    if is_first { write_fields(page, source, item) } else { Ok(()) }
}

/// Different constraints on one line.
fn write_constraints(page: &mut String, constraints: impl Iterator<Item = String>) {
    let mut listed: Vec<String> = vec![];
    for constraint in constraints {
        if !listed.contains(&constraint) {
            listed.push(constraint);
        }
    }
    if !listed.is_empty() {
        let _ = writeln!(page, "- Constraints: {}", listed.join("; "));
    }
}

/// A table without the columns that no field fills.
fn write_fields(page: &mut String, source: &Source, item: &str) -> Result<(), String> {
    let fields = source.fields(item)?;
    let has_types = fields.iter().any(|field| !field.ty.is_empty());
    let has_defaults = fields.iter().any(|field| field.default.is_some());
    let heads = [Some("name"), has_types.then_some("type"), has_defaults.then_some("default"), Some("meaning")];
    let heads: Vec<&str> = heads.into_iter().flatten().collect();
    if !fields.is_empty() {
        let _ = write!(page, "\n| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    }
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    for field in fields {
        let default = field.default.as_deref().unwrap_or("");
        let cells = [
            Some(code(&field.name)),
            has_types.then(|| code(&field.ty)),
            has_defaults.then(|| code(default)),
            Some(field.docs),
        ];
        let _ = writeln!(page, "| {} |", cells.into_iter().flatten().collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// The constraint that an error of an operator reports, with the operator if that is a part of the entry; none for a number of operands.
fn constraint(error: &GraphError, own: &str) -> Option<String> {
    match error {
        GraphError::Type { source, .. } if source.argument == "operands" => None,
        GraphError::Type { op, source, .. } => {
            let is_own = op.replace('_', "").eq_ignore_ascii_case(&own.replace('_', ""));
            let of = if is_own { String::new() } else { format!("{op}: ") };
            Some(format!("{of}`{}` must be {}", source.argument, source.expected))
        }
        other => Some(other.to_string()),
    }
}

/// The constraint that an error of a configuration reports, without the invalid value; none for unknown and missing keys and types.
fn constraint_of_key(error: &str) -> Option<String> {
    let is_general =
        ["unknown field", "missing field", "invalid type", "invalid value"].iter().any(|start| error.contains(start));
    let text = error.replace('\n', " ");
    let text = text.rsplit_once(", got ").map_or(text.as_str(), |(text, _)| text);
    // Lines of the source change more often than what they report.
    let text = match text.split_once(" at crates/").and_then(|(op, place)| Some((op, place.split_once(": ")?.1))) {
        Some((op, reason)) => format!("{op}: {reason}"),
        None => text.to_owned(),
    };
    (!is_general).then_some(text)
}
