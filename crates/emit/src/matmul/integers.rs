//! int8 matmuls: left operands are quantised per row by the largest absolute value of the row, right operands are int8
//! as stored.

use super::{Parts, lies_along, point, statistics};
use crate::EmitError;
use crate::coords::Coords;
use crate::device_function::{Element, Four, elements, function};
use crate::expr::Code;
use crate::module::Module;
use crate::value::WgslValue;
use minijinja::Value as Variable;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::schedule::{Bound, Product};

/// The right operand and its index, for an int8 matmul.
pub(super) fn operand<'n>(kernel: &Bound<'n, Product>) -> Option<(u16, &'n [ExprId])> {
    kernel.integers().filter(|_| !lies_along(kernel, kernel.a, (kernel.row(), kernel.depth)))
}

/// The types in the template.
pub(super) fn types(integers: bool) -> [(&'static str, Variable); 5] {
    let [vector, zero, sum, zero_sum] = match integers {
        true => ["vec4<u32>", "vec4<u32>()", "vec4<i32>", "vec4<i32>()"],
        false => ["vec4<f32>", "vec4<f32>(0.0f)", "vec4<f32>", "vec4<f32>(0.0f)"],
    };
    let texts = [("vector", vector), ("zero", zero), ("sum", sum), ("zero_sum", zero_sum)];
    let [a, b, c, d] = texts.map(|(name, text)| (name, Variable::from(text)));
    [("integers", integers.into()), a, b, c, d]
}

/// The template's device functions and variables: words of the right operand with the scales of its columns, and the
/// largest absolute value of each row of the left operand as an additional statistic.
pub(super) fn parts(
    kernel: &Bound<'_, Product>,
    module: &mut Module,
    (right, index): (u16, &[ExprId]),
) -> Result<Parts, EmitError> {
    let mut parts = Parts::new(kernel, module, [Element::Float, Element::Word])?;
    let Some(extent) = kernel.k.dense() else {
        return Err(EmitError::Form { reason: "a product of integers has a ragged depth".to_owned() });
    };
    let (row, depth, position) = (kernel.row(), kernel.depth, kernel.stats.len());
    let four = Four { coords: &point(kernel, (row, "m"), (depth, "k")), axis: depth, extent };
    let (values, more) = statistics(position, false);
    let root = (kernel.a, Element::Float, "");
    parts.functions += &elements(&format!("stat_{position}"), module, &four, (&values, &more), root)?;
    parts.stats.push(Variable::from_pairs([
        ("identity", "0.0f".to_owned()),
        ("extent", module.dim(extent)),
        ("earlier", (0..position).map(|s| format!(", statistic_{s}[row]")).collect()),
        ("join", "max(total, abs(value))".to_owned()),
        ("total", "max(max(total.x, total.y), max(total.z, total.w))".to_owned()),
    ]));
    parts.variables.push(("largest", format!("statistic_{position}").into()));
    parts.functions += &scales(kernel, module, (right, index))?;
    Ok(parts)
}

/// The functions that load the scale of a column, and the scales of four neighbouring columns.
fn scales(
    kernel: &Bound<'_, Product>,
    module: &mut Module,
    (right, index): (u16, &[ExprId]),
) -> Result<String, EmitError> {
    let batch = || (0..kernel.row()).map(|n| format!("c{n}"));
    let column = Coords::first(batch()).with(kernel.column(), "n");
    let mut code = Code::point(&point(kernel, (kernel.column(), "n"), (kernel.depth, "0")), &[]);
    let index: Vec<String> = code.eval(module, index)?.iter().map(WgslValue::first).collect();
    let scale = module.load_scale(right, &index)?;
    code.line(&format!("return {scale};"));
    let one = function("column_scale", &column, "", "vec2<f32>", &code.take());
    let arguments: String = batch().map(|c| format!("{c}, ")).collect();
    let load = |l: usize| format!("let s{l} = column_scale({arguments}min(n + {l}, columns - 1));\n");
    let body =
        (0..4).map(load).collect::<String>() + "return mat2x4<f32>(s0.x, s1.x, s2.x, s3.x, s0.y, s1.y, s2.y, s3.y);\n";
    Ok(one + &function("column_scales", &column, ", columns: i32", "mat2x4<f32>", &body))
}
