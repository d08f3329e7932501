use crate::args::{Common, Format, Graph as Options, Stage};
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use rewire::graph::op::{Fused, HostOp};
use rewire::graph::{Graph, Node};
use rewire::graph_rewrite::passes::kernels;
use rewire::hstu::models::parameters;
use rewire::rank;
use rewire::verify::Case;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a graph holds.
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
    ops: BTreeMap<String, usize>,
}

pub fn run(options: &Options, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let traced = match &options.model {
        None => rank::trace(&demo::config()?)?,
        Some(path) if path.is_dir() => rank::trace(&rank::read_config(path)?)?,
        Some(path) => Case::read(path)?.trace()?.graph,
    };
    let (stage, graph) = match options.stage {
        Stage::Traced => ("traced", traced),
        Stage::Rewritten => ("rewritten", rewire::optimize(traced)?.0),
    };
    if common.json {
        return Ok(output.json(&count(stage, &graph))?);
    }
    let drawing = match options.format {
        Format::Text => graph.text(),
        Format::Dot => graph.dot(),
        Format::Svg => graph.svg(),
    };
    Ok(output.line(drawing.trim_end())?)
}

fn count(stage: &'static str, graph: &Graph) -> Counts {
    let nodes: Vec<&Node> = graph.ids().filter_map(|id| graph.node(id)).collect();
    let host_steps = nodes.iter().filter(|node| is::<HostOp>(node)).count();
    let fixed = graph.fixed().unwrap_or_default();
    let load_steps = graph.ids().filter(|id| fixed.contains(id) && graph.node(*id).is_some_and(is::<Fused>)).count();
    let sizes = || parameters(graph).into_iter().map(|p| (p.shape.iter().product::<usize>(), p.dtype.bytes()));
    Counts {
        stage,
        nodes: nodes.len(),
        kernels: kernels(graph),
        host_steps,
        load_steps,
        parameters: sizes().map(|(elements, _)| elements).sum(),
        bytes: sizes().map(|(elements, bytes)| elements * bytes).sum(),
        ops: graph.counts(),
    }
}

fn is<T: rewire::graph::op::Op>(node: &Node) -> bool {
    node.op.downcast_ref::<T>().is_some()
}
