//! Outputs that are complete before the last step.

use super::{Binding, BufferId, Plan, PlanOutput, Step};
use std::collections::{BTreeMap, BTreeSet};

impl Plan {
    /// Moves steps so that some outputs are complete early: a step on which only these outputs depend runs right after the steps that it
    /// depends on.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, [4, 4]);
    /// let first = x.matmul(&x);
    /// let (y, early) = (first.matmul(&first), first.sum(1).exp());
    /// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", y), ("early", early)])?)?;
    /// let mut plan = rewire_graph_rewrite::lower(&graph)?;
    /// plan.complete_early(|output| output == "early");
    /// let written = |name: &str| plan.outputs.iter().find(|output| output.name == name).map(|output| output.value);
    /// let last = plan.steps.last().map(|step| rewire_graph_rewrite::plan::Binding::Buffer(step.writes[0]));
    /// assert!(plan.steps.len() > 2 && last == written("y"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete_early(&mut self, is_early: impl Fn(&str) -> bool) {
        let moves = self.serve_only(is_early);
        let mut places: Vec<usize> = vec![];
        let (mut writer, mut readers) = (BTreeMap::new(), BTreeMap::<BufferId, usize>::new());
        for (position, step) in self.steps.iter().enumerate() {
            let touched = read(step).chain(step.writes.iter().copied());
            let written = touched.filter_map(|id| writer.get(&id).copied());
            let overwritten = step.writes.iter().filter_map(|id| readers.get(id).copied());
            let after = written.chain(overwritten).max().unwrap_or(0);
            let place = if moves.contains(&position) { after } else { position };
            places.push(place);
            writer.extend(step.writes.iter().map(|id| (*id, place)));
            for id in read(step) {
                let last = readers.entry(id).or_default();
                *last = place.max(*last);
            }
        }
        let mut placed: Vec<(usize, Step)> = places.into_iter().zip(std::mem::take(&mut self.steps)).collect();
        // Steps at one place keep their order.
        placed.sort_by_key(|(place, _)| *place);
        self.steps = placed.into_iter().map(|(_, step)| step).collect();
    }

    /// The steps on which only these outputs depend.
    fn serve_only(&self, is_early: impl Fn(&str) -> bool) -> BTreeSet<usize> {
        let others = self.outputs.iter().filter(|output| !is_early(&output.name)).filter_map(buffer);
        // Buffers that other steps or outputs need.
        let mut needed: BTreeSet<BufferId> = others.collect();
        needed.extend((0..).map(BufferId).zip(&self.buffers).filter(|(id, _)| self.is_state(*id)).map(|(id, _)| id));
        let mut serving = BTreeSet::new();
        for (position, step) in self.steps.iter().enumerate().rev() {
            if step.writes.iter().any(|id| needed.contains(id)) {
                needed.extend(read(step));
            } else {
                serving.insert(position);
            }
        }
        serving
    }
}

fn buffer(output: &PlanOutput) -> Option<BufferId> {
    match output.value {
        Binding::Buffer(id) => Some(id),
        Binding::Host(_) => None,
    }
}

/// The buffers that a step reads.
fn read(step: &Step) -> impl Iterator<Item = BufferId> {
    step.reads.iter().filter_map(|read| if let Binding::Buffer(id) = read { Some(*id) } else { None })
}
