//! The shader of a custom operator: its WGSL with accessors of operands and result, and an entry point.

use super::function::type_of;
use super::module::Module;
use super::names::{rename, renamed};
use super::storage::has_groups;
use super::template::{Main, Template, called, template};
use super::{EmitError, ParsedKernel};
use minijinja::Value;
use rewire_graph::Dim;
use rewire_graph_rewrite::device::GridFactor;
use rewire_graph_rewrite::plan::{Custom, MemorySpace};
use std::collections::BTreeSet;

static TEMPLATE: Template = template!("custom.wgsl");

/// The number in the names of the operator's declarations. Its shader contains no user-defined functions.
const OPERATOR: usize = 0;

/// Emits the shader of an operator.
pub(super) fn emit(kernel: &Custom, mut module: Module) -> Result<ParsedKernel, EmitError> {
    let (shader, name) = (&kernel.shader, kernel.operator.name());
    let wrong = |line: Option<u32>, reason: String| EmitError::Custom { name: name.to_owned(), line, reason };
    if shader.operands.len() != kernel.operands.len() {
        let (expected, got) = (kernel.operands.len(), shader.operands.len());
        return Err(wrong(None, format!("expected names of {expected} operands, got {got}")));
    }
    let names: Vec<&String> = shader.operands.iter().chain([&shader.result]).collect();
    for (position, known) in names.iter().enumerate() {
        let is_name = known.starts_with(|c: char| c.is_ascii_alphabetic())
            && known.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || names[..position].contains(known) {
            return Err(wrong(None, format!("expected a unique name for each tensor, got `{known}`")));
        }
    }
    if let Some(attribute) = ["@group", "@binding", "@compute"].into_iter().find(|a| shader.wgsl.contains(a)) {
        return Err(wrong(None, format!("expected no bindings and no entry point, got `{attribute}`")));
    }
    let wgsl = rename(shader.wgsl.trim_end(), OPERATOR);
    let run = renamed("run", OPERATOR);
    let called = called(&wgsl);
    if !called.contains(run.as_str()) {
        return Err(wrong(None, "expected a function run(workgroup: i32, thread: i32)".to_owned()));
    }
    let mut accessors = String::new();
    for (name, &position) in shader.operands.iter().zip(&kernel.operands) {
        accessors += &loads(&mut module, &called, name, position)?;
    }
    accessors += &stores(&mut module, &called, kernel);
    let lines = wgsl.lines().count();
    let variables = vec![("operator", Value::from(wgsl)), ("run", Value::from(run))];
    let main = Main { threads: shader.threads, functions: accessors, variables, ..Main::default() };
    let grid = vec![GridFactor::Tiles(shader.extents.clone(), shader.tile)];
    let emitted = TEMPLATE.render(module, main, grid, vec![]);
    let mut emitted = emitted.map_err(|error| match error {
        EmitError::Shader { line, reason } => {
            wrong(line.filter(|&line| line as usize <= lines), reason.replace(&renamed("", OPERATOR), ""))
        }
        other => other,
    })?;
    emitted.kernel.unchecked = false;
    Ok(emitted)
}

fn arguments(rank: usize) -> (Vec<String>, String) {
    let names: Vec<String> = (0..rank).map(|axis| format!("i{axis}")).collect();
    let declared = names.iter().map(|name| format!("{name}: i32")).collect::<Vec<_>>().join(", ");
    (names, declared)
}

/// The load functions that the shader calls for an operand. Indices are unproven and therefore clamped.
fn loads(module: &mut Module, called: &BTreeSet<&str>, name: &str, position: u16) -> Result<String, EmitError> {
    let operand = module.operand(position)?;
    let (dtype, shape) = (operand.dtype, operand.shape.clone());
    let ty = if operand.space == MemorySpace::Host { "i32" } else { type_of(dtype.scalar()) };
    let (names, declared) = arguments(shape.len());
    let extents: Vec<String> = shape.iter().map(|dim| module.dim(dim)).collect();
    let nearest = names.iter().zip(&extents).map(|(name, extent)| format!("max(min({name}, {extent} - 1), 0)"));
    let nearest: Vec<String> = nearest.collect();
    let sized = shape.iter().zip(&extents).filter(|(dim, _)| dim.as_const().is_none_or(|extent| extent == 0));
    let empty: Vec<String> = sized.map(|(_, extent)| format!("{extent} <= 0")).collect();
    let guarded = |ty: &str, code: &str| match empty.is_empty() {
        true => format!("    return {code};\n"),
        false => format!("    if ({}) {{\n        return {ty}();\n    }}\n    return {code};\n", empty.join(" || ")),
    };
    let mut accessors = String::new();
    if called.contains(format!("load_{name}").as_str()) {
        let code = module.load(position, &nearest, None)?;
        accessors += &format!("fn load_{name}({declared}) -> {ty} {{\n{}}}\n\n", guarded(ty, &code));
    }
    if called.contains(format!("load4_{name}").as_str()) && module.has_vector_load(position) {
        let (code, ty) = (module.load4(position, &nearest)?, format!("vec4<{ty}>"));
        accessors += &format!("fn load4_{name}({declared}) -> {ty} {{\n{}}}\n\n", guarded(&ty, &code));
    }
    Ok(accessors + &self::extents(module, called, name, &shape))
}

/// The store functions that the shader calls for the result. They drop out-of-range stores.
fn stores(module: &mut Module, called: &BTreeSet<&str>, kernel: &Custom) -> String {
    let (name, dtype) = (&kernel.shader.result, kernel.dtype);
    let ty = type_of(dtype.scalar());
    let (names, declared) = arguments(kernel.shape.len());
    let separator = if names.is_empty() { "" } else { ", " };
    let extents: Vec<String> = kernel.shape.iter().map(|dim| module.dim(dim)).collect();
    let inside = names.iter().zip(&extents).map(|(name, extent)| format!("u32({name}) < u32({extent})"));
    let inside = inside.collect::<Vec<_>>().join(" && ");
    let guarded = |code: &str| match inside.as_str() {
        "" => format!("    {code}\n"),
        _ => format!("    if ({inside}) {{\n        {code}\n    }}\n"),
    };
    let mut accessors = String::new();
    if called.contains(format!("store_{name}").as_str()) {
        let at = module.address((dtype, &kernel.shape), &names, false);
        let code = module.store(0, dtype, &at, "value");
        accessors += &format!("fn store_{name}({declared}{separator}value: {ty}) {{\n{}}}\n\n", guarded(&code));
    }
    if called.contains(format!("store4_{name}").as_str()) && has_groups(dtype) {
        let at = module.address((dtype, &kernel.shape), &names, true);
        let code = module.store4(0, dtype, &at, "value");
        accessors += &format!("fn store4_{name}({declared}{separator}value: vec4<{ty}>) {{\n{}}}\n\n", guarded(&code));
    }
    accessors + &self::extents(module, called, name, &kernel.shape)
}

fn extents(module: &mut Module, called: &BTreeSet<&str>, name: &str, shape: &[Dim]) -> String {
    let mut accessors = String::new();
    for (axis, dim) in shape.iter().enumerate() {
        let function = format!("extent_{name}_{axis}");
        if called.contains(function.as_str()) {
            let extent = module.dim(dim);
            accessors += &format!("fn {function}() -> i32 {{\n    return {extent};\n}}\n\n");
        }
    }
    accessors
}
