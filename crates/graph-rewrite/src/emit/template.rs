//! From a template and hooks to a validated kernel.

use super::module::Module;
use super::validate::validate;
use super::{EmitError, EmittedKernel, GridFactor, Param, TileList};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};

const FUNCTIONS: &str = include_str!("../../../../shaders/functions.wgsl");

/// What several templates include.
const SHARED: [(&str, &str); 4] = [
    ("row_bounds.wgsl", include_str!("../../../../shaders/row_bounds.wgsl")),
    ("row_bounds_memory.wgsl", include_str!("../../../../shaders/row_bounds_memory.wgsl")),
    ("statistics.wgsl", include_str!("../../../../shaders/statistics.wgsl")),
    ("statistics_memory.wgsl", include_str!("../../../../shaders/statistics_memory.wgsl")),
];

/// What fills a family's template.
#[derive(Default)]
pub(super) struct Main {
    /// Invocations of a workgroup.
    pub threads: u32,
    /// Functions of the kernel's own.
    pub hooks: String,
    /// Statements of the entry point.
    pub body: String,
    /// More of the template's variables.
    pub variables: Vec<(&'static str, Value)>,
}

/// Renders and validates.
pub(super) fn render(
    name: &'static str,
    source: &str,
    mut module: Module,
    main: Main,
    grid: Vec<GridFactor>,
    tile_lists: Vec<TileList>,
) -> Result<EmittedKernel, EmitError> {
    let failed = |error: minijinja::Error| EmitError::Template { template: name, reason: format!("{error:#}") };
    let workgroups = module.param(Param::Workgroups);
    let (enable, declarations) = module.declarations()?;
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.map_err(failed)?);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in SHARED.into_iter().chain([(name, source)]) {
        environment.add_template(name, source).map_err(failed)?;
    }
    let mut variables: Vec<(&str, Value)> = vec![
        ("declarations", declarations.into()),
        ("hooks", main.hooks.into()),
        ("body", Value::from(main.body.trim_end().to_owned())),
        ("threads", main.threads.into()),
        ("workgroups", workgroups.into()),
    ];
    variables.extend(main.variables);
    let context = Value::from_pairs(variables);
    let shader = environment.get_template(name).and_then(|template| template.render(context)).map_err(failed)?;
    let matrices = if shader.contains("coop_mat") { "enable wgpu_cooperative_matrix;\n" } else { "" };
    let directives = format!("{matrices}{enable}");
    let wgsl = format!("{directives}{shader}{}", library(&shader));
    let directives = directives.lines().count() as u32;
    validate(&wgsl, module.target).map_err(|error| match error {
        EmitError::Shader { line, reason } => {
            EmitError::Shader { line: line.and_then(|line| line.checked_sub(directives)), reason }
        }
        other => other,
    })?;
    Ok(EmittedKernel { wgsl, params: module.params().to_vec(), slots: module.slots(), tile_lists, grid, trusted: true })
}

/// The functions that a shader calls, and those that they call.
fn library(shader: &str) -> String {
    let functions: Vec<(&str, &str)> = FUNCTIONS
        .split("\n\n")
        .filter_map(|text| {
            let at = text.find("fn ")? + "fn ".len();
            let name = text.get(at..)?.split('(').next()?;
            Some((name, text.trim_end()))
        })
        .collect();
    let mut used = vec![false; functions.len()];
    let mut texts = vec![shader];
    while let Some(text) = texts.pop() {
        for (used, (name, source)) in used.iter_mut().zip(&functions) {
            if !*used && calls(text, name) {
                *used = true;
                texts.push(source);
            }
        }
    }
    functions.iter().zip(used).filter(|(_, used)| *used).map(|((_, source), _)| format!("\n{source}\n")).collect()
}

/// True if the text calls a function.
pub(super) fn calls(text: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).and_then(|t| t.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|t| t.chars().next());
        after == Some('(') && !before.is_some_and(is_name)
    })
}
