//! User-defined functions in a shader.

use super::EmitError;
use super::names::rename;
use super::validate::{check, parse};
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo};
use naga::{BinaryOperator, Block, Expression, ScalarKind, Statement, TypeInner};
use rewire_graph::pointwise::Function;

/// A function with its helper declarations.
pub(super) struct Declaration {
    pub wgsl: String,
    /// True if it may run without checks.
    pub unchecked: bool,
}

/// The renamed declaration of a function. It is validated separately from the shader, so that it cannot use
/// declarations of the shader, and errors have its own line numbers.
pub(super) fn declaration(function: &Function, number: usize) -> Result<Declaration, EmitError> {
    let wgsl = function.wgsl();
    let wrong =
        |line: Option<u32>, reason: String| EmitError::Custom { name: function.name().to_owned(), line, reason };
    let module = parse(wgsl).map_err(|(line, reason)| wrong(line, reason))?;
    let info = check(&module, wgsl, Capabilities::empty()).map_err(|(line, reason)| wrong(line, reason))?;
    let others = module.global_variables.len() + module.overrides.len() + module.entry_points.len();
    if others > 0 || wgsl.contains("enable ") {
        return Err(wrong(None, "expected only functions, structures and constants".to_owned()));
    }
    let is_float =
        |ty| matches!(module.types[ty].inner, TypeInner::Scalar(s) if s.kind == ScalarKind::Float && s.width == 4);
    let fits = module.functions.iter().any(|(_, declared)| {
        declared.name.as_deref() == Some(function.name())
            && declared.arguments.len() == function.arguments()
            && declared.arguments.iter().all(|argument| is_float(argument.ty))
            && declared.result.as_ref().is_some_and(|result| is_float(result.ty))
    });
    if !fits {
        let arguments = vec!["f32"; function.arguments()].join(", ");
        return Err(wrong(None, format!("expected a function {}({arguments}) -> f32", function.name())));
    }
    Ok(Declaration { wgsl: format!("{}\n\n", rename(wgsl.trim(), number)), unchecked: needs_no_checks(&module, &info) })
}

/// True for functions without loops, computed indices and integer divisions: they terminate and have no undefined
/// behaviour.
fn needs_no_checks(module: &naga::Module, info: &ModuleInfo) -> bool {
    module.functions.iter().all(|(handle, function)| {
        let defined = |expression: &Expression| match *expression {
            Expression::Access { .. } => false,
            Expression::Binary { op: BinaryOperator::Divide | BinaryOperator::Modulo, left, .. } => {
                is_float(module, &info[handle], left)
            }
            _ => true,
        };
        ends(&function.body) && function.expressions.iter().all(|(_, expression)| defined(expression))
    })
}

fn is_float(module: &naga::Module, info: &FunctionInfo, expression: naga::Handle<Expression>) -> bool {
    let scalar = info[expression].ty.inner_with(&module.types).scalar();
    scalar.is_some_and(|scalar| scalar.kind == ScalarKind::Float)
}

/// True for statements without loops.
fn ends(block: &Block) -> bool {
    block.iter().all(|statement| match statement {
        Statement::Loop { .. } => false,
        Statement::Block(block) => ends(block),
        Statement::If { accept, reject, .. } => ends(accept) && ends(reject),
        Statement::Switch { cases, .. } => cases.iter().all(|case| ends(&case.body)),
        _ => true,
    })
}
