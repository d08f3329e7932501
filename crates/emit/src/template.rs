//! Renders a template with device functions to a validated kernel.

use super::module::{Declarations, Module};
use super::validate::validate;
use super::{EmitError, ParsedKernel};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value, filters, functions, tests};
use rewire_graph::Ordered;
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph_rewrite::device::{EmittedKernel, Extension, GridFactor, Param, Target, TileList};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const FUNCTIONS: &str = include_str!("../shaders/functions.wgsl");
const FUNCTIONS_INT64: &str = include_str!("../shaders/functions_int64.wgsl");

/// Files that templates include.
const SHARED: [(&str, &str); 21] = [
    ("first_tile_of_page.wgsl", include_str!("../shaders/first_tile_of_page.wgsl")),
    ("mask.wgsl", include_str!("../shaders/mask.wgsl")),
    ("matrices.wgsl", include_str!("../shaders/matrices.wgsl")),
    ("matrix_elements.wgsl", include_str!("../shaders/matrix_elements.wgsl")),
    ("next_tile.wgsl", include_str!("../shaders/next_tile.wgsl")),
    ("next_tile_of_page.wgsl", include_str!("../shaders/next_tile_of_page.wgsl")),
    ("online_softmax.wgsl", include_str!("../shaders/online_softmax.wgsl")),
    ("pair_tile.wgsl", include_str!("../shaders/pair_tile.wgsl")),
    ("results.wgsl", include_str!("../shaders/results.wgsl")),
    ("row_bounds_memory.wgsl", include_str!("../shaders/row_bounds_memory.wgsl")),
    ("rows_of_floats.wgsl", include_str!("../shaders/rows_of_floats.wgsl")),
    ("single_row.wgsl", include_str!("../shaders/single_row.wgsl")),
    ("softmax_of_rows.wgsl", include_str!("../shaders/softmax_of_rows.wgsl")),
    ("staged_owners.wgsl", include_str!("../shaders/staged_owners.wgsl")),
    ("staged_rows.wgsl", include_str!("../shaders/staged_rows.wgsl")),
    ("statistics.wgsl", include_str!("../shaders/statistics.wgsl")),
    ("statistics_memory.wgsl", include_str!("../shaders/statistics_memory.wgsl")),
    ("tile_page_memory.wgsl", include_str!("../shaders/tile_page_memory.wgsl")),
    ("weigh_memory.wgsl", include_str!("../shaders/weigh_memory.wgsl")),
    ("weigh_registers.wgsl", include_str!("../shaders/weigh_registers.wgsl")),
    ("workgroup.wgsl", include_str!("../shaders/workgroup.wgsl")),
];

/// A template from a file in `shaders`.
macro_rules! template {
    ($name:literal) => {
        $crate::template::Template {
            name: $name,
            environment: std::sync::LazyLock::new(|| {
                let source = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name));
                $crate::template::environment($name, source).map_err(|error| format!("{error:#}"))
            }),
        }
    };
}
pub(super) use template;

/// A shader template, parsed once, with placeholders for a kernel's parts.
pub(super) struct Template {
    pub name: &'static str,
    pub environment: LazyLock<Result<Environment<'static>, String>>,
}

/// An environment with only the functions, filters and tests that templates use, to reduce the binary size.
fn with_functions() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.add_function("range", functions::range);
    environment.add_filter("indent", filters::indent);
    environment.add_filter("length", filters::length);
    environment.add_filter("max", filters::max);
    environment.add_filter("min", filters::min);
    environment.add_filter("upper", filters::upper);
    environment.add_test("defined", tests::is_defined);
    environment
}

/// A template with the files that it may include.
pub(super) fn environment(name: &'static str, source: &'static str) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = with_functions();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax?);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in SHARED.into_iter().chain([(name, source)]) {
        environment.add_template(name, source)?;
    }
    Ok(environment)
}

/// The values for a schedule's template.
#[derive(Default)]
pub(super) struct Main {
    /// Invocations per workgroup.
    pub threads: u32,
    /// The kernel's device functions.
    pub functions: String,
    /// Statements of the entry point.
    pub body: String,
    /// Additional template variables.
    pub variables: Vec<(&'static str, Value)>,
    /// The extension, missing from WGSL, that the template uses.
    pub extension: Option<Extension>,
}

impl Template {
    /// Renders and validates.
    pub fn render(
        &self,
        mut module: Module,
        main: Main,
        grid: Vec<GridFactor>,
        tile_lists: Vec<TileList>,
    ) -> Result<ParsedKernel, EmitError> {
        let failed = |reason: String| EmitError::Template { template: self.name, reason };
        let workgroups = module.param(Param::Workgroups);
        let Declarations { text, unchecked, f16 } = module.declarations()?;
        let mut variables: Vec<(&str, Value)> = vec![
            ("declarations", text.into()),
            ("functions", main.functions.into()),
            ("body", Value::from(main.body.trim_end().to_owned())),
            ("threads", main.threads.into()),
            ("workgroups", workgroups.into()),
        ];
        variables.extend(main.variables);
        let context = Value::from_pairs(variables);
        let environment = self.environment.as_ref().map_err(|reason| failed(reason.clone()))?;
        let shader = environment.get_template(self.name).and_then(|template| template.render(context));
        let shader = shader.map_err(|error| failed(format!("{error:#}")))?;
        let directives = if f16 { "enable f16;\n\n" } else { "" };
        let wgsl = format!("{directives}{shader}{}", library(&shader, module.target));
        let directives = directives.lines().count() as u32;
        let parsed = validate(&wgsl, module.target).map_err(|error| match error {
            EmitError::Shader { line, reason } => {
                EmitError::Shader { line: line.and_then(|line| line.checked_sub(directives)), reason }
            }
            other => other,
        })?;
        let (params, slots) = (module.params().to_vec(), module.slots());
        let extension = main.extension;
        let kernel = EmittedKernel { wgsl, params, slots, tile_lists, grid, unchecked, extension };
        Ok(ParsedKernel { kernel, module: parsed })
    }
}

/// The library functions that a shader calls, directly or indirectly.
fn library(shader: &str, target: &Target) -> String {
    let (unary, binary) = (UnaryOp::ALL.iter(), BinaryOp::ALL.iter());
    let declared = unary.map(|op| op.declaration()).chain(binary.map(|op| op.declaration()));
    let texts = std::iter::once(FUNCTIONS).chain(declared.map(|declaration| declaration.library));
    let mut functions: Vec<_> = texts.flat_map(named).collect();
    if target.int64 {
        let replaced = named(FUNCTIONS_INT64);
        functions.retain(|(name, _)| replaced.iter().all(|(other, _)| other != name));
        functions.extend(replaced);
    }
    let mut used = vec![false; functions.len()];
    let mut texts = vec![shader];
    while let Some(text) = texts.pop() {
        let called = called(text);
        for (used, (name, source)) in used.iter_mut().zip(&functions) {
            if !*used && called.contains(name) {
                *used = true;
                texts.push(source);
            }
        }
    }
    functions.iter().zip(used).filter(|(_, used)| *used).map(|((_, source), _)| format!("\n{source}\n")).collect()
}

/// Functions with their names.
fn named(text: &'static str) -> Vec<(&'static str, &'static str)> {
    let function = |text: &'static str| {
        let at = text.find("fn ")? + "fn ".len();
        let name = text.get(at..)?.split('(').next()?;
        Some((name, text.trim_end()))
    };
    text.split("\n\n").filter_map(function).collect()
}

/// The names before parentheses in a string.
pub(super) fn called(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = |(at, _): (usize, &str)| text.get(..at)?.rsplit(|c| !is_name(c)).next();
    text.match_indices('(').filter_map(name).ordered_set()
}
