//! Runs whose kernels are compiled while a model is loaded.

use crate::RunError;
use crate::session::{Declared, Inputs, Shapes, Sizes};
use rewire_graph::{Dim, Ordered};
use rewire_graph_rewrite::plan::{Buffer, Plan};
use std::sync::Arc;

/// A plan, and the runs that its model expects first.
///
/// Which tiles suit a kernel depends on the sizes of a run. Loading compiles the kernels for the sizes of these runs, together;
/// without any, those for unknown sizes, and a run that needs others compiles them.
#[derive(Clone, Debug, Default)]
pub struct ExpectedPlan {
    /// The plan.
    pub plan: Plan,
    /// The runs. One that does not fit the plan is ignored.
    pub runs: Vec<ExpectedRun>,
}

impl From<Plan> for ExpectedPlan {
    fn from(plan: Plan) -> Self {
        Self { plan, runs: vec![] }
    }
}

/// A run that is expected.
#[derive(Clone, Debug, Default)]
pub struct ExpectedRun {
    /// Its inputs, on the host.
    pub inputs: Inputs,
    /// The rows of states whose first extent the app defines ([`Session::reserve_states`](crate::Session::reserve_states)).
    pub state_rows: usize,
}

impl ExpectedRun {
    fn sizes(&self, plan: &Plan) -> Result<Sizes, RunError> {
        let declared = Declared::of(plan);
        let bound = Declared::find(plan, &declared, &self.inputs)?;
        let extent = |dim: &Dim| dim.as_const().unwrap_or(self.state_rows);
        let shape = |buffer: &Buffer| buffer.shape.iter().map(extent).collect();
        let states: Shapes =
            plan.states().into_iter().map(|(name, buffer)| (name.to_owned(), shape(buffer))).ordered_map();
        let names: Arc<[String]> = plan.shapes.names.clone().into();
        Sizes::new(plan, (&declared, &names), &bound, &states, None)
    }
}

/// The sizes of the runs that fit the plan.
pub(super) fn sizes(plan: &Plan, runs: &[ExpectedRun]) -> Vec<Sizes> {
    let fitting = |run: &ExpectedRun| {
        run.sizes(plan).inspect_err(|reason| tracing::debug!("an expected run does not fit: {reason}")).ok()
    };
    runs.iter().filter_map(fitting).collect()
}
