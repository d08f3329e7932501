//! Functions of a user's own in a shader.

use super::EmitError;
use super::validate::{check, parse};
use naga::valid::Capabilities;
use naga::{ScalarKind, TypeInner};
use rewire_graph::pointwise::Function;

/// What a user's declaration is called in a shader that holds several users' declarations and those of the emitter.
pub(super) fn renamed(name: &str, number: usize) -> String {
    format!("custom{number}_{name}")
}

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
    let functions = module.functions.iter().filter_map(|(_, function)| function.name.clone());
    let types = module.types.iter().filter_map(|(_, ty)| ty.name.clone());
    let constants = module.constants.iter().filter_map(|(_, constant)| constant.name.clone());
    let names: Vec<String> = functions.chain(types).chain(constants).collect();
    Ok(format!("{}\n\n", with_names(wgsl.trim(), &names, number)))
}

/// The text with the declared names replaced; what follows a dot is a member.
fn with_names(text: &str, names: &[String], number: usize) -> String {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_name) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_name(c)).unwrap_or(from.len()));
        result += before;
        match names.iter().any(|name| name == word) && !result.trim_end().ends_with('.') {
            true => result += &renamed(word, number),
            false => result += word,
        }
        rest = after;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_change_and_members_do_not() {
        let names = ["f".to_owned(), "x".to_owned()];
        let text = with_names("fn f(v: vec2<f32>) -> f32 { return v.x + x(1.0f, xf); }", &names, 3);
        assert_eq!(text, "fn custom3_f(v: vec2<f32>) -> f32 { return v.x + custom3_x(1.0f, xf); }");
    }
}
