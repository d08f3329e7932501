//! Splits a model into its lookups and the remaining computation.

use crate::{BenchError, Program, Workload};
use rewire_graph::op::Input;
use rewire_graph::{Graph, GraphError, HostTensor, NodeId};
use rewire_graph_rewrite::split::{Parts, lookups, split};
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions};

impl Workload {
    /// Splits the workload, and returns `lookup`, `dense` and `whole`: table lookups by ids that are inputs, the computation on the looked-up
    /// rows, and the original workload, which may fuse kernels of both.
    ///
    /// ```no_run
    /// # fn example(bench: &rewire_measure::Bench, model: &rewire_measure::Workload) -> Result<(), rewire_measure::BenchError> {
    /// for part in model.parts()? {
    ///     println!("{}: {:?} ms", part.op, bench.run(&part).wall_ms);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BenchError::NoLookups`] if there are no such lookups, and errors of rewriting and running the lookups, whose results are
    /// inputs of `dense`.
    pub fn parts(&self) -> Result<[Self; 3], BenchError> {
        let failed = |error: GraphError| BenchError::Trace { op: self.op.clone(), source: Box::new(error.into()) };
        let Parts { first, second, boundary, .. } = split(self.graph()?, by_inputs).map_err(failed)?;
        if boundary.is_empty() {
            return Err(BenchError::NoLookups { name: self.op.clone() });
        }
        let lookup = self.part("lookup", &first, &[])?;
        let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let model = Model::load(lookup.plan()?, &lookup.parameters, options)?;
        let outputs = model.session().run(&Inputs::from_iter(lookup.inputs.iter().cloned()))?;
        let rows: Vec<(String, HostTensor)> =
            boundary.iter().filter_map(|name| Some((name.clone(), outputs.get(name)?.clone()))).collect();
        Ok([lookup, self.part("dense", &second, &rows)?, Self { op: "whole".to_owned(), ..self.clone() }])
    }

    /// A workload with another graph. `others` are additional inputs; inputs and parameters that the graph does not read are removed.
    fn part(&self, op: &str, graph: &Graph, others: &[(String, HostTensor)]) -> Result<Self, BenchError> {
        let mut part = Self { op: op.to_owned(), program: Program::Graph(graph.clone()), ..self.clone() };
        part.inputs.extend_from_slice(others);
        let plan = part.plan()?;
        part.inputs.retain(|(name, _)| plan.inputs().any(|input| input.name == name));
        part.parameters.retain(|name, _| plan.parameters().any(|parameter| parameter.name == name));
        Ok(part)
    }
}

/// True for a lookup by ids that are an input.
fn by_inputs(graph: &Graph, id: NodeId) -> bool {
    lookups(graph, id) && graph.inputs(id).get(1).is_some_and(|index| graph.op::<Input>(index.node).is_some())
}
