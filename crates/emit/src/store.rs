//! Statements that write the outputs of a kernel.

use super::EmitError;
use super::expr::Code;
use super::module::{Module, check_rank};
use super::storage::has_groups;
use super::value::WgslValue;
use rewire_graph::Dim;
use rewire_graph::pointwise::{Dag, Expr, ExprId, Lanes};
use rewire_graph_rewrite::plan::{Body, MemorySpace, Output};

fn check(module: &Module, output: &Output) -> Result<(), EmitError> {
    check_rank("output", output.target, output.shape.len(), output.index.len())?;
    let got = module.body.dag.scalar(output.value);
    if got != output.dtype.scalar() {
        let place = format!("output {}", output.target);
        return Err(EmitError::Type { place, expected: output.dtype.to_string(), got });
    }
    Ok(())
}

/// Writes the element of one point.
pub(super) fn store_point(code: &mut Code, module: &mut Module, output: &Output) -> Result<(), EmitError> {
    check(module, output)?;
    let mut roots = output.index.clone();
    roots.push(output.value);
    let mut values = code.eval(module, &roots)?;
    let Some(value) = values.pop() else { return Err(EmitError::Missing { what: "value", index: 0, count: 0 }) };
    let index: Vec<_> = values.iter().map(WgslValue::first).collect();
    let at = module.address((output.dtype, &output.shape), &index, false);
    let line = module.store(output.target, output.dtype, &at, &value.first());
    code.line(&line);
    Ok(())
}

/// Writes the element of an output for one point with last coordinate `column`, if the output includes this column.
fn store_point_in_columns(
    code: &mut Code,
    module: &mut Module,
    column: &str,
    output: &Output,
) -> Result<(), EmitError> {
    let Some((start, end)) = output.columns else { return store_point(code, module, output) };
    let mut inner = code.inner();
    store_point(&mut inner, module, output)?;
    code.block(&format!("if ({column} >= {start} && {column} < {end})"), &inner.take());
    Ok(())
}

/// Writes the elements of four neighbouring points along coordinate `axis`, the first at `column`.
fn store_four(
    code: &mut Code,
    module: &mut Module,
    (axis, column, extent): (u8, &str, &Dim),
    output: &Output,
) -> Result<(), EmitError> {
    check(module, output)?;
    let width = extent.as_const();
    let (start, end) = match output.columns {
        Some((start, end)) if start > 0 || width.is_none_or(|width| end < width) => (start, Some(end)),
        _ => return store_four_whole(code, module, (axis, 0, width), output),
    };
    let mut inner = code.inner();
    let mut conditions = vec![];
    if start > 0 {
        conditions.push(if start % 4 == 0 {
            format!("{column} >= {start}")
        } else {
            format!("{column} + 3 >= {start}")
        });
    }
    if let Some(end) = end {
        conditions.push(format!("{column} < {end}"));
    }
    if start % 4 != 0 || end.is_some_and(|end| end % 4 != 0) {
        let name = module.name();
        let lanes = format!("({column} + vec4<i32>(0, 1, 2, 3))");
        let end = end.map_or_else(|| module.dim(extent), |end| end.to_string());
        let outer = inner.valid().map(|valid| format!(" & {valid}")).unwrap_or_default();
        inner.line(&format!("let {name} = ({lanes} >= vec4<i32>({start})) & ({lanes} < vec4<i32>({end})){outer};"));
        inner.restrict(name);
    }
    store_four_whole(&mut inner, module, (axis, start, end), output)?;
    code.block(&format!("if ({})", conditions.join(" && ")), &inner.take());
    Ok(())
}

fn store_four_whole(
    code: &mut Code,
    module: &mut Module,
    (axis, start, end): (u8, usize, Option<usize>),
    output: &Output,
) -> Result<(), EmitError> {
    let mut roots = output.index.clone();
    roots.push(output.value);
    let mut values = code.eval(module, &roots)?;
    let Some(value) = values.pop() else { return Ok(()) };
    let scalar = output.dtype.scalar();
    let classes: Vec<_> = output.index.iter().map(|&i| code.class(i)).collect();
    let valid = code.valid().map(str::to_owned);
    let group = Lanes::is_vector_load(&classes) && has_groups(output.dtype);
    if !group {
        return store_lanes(code, module, &values, &value, output);
    }
    let first: Vec<_> = values.iter().map(WgslValue::first).collect();
    let at = module.address((output.dtype, &output.shape), &first, true);
    let line = module.store4(output.target, output.dtype, &at, &value.vector(scalar));
    match valid {
        Some(valid) if !(start % 4 == 0 && ends_row(&module.body.dag, axis, end, output)) => {
            let mut whole = code.inner();
            whole.line(&line);
            let mut part = code.inner();
            store_lanes(&mut part, module, &values, &value, output)?;
            let text = whole.take();
            code.block(&format!("if (all({valid}))"), &text);
            code.block(&format!("if (!all({valid}))"), &part.take());
        }
        _ => code.line(&line),
    }
    Ok(())
}

fn store_lanes(
    code: &mut Code,
    module: &mut Module,
    index: &[WgslValue],
    value: &WgslValue,
    output: &Output,
) -> Result<(), EmitError> {
    for (lane, component) in ["x", "y", "z", "w"].iter().enumerate() {
        let index: Vec<_> = index.iter().map(|i| i.lane(lane)).collect();
        let at = module.address((output.dtype, &output.shape), &index, false);
        let line = module.store(output.target, output.dtype, &at, &value.lane(lane));
        match code.valid().map(|valid| format!("if ({valid}.{component})")) {
            Some(head) => code.block(&head, &format!("{line}\n")),
            None => code.line(&line),
        }
    }
    Ok(())
}

/// True if the columns after the last written one are padding of the output's row.
fn ends_row(dag: &Dag, axis: u8, end: Option<usize>, output: &Output) -> bool {
    let (Some(&last), Some(width)) = (output.index.last(), output.shape.last()) else { return false };
    let Some((1, shift)) = dag.along(&dag.affine(last), axis) else { return false };
    match (end, width.as_const(), shift.as_constant()) {
        (Some(end), Some(width), Some(shift)) => end as i128 + shift == width as i128,
        _ => false,
    }
}

/// True if four neighbouring elements of an operand can be loaded at once.
pub(super) fn has_vector_load(body: &Body, operand: u16) -> bool {
    let operand = body.operands.get(usize::from(operand));
    operand.is_some_and(|operand| operand.space != MemorySpace::Host && has_groups(operand.dtype))
}

/// True if a load's index is itself loaded, such as rows of a table by ids.
pub(super) fn looks_up(body: &Body, roots: &[ExprId]) -> bool {
    let dag = &body.dag;
    let is_device = |operand: u16| {
        body.operands.get(usize::from(operand)).is_some_and(|operand| operand.space != MemorySpace::Host)
    };
    let names = |id: ExprId| matches!(dag.expr(id), Expr::Load { operand, .. } if is_device(*operand));
    dag.reachable(roots).into_iter().any(|id| match dag.expr(id) {
        Expr::Load { index, .. } => dag.reachable(index).into_iter().any(names),
        _ => false,
    })
}

/// Number of loads and stores along coordinate `axis` that access four neighbouring elements at once.
pub(super) fn vector_accesses(body: &Body, axis: u8, roots: &[ExprId], outputs: &[Output]) -> usize {
    let dag = &body.dag;
    let lanes = Lanes::along(dag, axis);
    let is_vector = |index: &[ExprId]| {
        let classes: Vec<_> = index.iter().filter_map(|i| lanes.get(i.0 as usize).copied()).collect();
        Lanes::is_vector_load(&classes)
    };
    let mut all = roots.to_vec();
    all.extend(outputs.iter().flat_map(Output::roots));
    let loads = dag.reachable(&all).into_iter().filter(|&id| match dag.expr(id) {
        Expr::Load { operand, index } => has_vector_load(body, *operand) && is_vector(index),
        _ => false,
    });
    loads.count() + outputs.iter().filter(|output| has_groups(output.dtype) && is_vector(&output.index)).count()
}

/// Writes the elements of all outputs for four neighbouring points along coordinate `axis`.
pub(super) fn store_all_four(
    code: &mut Code,
    module: &mut Module,
    place: (u8, &str, &Dim),
    outputs: &[Output],
) -> Result<(), EmitError> {
    code.eval(module, &everywhere(outputs))?;
    outputs.iter().try_for_each(|output| store_four(code, module, place, output))
}

/// Writes the elements of all outputs for one point with last coordinate `column`.
pub(super) fn store_all_point(
    code: &mut Code,
    module: &mut Module,
    column: &str,
    outputs: &[Output],
) -> Result<(), EmitError> {
    code.eval(module, &everywhere(outputs))?;
    outputs.iter().try_for_each(|output| store_point_in_columns(code, module, column, output))
}

/// The expressions of outputs that are written in every column.
pub(super) fn everywhere(outputs: &[Output]) -> Vec<ExprId> {
    let whole = outputs.iter().filter(|output| output.columns.is_none());
    whole.flat_map(Output::roots).collect()
}
