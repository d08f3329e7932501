use crate::RuntimeError;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph_rewrite::plan::{
    Binding, Body, BufferId, Check, Computation, MemorySpace, Operand, Plan, Source, Step,
};
use std::collections::HashMap;

/// Checks that all references in a plan exist.
pub(crate) fn validate(plan: &Plan) -> Result<(), RuntimeError> {
    plan.check_limits().map_err(|error| RuntimeError::Plan { reason: error.to_string() })?;
    let mut written = vec![false; plan.buffers.len()];
    let loading = plan.when_loading();
    for (what, plan, source) in [("load step", &*loading, Source::Load), ("step", plan, Source::Step)] {
        let steps = if source == Source::Load { &plan.load } else { &plan.steps };
        for (position, step) in steps.iter().enumerate() {
            check_step(plan, step, &source, &mut written).map_err(|reason| RuntimeError::Plan {
                reason: format!("{what} {position} ({}, `{}`) {reason}", step.name, step.path),
            })?;
        }
    }
    check_places(plan)?;
    for output in &plan.outputs {
        check_output(plan, output.value, &written)
            .map_err(|reason| RuntimeError::Plan { reason: format!("output `{}` {reason}", output.name) })?;
    }
    Ok(())
}

/// Either all readers of a tensor expect it in a pool, or none does.
fn check_places(plan: &Plan) -> Result<(), RuntimeError> {
    let mut places: HashMap<BufferId, MemorySpace> = HashMap::new();
    let operands = plan.steps.iter().flat_map(|step| step.reads.iter().zip(&step.computation.body().operands));
    for (binding, operand) in operands {
        let Binding::Buffer(id) = binding else { continue };
        if *places.entry(*id).or_insert(operand.space) != operand.space {
            let reason = format!("buffer {} is pooled for one of its readers and not for another", id.0);
            return Err(RuntimeError::Plan { reason });
        }
    }
    Ok(())
}

fn check_output(plan: &Plan, value: Binding, written: &[bool]) -> Result<(), String> {
    match value {
        Binding::Buffer(id) => check_read(plan, id, written),
        Binding::Host(slot) if (slot.0 as usize) < plan.shapes.slots => Ok(()),
        Binding::Host(slot) => Err(format!("reads host slot {}, which does not exist", slot.0)),
    }
}

fn check_read(plan: &Plan, id: BufferId, written: &[bool]) -> Result<(), String> {
    match plan.buffer(id) {
        None => Err(format!("reads buffer {}, which does not exist", id.0)),
        Some(buffer)
            if matches!(buffer.source, Source::Step | Source::Load) && written.get(id.0 as usize) != Some(&true) =>
        {
            Err(format!("reads buffer {} before it is written", id.0))
        }
        Some(_) => Ok(()),
    }
}

fn check_step(plan: &Plan, step: &Step, source: &Source, written: &mut [bool]) -> Result<(), String> {
    let body = step.computation.body();
    check_body(body, &step.computation.nest().map_or_else(Vec::new, |nest| nest.roots()))?;
    if step.reads.len() != body.operands.len() {
        return Err(format!("binds {} operands, its kernel has {}", step.reads.len(), body.operands.len()));
    }
    for (position, (&binding, operand)) in step.reads.iter().zip(&body.operands).enumerate() {
        check_output(plan, binding, written)?;
        if *source == Source::Load && !is_resident(plan, binding) {
            return Err(format!("has operand {position}, which is not known before a run"));
        }
        check_operand(plan, binding, operand).map_err(|reason| format!("operand {position} {reason}"))?;
    }
    for (position, &id) in step.writes.iter().enumerate() {
        let buffer = plan.buffer(id).ok_or_else(|| format!("writes buffer {}, which does not exist", id.0))?;
        let twice = step.writes[..position].contains(&id) || step.reads.contains(&Binding::Buffer(id));
        let is_state = *source == Source::Step && plan.is_state(id);
        if twice || !(is_state || buffer.source == *source) {
            return Err(format!("writes buffer {}, which it must not write", id.0));
        }
    }
    for output in step.computation.written() {
        let target = step.writes.get(usize::from(output.target)).and_then(|&id| plan.buffer(id));
        if target.map(|buffer| (buffer.dtype, buffer.shape.as_slice())) != Some((output.dtype, output.shape)) {
            return Err(format!("writes position {}, which has another type or shape", output.target));
        }
    }
    let targets: Vec<usize> = step.computation.written().iter().map(|output| output.target.into()).collect();
    if let Some(position) = (0..step.writes.len()).find(|position| !targets.contains(position)) {
        return Err(format!("binds a result at position {position} that its kernel does not write"));
    }
    for id in &step.writes {
        written[id.0 as usize] = true;
    }
    check_assumptions(plan, step)?;
    let host = |offsets: &u16| body.operands.get(usize::from(*offsets)).is_some_and(|o| o.space == MemorySpace::Host);
    match ragged(&step.computation).iter().find(|offsets| !host(offsets)) {
        Some(offsets) => Err(format!("has rows by operand {offsets}, which is not a host vector")),
        None => Ok(()),
    }
}

/// A step may rely only on the host values that the shape program checks. It relies on their declared extents, on
/// 32-bit values, and on offsets that divide samples.
fn check_assumptions(plan: &Plan, step: &Step) -> Result<(), String> {
    let body = step.computation.body();
    let has = |position: usize, fits: &dyn Fn(&Check) -> bool| match step.reads.get(position) {
        Some(Binding::Host(slot)) => plan.shapes.checks().any(|(check, slots)| slots == [*slot] && fits(check)),
        _ => true,
    };
    for (position, operand) in
        body.operands.iter().enumerate().filter(|(_, operand)| operand.space == MemorySpace::Host)
    {
        let expected = operand.shape.first().cloned().unwrap_or_else(|| 1.into());
        if !has(position, &|check| matches!(check, Check::Words { count } if *count == expected)) {
            return Err(format!("reads operand {position}, whose values the shape program does not check"));
        }
    }
    let samples = body.dag.ids().filter_map(|id| match body.dag.expr(id) {
        Expr::Sample { offsets, .. } => Some(*offsets),
        _ => None,
    });
    match samples
        .chain(ragged(&step.computation))
        .find(|offsets| !has(usize::from(*offsets), &|check| matches!(check, Check::Offsets { .. })))
    {
        Some(offsets) => {
            Err(format!("divides rows by operand {offsets}, whose offsets the shape program does not check"))
        }
        None => Ok(()),
    }
}

fn is_resident(plan: &Plan, binding: Binding) -> bool {
    match binding {
        Binding::Buffer(id) => plan.buffer(id).is_some_and(|buffer| buffer.source.is_resident()),
        Binding::Host(_) => false,
    }
}

fn check_operand(plan: &Plan, binding: Binding, operand: &Operand) -> Result<(), String> {
    match (binding, operand.space) {
        (Binding::Host(_), MemorySpace::Host) if operand.shape.len() <= 1 => Ok(()),
        (Binding::Buffer(id), place @ (MemorySpace::Device | MemorySpace::Pooled)) => match plan.buffer(id) {
            Some(buffer) if place == MemorySpace::Pooled && !buffer.source.is_resident() => {
                Err(format!("is pooled, and buffer {} is not a parameter and not computed from parameters", id.0))
            }
            Some(buffer) if (buffer.dtype, &buffer.shape) == (operand.dtype, &operand.shape) => Ok(()),
            _ => Err(format!("and buffer {} differ in type or shape", id.0)),
        },
        _ => Err("is bound in another place than its kernel expects".into()),
    }
}

fn check_body(body: &Body, roots: &[ExprId]) -> Result<(), String> {
    let dag = &body.dag;
    if let Some(root) = roots.iter().find(|root| root.0 as usize >= dag.len()) {
        return Err(format!("refers to expression {}, which does not exist", root.0));
    }
    for id in dag.ids() {
        let known = match dag.expr(id) {
            Expr::Load { operand, index } => {
                body.operands.get(usize::from(*operand)).is_some_and(|o| o.shape.len() == index.len())
            }
            Expr::Sample { offsets, .. } => usize::from(*offsets) < body.operands.len(),
            Expr::Size(position) => usize::from(*position) < body.sizes.len(),
            _ => true,
        };
        if !known || dag.expr(id).operands().iter().any(|operand| *operand >= id) {
            return Err(format!("has expression {}, which refers to nothing", id.0));
        }
    }
    Ok(())
}

/// Operands that are offsets of samples.
pub(crate) fn ragged(computation: &Computation) -> Vec<u16> {
    computation.nest().map_or_else(Vec::new, |nest| nest.offsets())
}
