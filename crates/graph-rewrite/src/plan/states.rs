use super::{Binding, BufferId, Plan, PlanError, Source};
use std::collections::{HashMap, HashSet};

impl Plan {
    /// Checks that a state has extents that are constants or single sizes, a unique name, and the same type after a run.
    pub(super) fn check_states(&self) -> Result<(), PlanError> {
        let mut names: HashSet<&str> = self.host_inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = self.buffers.iter().filter_map(|buffer| Some((buffer, buffer.source.run_name()?)));
        let (states, others): (Vec<_>, Vec<_>) =
            inputs.partition(|(buffer, _)| matches!(buffer.source, Source::State(_)));
        names.extend(others.into_iter().map(|(_, name)| name));
        for (buffer, name) in states {
            let wrong = |reason: &str| Err(PlanError::new(format!("state `{name}`"), reason));
            if !names.insert(name) {
                return wrong("has the name of another input or state");
            }
            if buffer.shape.iter().any(|dim| dim.as_const().is_none() && dim.as_symbol().is_none()) {
                return wrong("is held from run to run, and its shape depends on inputs");
            }
            let after = self.outputs.iter().find(|output| output.name == name);
            if after.is_some_and(|after| (after.dtype, &after.shape) != (buffer.dtype, &buffer.shape)) {
                return wrong("is set to a value of another type or shape");
            }
            if after.is_some_and(|after| matches!(after.value, Binding::Host(_))) {
                return wrong("is set to a value of the shape program");
            }
        }
        self.check_writes()
    }

    /// Checks that at most one step writes a state in place, after all its readers, and that this is the new value of
    /// the state.
    fn check_writes(&self) -> Result<(), PlanError> {
        let mut written: HashMap<BufferId, &str> = HashMap::new();
        let state = |id: &BufferId| match &self.buffer(*id)?.source {
            Source::State(name) => Some((*id, name.as_str())),
            _ => None,
        };
        if let Some((_, name)) = self.load.iter().flat_map(|step| &step.writes).find_map(state) {
            return Err(PlanError::new(format!("state `{name}`"), "is set when the plan is loaded"));
        }
        for step in &self.steps {
            let twice = step.writes.iter().find_map(|id| written.get(id)).copied();
            written.extend(step.writes.iter().filter_map(state));
            let mut reads = step.reads.iter().filter_map(|read| match read {
                Binding::Buffer(id) => written.get(id),
                Binding::Host(_) => None,
            });
            if let Some(name) = twice.or_else(|| reads.next().copied()) {
                let reason = format!("is read or set by {} (`{}`) after a step has set it", step.name, step.path);
                return Err(PlanError::new(format!("state `{name}`"), reason));
            }
        }
        for (id, name) in written {
            let mut results = self.outputs.iter().filter(|output| output.value == Binding::Buffer(id));
            if results.next().is_none_or(|output| output.name != name) || results.next().is_some() {
                let reason = "is set in place, and what it was or another value is an output";
                return Err(PlanError::new(format!("state `{name}`"), reason));
            }
        }
        Ok(())
    }
}
