//! Functions of a user's own in a shader.

use super::EmitError;
use super::names::rename;
use super::validate::{check, parse};
use naga::valid::Capabilities;
use naga::{ScalarKind, TypeInner};
use rewire_graph::pointwise::Function;

/// The declarations of a function, renamed. They are checked apart from the shader, so that they use nothing of it and
/// errors tell their lines.
pub(super) fn declarations(function: &Function, number: usize) -> Result<String, EmitError> {
    let wgsl = function.wgsl();
    let wrong =
        |line: Option<u32>, reason: String| EmitError::Custom { name: function.name().to_owned(), line, reason };
    let module = parse(wgsl).map_err(|(line, reason)| wrong(line, reason))?;
    check(&module, wgsl, Capabilities::empty()).map_err(|(line, reason)| wrong(line, reason))?;
    let others = module.global_variables.len() + module.overrides.len() + module.entry_points.len();
    if others > 0 || wgsl.contains("enable ") {
        return Err(wrong(None, "expected functions, structures and constants alone".to_owned()));
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
    Ok(format!("{}\n\n", rename(wgsl.trim(), number)))
}
