use crate::args::{Common, Format, Graph as Options, MappingTarget, Passes, Stage};
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::plan;
use rewire::emit::emit;
use rewire::emit::mapping::map;
use rewire::graph::op::{Fused, HostOp};
use rewire::graph::{DifferentiateError, Graph, Node, Remarks, Seed, differentiate};
use rewire::graph_rewrite::RewriteError;
use rewire::graph_rewrite::cost::{ASSUMED_ROWS, ASSUMED_SAMPLES, HardwareModel, Sizes, kernels, operators, traffic};
use rewire::graph_rewrite::device::{EmittedKernel, Target, Tuning};
use rewire::graph_rewrite::lower::{kernel, lower};
use rewire::graph_rewrite::passes::{Pipeline, SelectRows};
use rewire::graph_rewrite::plan::{Binding, Plan};
use rewire::graph_rewrite::recompute::{Timeline, recompute};
use rewire::program::ModelFile;
use rewire::rank::{self, Precision, RankError};
use rewire::runtime::transfers;
use rewire::{Gpu, Kernel, KernelRule};
use rewire_measure::Machines;
use rewire_verify::GoldenCase;
use serde::Serialize;
use similar::TextDiff;
use std::collections::BTreeMap;

/// Properties of a graph.
#[derive(Debug, Serialize)]
struct Counts {
    stage: &'static str,
    nodes: usize,
    kernels: usize,
    host_steps: usize,
    /// Fused operators that are computed once, when parameters are bound.
    load_steps: usize,
    parameters: usize,
    bytes: usize,
    /// Bytes that the operators of a run read and write, as traced and rewritten.
    bytes_before: u64,
    bytes_after: u64,
    /// Bytes of the tensors between kernels, if operators are kernels.
    peak_bytes: Option<u64>,
    /// The roofline floor of the kernels, one per operator.
    predicted_ms: f64,
    /// The device of the prediction.
    machine: String,
    ops: BTreeMap<String, usize>,
}

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let (machine_name, machine) = machine(common)?;
    let pipeline = pipeline(&options.passes)?.for_machine(machine);
    if options.view.bisect {
        return bisect(options, &pipeline, output);
    }
    let traced = match &*options.model {
        None => rank::trace(&demo::config()?)?,
        Some(path) if ModelFile::is_at(path) => {
            let file = ModelFile::open(path, common.mapping)?;
            match file.graph()? {
                Some(graph) => graph,
                None => return plan::run(&file.plan(Precision::default())?, options, common, output),
            }
        }
        Some(path) => GoldenCase::read(path)?.trace()?.graph,
    };
    let source = match options.backward || options.stage == Stage::Differentiated {
        true => with_gradients(&traced)?,
        false => traced.clone(),
    };
    let (mut rewritten, report) = pipeline.run(source.clone())?;
    if let Some(limit) = options.memory_limit {
        let found = recompute(&rewritten, &Sizes::assumed(&rewritten), limit.get(), &machine)?;
        if found.bytes > limit.get() {
            return Err(CliError::Memory { limit: limit.get(), needed: found.bytes });
        }
        rewritten = found.graph;
    }
    if options.view.explain {
        return Ok(output.line(report.to_string().trim_end())?);
    }
    if options.view.diff {
        return Ok(output.line(diff(&source, &rewritten).trim_end())?);
    }
    if let Some(node) = options.view.wgsl {
        let target = options.target.map(|place| target(place, common)).transpose()?;
        return Ok(output.line(wgsl(&rewritten, node, target)?.trim_end())?);
    }
    if let Some(place) = options.target {
        return mapped(&lower(&rewritten)?, &target(place, common)?, common, output);
    }
    let bytes = (traffic(&source)?, traffic(&rewritten)?);
    let (stage, graph) = match options.stage {
        Stage::Traced => ("traced", traced),
        Stage::Differentiated => ("differentiated", source),
        Stage::Rewritten => ("rewritten", rewritten),
    };
    let counts = operators(&graph, &Sizes::assumed(&graph))?;
    let seconds: f64 = counts.iter().map(|(_, count)| machine.seconds(count)).sum();
    if common.json {
        return Ok(output.json(&count(stage, &graph, bytes, (seconds, machine_name))?)?);
    }
    let remarks = Remarks {
        nodes: counts.iter().map(|(id, count)| (*id, remark(machine.seconds(count), count.bytes()))).collect(),
        graph: vec![format!(
            "{} operators in a run, {} predicted on {machine_name}, {ASSUMED_SAMPLES} samples with {ASSUMED_ROWS} rows in all",
            counts.len(),
            remark(seconds, if options.stage == Stage::Rewritten { bytes.1 } else { bytes.0 }),
        )],
    };
    let drawing = match options.format {
        Format::Text => graph.text_with(&remarks),
        Format::Dot => graph.dot_with(&remarks),
        Format::Svg => graph.svg_with(&remarks),
    };
    Ok(output.line(drawing.trim_end())?)
}

/// A graph with the gradients of all float parameters, or of inputs if there are none; the gradients of its outputs are inputs.
fn with_gradients(graph: &Graph) -> Result<Graph, DifferentiateError> {
    let is_float = |node: &Node| node.types.iter().all(|ty| ty.dtype.is_float() && ty.dtype.format().is_written());
    let nodes = || graph.ids().filter_map(|id| graph.node(id)).filter(|node| is_float(node));
    let named = |is_root: bool| -> Vec<&str> {
        nodes().filter(|node| node.is_root() == is_root).filter_map(|node| node.op.role().name()).collect()
    };
    let (parameters, inputs) = (named(false), named(true));
    let wanted = if parameters.is_empty() { inputs } else { parameters };
    let outputs = graph.outputs().iter().filter(|(_, value)| graph.node(value.node).is_some_and(is_float));
    let inputs: Vec<(&str, String)> = outputs.map(|(name, _)| (name.as_str(), format!("grad_out.{name}"))).collect();
    let seeds: Vec<(&str, Seed<'_>)> = inputs.iter().map(|(name, input)| (*name, Seed::Input(input))).collect();
    differentiate(&SelectRows.select(graph)?, &seeds, &wanted)
}

/// The device for predictions: the requested adapter, if it was measured, or a mid-range GPU.
fn machine(common: &Common) -> Result<(String, HardwareModel), CliError> {
    let machines = Machines::usual_path().map(|path| Machines::read(&path)).transpose()?;
    let asked = match (&common.adapter, common.kernel) {
        (Some(adapter), _) => Some(adapter.as_str()),
        (None, Kernel::Cpu) => Some("cpu"),
        (None, _) => None,
    };
    let found = machines.as_ref().zip(asked).and_then(|(machines, asked)| machines.find(asked));
    let typical = || ("a typical GPU".to_owned(), HardwareModel::TYPICAL);
    Ok(found.map_or_else(typical, |(name, machine)| (name.to_owned(), *machine)))
}

fn remark(seconds: f64, bytes: u64) -> String {
    format!("{:.4} ms, {:.1} KiB", seconds * 1e3, bytes as f64 / 1024.0)
}

/// The mapping of a step.
#[derive(Debug, Serialize)]
struct Mapped {
    step: usize,
    name: String,
    path: String,
    /// Storage bindings on the target, if it can run the step.
    bindings: Option<usize>,
    /// Why the target cannot run the step, so that the CPU runs it.
    refused: Option<String>,
    /// The option --kernel-for that applies to the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_for: Option<String>,
    /// Results of earlier steps that move between the target and the host before the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<String>,
}

pub fn target(of: MappingTarget, common: &Common) -> Result<Target, CliError> {
    match of {
        MappingTarget::Baseline => Ok(Target::BASELINE),
        MappingTarget::Adapter => {
            let gpu = Gpu::for_kernel(common.kernel, common.adapter.as_deref())?;
            let gpu = Gpu::with_matrix_tier_if(gpu, common.matrices)?;
            let missing = || CliError::NoDevice(common.adapter.clone().unwrap_or_default());
            Ok(gpu.ok_or_else(missing)?.target().clone())
        }
    }
}

/// Prints where each step runs.
pub fn mapped(plan: &Plan, target: &Target, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let rules = KernelRule::of_steps(&common.kernel_for, &plan.steps).map_err(RankError::from)?;
    let kernels = map(plan, target, &Tuning::default());
    let is_mapped = |(kernel, rule): (&Result<EmittedKernel, _>, &Option<&KernelRule>)| {
        kernel.is_ok() && rule.is_none_or(|rule| rule.kernel != Kernel::Cpu)
    };
    let on_device: Vec<bool> = kernels.iter().zip(&rules).map(is_mapped).collect();
    let mut transfers = transfers(plan, &on_device).into_iter().peekable();
    for (number, ((step, kernel), rule)) in plan.steps.iter().zip(kernels).zip(rules).enumerate() {
        let transfer = transfers.next_if(|transfer| transfer.step == number);
        let moved = transfer.iter().flat_map(|transfer| &transfer.tensors);
        let moved: Vec<String> = moved.map(|id| plan::name(plan, &Binding::Buffer(*id))).collect();
        let (bindings, refused) = match kernel {
            Ok(kernel) => (Some(kernel.slots.len()), None),
            Err(refusal) => (None, Some(refusal.reason.to_string())),
        };
        if common.json {
            let (name, path, kernel_for) = (step.name.clone(), step.path.clone(), rule.map(KernelRule::to_string));
            output.json(&Mapped { step: number, name, path, bindings, refused, kernel_for, moved })?;
            continue;
        }
        if let Some(transfer) = transfer {
            let place = if transfer.to_device { "target" } else { "CPU" };
            output.line(format_args!("  to the {place}: {}", moved.join(", ")))?;
        }
        let place = match (bindings, refused, rule) {
            (_, _, Some(rule)) if rule.kernel == Kernel::Cpu => format!("on the CPU, by {rule}"),
            (Some(count), ..) => format!("{count} of {} bindings", target.storage_buffers),
            (None, reason, _) => format!("on the CPU, {}", reason.unwrap_or_default()),
        };
        output.line(format_args!("{number} {} `{}`: {place}", step.name, step.path))?;
    }
    Ok(())
}

fn pipeline(options: &Passes) -> Result<Pipeline, CliError> {
    let mut pipeline = Pipeline::default();
    if let Some(count) = options.passes_up_to {
        pipeline = pipeline.up_to(count);
    }
    for name in &options.without {
        pipeline = pipeline.without(name)?;
    }
    if let Some(name) = &options.only {
        pipeline = pipeline.only(name)?;
    }
    Ok(pipeline.explain())
}

fn bisect(options: &Options, pipeline: &Pipeline, output: &mut Output) -> Result<(), CliError> {
    let path = options.model.as_ref().filter(|path| path.is_file()).ok_or(CliError::NoCase)?;
    match rewire_verify::bisect(&GoldenCase::read(path)?, pipeline)? {
        None => Ok(output.line("every rewrite keeps the results")?),
        Some(found) => Ok(output.line(format_args!("the results change with {found}"))?),
    }
}

/// Lines that are only in one of two graphs, in order, without node numbers.
fn diff(before: &Graph, after: &Graph) -> String {
    let lines = |graph: &Graph| -> String {
        let text = graph.text();
        let lines = text.lines().filter(|line| !line.starts_with(' '));
        lines.map(|line| format!("{}\n", unnumbered(line))).collect()
    };
    let (before, after) = (lines(before), lines(after));
    let changes = TextDiff::from_lines(&before, &after);
    changes.iter_all_changes().map(|change| format!("{}{change}", change.tag())).collect()
}

/// `%3 = add(%1, %2) : f32[4]  # path` as `add : f32[4]  # path`.
fn unnumbered(line: &str) -> String {
    let rest = line.split_once(" = ").map_or(line, |(name, rest)| if name.starts_with('%') { rest } else { name });
    match (rest.find("(%").or_else(|| rest.find("()")), rest.find(") : ")) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &rest[..open], &rest[close + 1..]),
        _ => rest.to_owned(),
    }
}

/// The WGSL of a kernel for a target; by default the baseline, with as many storage buffers as the kernel needs.
fn wgsl(graph: &Graph, node: usize, target: Option<Target>) -> Result<String, CliError> {
    let failed = |reason: String| CliError::NoKernel { node, reason };
    let order = graph.order().map_err(|error| failed(error.to_string()))?;
    let (id, found) = order
        .get(node)
        .and_then(|&id| Some((id, graph.node(id)?)))
        .ok_or_else(|| failed(format!("the graph has nodes %0 to %{}", order.len().saturating_sub(1))))?;
    let kernel = kernel(graph, id).map_err(|error| failed(error.to_string()))?;
    let kernel = kernel.ok_or_else(|| failed(format!("{} is not computed by a kernel", found.op.name())))?;
    let emitted = emit(&kernel, &shown_for(target), &Tuning::default()).map_err(|error| failed(error.to_string()))?;
    Ok(with_bindings(&emitted))
}

/// The target for showing a kernel; by default the baseline, with as many storage buffers as the kernel needs.
pub fn shown_for(target: Option<Target>) -> Target {
    target.unwrap_or(Target { storage_buffers: u32::MAX, ..Target::BASELINE })
}

/// The WGSL of a kernel, with a remark if the baseline has too few storage buffers for it.
pub fn with_bindings(kernel: &EmittedKernel) -> String {
    let (needed, baseline) = (kernel.slots.len(), Target::BASELINE.storage_buffers as usize);
    let remark = match needed > baseline {
        true => format!("// {needed} storage buffers, where the baseline of WebGPU has {baseline}\n"),
        false => String::new(),
    };
    remark + &kernel.wgsl
}

fn count(
    stage: &'static str,
    graph: &Graph,
    (bytes_before, bytes_after): (u64, u64),
    (seconds, machine): (f64, String),
) -> Result<Counts, CliError> {
    let timeline = (stage == "rewritten").then(|| Timeline::of(graph)).transpose()?;
    let peak_bytes = timeline.map(|timeline| timeline.bytes(&Sizes::assumed(graph)));
    let host_steps = graph.ids().filter(|&id| graph.op::<HostOp>(id).is_some()).count();
    let fixed = graph.fixed().map_err(|source| RewriteError::graph("counts", source))?;
    let load_steps = graph.ids().filter(|&id| fixed.contains(&id) && graph.op::<Fused>(id).is_some()).count();
    let sizes = || {
        graph
            .parameters()
            .into_iter()
            .map(|p| (p.shape.iter().product::<usize>(), p.dtype.format().host_bytes(&p.shape).unwrap_or(usize::MAX)))
    };
    Ok(Counts {
        stage,
        nodes: graph.len(),
        kernels: kernels(graph)?,
        host_steps,
        load_steps,
        parameters: sizes().map(|(elements, _)| elements).sum(),
        bytes: sizes().map(|(_, bytes)| bytes).sum(),
        bytes_before,
        bytes_after,
        peak_bytes,
        predicted_ms: seconds * 1e3,
        machine,
        ops: graph.counts(),
    })
}
