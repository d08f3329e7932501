//! Workloads with their backward pass.

use crate::draft::{DraftError, take};
use crate::{BenchError, Noise, Program, Workload};
use rewire_graph::shape::HostProgram;
use rewire_graph::{DifferentiateError, Graph, HostTensor, Layout, Seed, Symbol, Type, differentiate};
use rewire_graph_rewrite::passes::SelectRows;
use rewire_runtime::HostMemory;
use std::collections::{BTreeMap, HashMap};

impl Workload {
    /// The same workload with gradients of all float inputs and parameters. Gradients of the outputs are random inputs.
    pub(crate) fn with_gradients(self, noise: &mut Noise, memory: &mut HostMemory) -> Result<Self, BenchError> {
        let (op, graph) = (&self.op, self.graph()?);
        let mut inputs = self.inputs.clone();
        let failed = |error: DraftError| BenchError::draft(op, error);
        let nodes = graph.ids().filter_map(|id| graph.node(id));
        let of_floats = nodes.filter(|node| node.types.iter().all(is_differentiable));
        let is_state = |name: &&str| graph.states().iter().any(|state| state == name);
        let names = of_floats.filter_map(|node| node.op.role().name());
        let wanted: Vec<&str> = names.filter(|name| !is_state(name)).collect();
        let outputs: Vec<(&str, &Type)> =
            graph.outputs().iter().filter_map(|(name, value)| Some((name.as_str(), graph.ty(*value)?))).collect();
        let sizes = sizes(graph, &inputs, self.state_rows)?;
        let mut given: Vec<(&str, String)> = vec![];
        for (name, ty) in outputs.into_iter().filter(|(name, ty)| is_differentiable(ty) && !is_state(name)) {
            let shape: Vec<usize> =
                ty.shape.iter().filter_map(|dim| dim.evaluate(|symbol| sizes.get(&symbol).copied())).collect();
            take(memory, ty.dtype, &shape).map_err(|error| failed(error.into()))?;
            let gradient = noise.floats(ty.dtype, &shape).map_err(|error| failed(error.into()))?;
            given.push((name, format!("grad_out.{name}")));
            inputs.push((format!("grad_out.{name}"), gradient));
        }
        let seeds: Vec<(&str, Seed<'_>)> = given.iter().map(|(name, input)| (*name, Seed::Input(input))).collect();
        let graph = differentiate(&SelectRows.select(graph).map_err(DifferentiateError::from)?, &seeds, &wanted)?;
        Ok(Self { program: Program::Graph(graph), inputs, ..self })
    }
}

fn is_differentiable(ty: &Type) -> bool {
    ty.layout == Layout::Device && ty.dtype.is_float() && ty.dtype.format().is_written()
}

/// The values of the graph's symbolic sizes.
fn sizes(
    graph: &Graph,
    inputs: &[(String, HostTensor)],
    state_rows: usize,
) -> Result<BTreeMap<Symbol, i64>, BenchError> {
    let program = HostProgram::of(graph).map_err(DifferentiateError::from)?;
    let named: HashMap<&str, &HostTensor> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let host = program.inputs.iter().filter_map(|input| Some((input, named.get(input.name.as_str())?.to_i64())));
    let extent = |name: &str, axis: usize| match named.get(name) {
        Some(input) => input.shape().get(axis).copied(),
        None => Some(state_rows).filter(|_| axis == 0 && graph.states().iter().any(|state| state == name)),
    };
    Ok(program.shapes.run(host, extent)?.symbols)
}
