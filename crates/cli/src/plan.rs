//! The kernels of a package without a configuration, and therefore without a graph.

use crate::args::{Common, Format, Graph as Options, Stage};
use crate::error::CliError;
use crate::graph::{mapped, shown_for, target, with_bindings};
use crate::output::Output;
use rewire::emit::mapping::map_step;
use rewire::graph_rewrite::device::{Target, Tuning};
use rewire::graph_rewrite::plan::{Binding, Buffer, BufferId, Plan, Source, Step};
use serde::Serialize;

/// Properties of a plan.
#[derive(Debug, Serialize)]
struct Counts {
    stage: &'static str,
    kernels: usize,
    /// Kernels that run once, when parameters are bound.
    load_steps: usize,
    /// Elements of all parameters.
    parameters: usize,
    bytes: usize,
}

impl Counts {
    fn of(plan: &Plan) -> Self {
        let extents = |shape: &[rewire::graph::Dim]| shape.iter().filter_map(|dim| dim.as_const()).collect::<Vec<_>>();
        let shapes = || plan.parameters().map(|parameter| (parameter.dtype, extents(parameter.shape)));
        Self {
            stage: "packaged",
            kernels: plan.steps.len(),
            load_steps: plan.load.len(),
            parameters: shapes().map(|(_, shape)| shape.iter().product::<usize>()).sum(),
            bytes: shapes().map(|(dtype, shape)| dtype.format().host_bytes(&shape).unwrap_or(usize::MAX)).sum(),
        }
    }
}

/// Prints the kernels of a package, in the form that `options` select.
pub fn run(plan: &Plan, options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let Options { stage, backward, memory_limit, format, passes, view, .. } = options;
    let passes = passes.passes_up_to.is_some() || !passes.without.is_empty() || passes.only.is_some();
    let of_graph = passes || *backward || memory_limit.is_some() || view.explain || view.diff || view.bisect;
    if of_graph || *stage != Stage::Rewritten || *format != Format::Text {
        let model = options.model.as_ref().map(|model| model.display().to_string()).unwrap_or_default();
        return Err(CliError::NoGraph { model });
    }
    let target = options.target.map(|place| target(place, common)).transpose()?;
    if let Some(node) = view.wgsl {
        return Ok(output.line(wgsl(plan, node, target)?.trim_end())?);
    }
    if let Some(target) = target {
        return mapped(plan, &target, common, output);
    }
    let counts = Counts::of(plan);
    if common.json {
        return Ok(output.json(&counts)?);
    }
    let Counts { kernels, load_steps, parameters, bytes, .. } = counts;
    output.line(format_args!(
        "; {kernels} kernels in a run, {load_steps} when parameters are bound, {parameters} parameters of {bytes} bytes"
    ))?;
    plan.steps.iter().enumerate().try_for_each(|(at, step)| Ok(output.line(line(plan, at, step))?))
}

/// `0 matmul(x, weight) -> %2 f32[s0, 3]  # path`.
fn line(plan: &Plan, at: usize, step: &Step) -> String {
    let reads: Vec<String> = step.reads.iter().map(|read| name(plan, read)).collect();
    let written = |id: &BufferId| {
        let buffer = plan.buffer(*id);
        let shape: Vec<String> =
            buffer.iter().flat_map(|buffer| &buffer.shape).map(|dim| plan.shapes.display(dim)).collect();
        let dtype = buffer.map(|buffer| buffer.dtype.to_string()).unwrap_or_default();
        format!("{} {dtype}[{}]", name(plan, &Binding::Buffer(*id)), shape.join(", "))
    };
    let writes: Vec<String> = step.writes.iter().map(written).collect();
    let path = if step.path.is_empty() { String::new() } else { format!("  # {}", step.path) };
    format!("{at} {}({}) -> {}{path}", step.name, reads.join(", "), writes.join(", "))
}

/// The name of a tensor, or its number.
pub fn name(plan: &Plan, binding: &Binding) -> String {
    match binding {
        Binding::Host(slot) => format!("host {}", slot.0),
        Binding::Buffer(id) => match plan.buffer(*id) {
            Some(Buffer { source: Source::Input(name) | Source::State(name) | Source::Parameter(name), .. }) => {
                name.clone()
            }
            _ => match plan.outputs.iter().find(|output| output.value == *binding) {
                Some(output) => output.name.clone(),
                None => format!("%{}", id.0),
            },
        },
    }
}

fn wgsl(plan: &Plan, node: usize, target: Option<Target>) -> Result<String, CliError> {
    let failed = |reason: String| CliError::NoKernel { node, reason };
    let last = plan.steps.len().saturating_sub(1);
    let step = plan.steps.get(node).ok_or_else(|| failed(format!("the package has the kernels 0 to {last}")))?;
    let kernel = map_step(node, step, &shown_for(target), &Tuning::default());
    Ok(with_bindings(&kernel.map_err(|refusal| failed(refusal.to_string()))?))
}
