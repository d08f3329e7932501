//! Bounds of what a plan that was read from a file may ask for, so that nothing overflows or takes memory without end.

use rewire_graph::{Dim, MAX_RANK};
use rewire_graph_rewrite::plan::{Kernel, Output, Plan, Reduction, RowRange, ShapeEntry};
use std::collections::HashSet;

/// Extents of attention that are plain numbers.
const WIDEST: usize = 1 << 20;

/// Checks sizes, ranks and names.
pub(super) fn check(plan: &Plan) -> Result<(), String> {
    check_slots(plan)?;
    for (position, buffer) in plan.buffers.iter().enumerate() {
        check_shape(&buffer.shape).map_err(|reason| format!("buffer {position} {reason}"))?;
        if buffer.source.is_resident() && buffer.shape.iter().any(|dim| dim.as_const().is_none()) {
            return Err(format!("buffer {position} is held from run to run, and its shape depends on inputs"));
        }
    }
    let mut names = HashSet::new();
    for output in &plan.outputs {
        check_shape(&output.shape).map_err(|reason| format!("output `{}` {reason}", output.name))?;
        if !names.insert(&output.name) {
            return Err(format!("there are two outputs `{}`", output.name));
        }
    }
    Ok(())
}

/// Slots are filled by inputs and entries, so that there are no more of them than of these.
fn check_slots(plan: &Plan) -> Result<(), String> {
    let most = plan.host_inputs.len() + plan.shapes.entries.len();
    if plan.shapes.slots > most {
        return Err(format!("the shape program has {} slots, and {most} inputs and entries", plan.shapes.slots));
    }
    let filled = plan.shapes.entries.iter().filter_map(|entry| match entry {
        ShapeEntry::Compute { output, .. } => Some(output),
        ShapeEntry::Define { .. } => None,
    });
    for slot in plan.host_inputs.iter().map(|input| &input.slot).chain(filled) {
        if slot.0 as usize >= plan.shapes.slots {
            return Err(format!("the shape program fills slot {}, it has {}", slot.0, plan.shapes.slots));
        }
    }
    plan.host_inputs
        .iter()
        .try_for_each(|input| check_shape(&input.shape).map_err(|reason| format!("input `{}` {reason}", input.name)))
}

fn check_shape(shape: &[Dim]) -> Result<(), String> {
    if shape.len() > MAX_RANK {
        return Err(format!("has {} dimensions, more than {MAX_RANK}", shape.len()));
    }
    let counted = |n: i64| i32::try_from(n).is_ok();
    let fits = |dim: &Dim| counted(dim.constant()) && dim.terms().all(|(_, factor)| counted(factor));
    match shape.iter().find(|dim| !fits(dim)) {
        Some(dim) => Err(format!("has a size of {dim}, which no kernel can count")),
        None => Ok(()),
    }
}

/// Checks the sizes of a kernel.
pub(super) fn check_kernel(kernel: &Kernel) -> Result<(), String> {
    let body = kernel.body();
    // The sizes are as many as expressions refer to, and no extents of one tensor.
    body.sizes.iter().try_for_each(|dim| check_shape(std::slice::from_ref(dim)))?;
    body.operands.iter().try_for_each(|operand| check_shape(&operand.shape))?;
    kernel.outputs().into_iter().try_for_each(check_output)?;
    let reduced = |reductions: &[Reduction]| reductions.iter().map(|r| r.extent.clone()).collect::<Vec<_>>();
    match kernel {
        Kernel::Map(kernel) => check_loop(&kernel.extents),
        Kernel::Reduce(kernel) => {
            check_loop(&kernel.extents)?;
            check_shape(&reduced(&kernel.reductions))
        }
        Kernel::Matmul(kernel) => {
            let sizes = [kernel.n.clone(), kernel.k.clone()];
            check_shape(&[&kernel.batch[..], &sizes, &rows(&kernel.m)].concat())?;
            check_shape(&reduced(&kernel.stats))
        }
        Kernel::Attention(kernel) => {
            let widest = [kernel.heads, kernel.qk_width, kernel.v_width].into_iter().max().unwrap_or(0);
            if widest > WIDEST {
                return Err(format!("has {widest} heads or columns, more than {WIDEST}"));
            }
            check_shape(&[vec![kernel.samples.clone()], rows(&kernel.rows), rows(&kernel.keys)].concat())
        }
        Kernel::Custom(kernel) => {
            let count = body.operands.len();
            match kernel.operands.iter().find(|position| usize::from(**position) >= count) {
                Some(position) => Err(format!("has operand {position}, there are {count}")),
                None => check_shape(&[kernel.shape.as_slice(), &kernel.shader.extents].concat()),
            }
        }
    }
}

fn rows(range: &RowRange) -> Vec<Dim> {
    match range {
        RowRange::Dense(dim) => vec![dim.clone()],
        RowRange::Ragged { .. } => vec![],
    }
}

fn check_loop(extents: &[Dim]) -> Result<(), String> {
    if extents.is_empty() { Err("has a loop without dimensions".to_owned()) } else { check_shape(extents) }
}

fn check_output(output: &Output) -> Result<(), String> {
    if output.index.len() != output.shape.len() {
        let (expected, actual) = (output.shape.len(), output.index.len());
        return Err(format!("writes a tensor of {expected} dimensions at an index of {actual}"));
    }
    match output.columns {
        Some((start, end)) if start >= end || i32::try_from(end).is_err() => {
            Err(format!("writes the columns {start}..{end}"))
        }
        _ => check_shape(&output.shape),
    }
}
