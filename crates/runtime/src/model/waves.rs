//! Steps that may run in parallel.

use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, Step};
use std::ops::Range;

/// Number of neighbouring steps from which waves are made: a step that runs much earlier would hold its results for
/// longer.
const NEIGHBOURS: usize = 8;

/// Divides steps into waves that run one after another. No step of a wave reads or writes a tensor that another step of
/// it writes.
pub(super) fn waves(plan: &Plan, steps: Range<usize>) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = vec![];
    for first in steps.clone().step_by(NEIGHBOURS) {
        let start = waves.len();
        for n in first..(first + NEIGHBOURS).min(steps.end) {
            let waits = |wave: &Vec<usize>| wave.iter().any(|&other| waits(&plan.steps[n], &plan.steps[other]));
            let wave = waves.iter().rposition(waits).map_or(start, |last| (last + 1).max(start));
            match waves.get_mut(wave) {
                Some(wave) => wave.push(n),
                None => waves.push(vec![n]),
            }
        }
    }
    waves
}

/// True if a step has to run after an earlier one.
fn waits(step: &Step, earlier: &Step) -> bool {
    let reads = |step: &Step, id: &BufferId| step.reads.contains(&Binding::Buffer(*id));
    earlier.writes.iter().any(|id| reads(step, id) || step.writes.contains(id))
        || step.writes.iter().any(|id| reads(earlier, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph_rewrite::plan::{Body, Computation, Nest};

    fn step(reads: &[u32], writes: &[u32]) -> Step {
        Step {
            name: String::new(),
            path: String::new(),
            computation: Computation::of(Nest::map(Body::default(), vec![1.into()], vec![])).unwrap(),
            reads: reads.iter().map(|&id| Binding::Buffer(BufferId(id))).collect(),
            writes: writes.iter().map(|&id| BufferId(id)).collect(),
        }
    }

    #[test]
    fn steps_wait_for_what_they_read_and_for_readers_of_what_they_write() {
        let steps = vec![
            step(&[0], &[1]),
            step(&[1], &[2]),
            step(&[0], &[3]),
            // It writes another part of a tensor.
            step(&[3], &[2]),
            // It overwrites an input of an earlier step.
            step(&[], &[0]),
            step(&[2, 3], &[4]),
            step(&[], &[5]),
        ];
        let plan = Plan { steps, ..Plan::default() };
        assert_eq!(waves(&plan, 0..7), [vec![0, 2, 6], vec![1, 4], vec![3], vec![5]]);
        assert_eq!(waves(&plan, 5..7), [[5, 6]]);
    }

    #[test]
    fn only_neighbours_share_a_wave() {
        let plan = Plan { steps: (0..20).map(|n| step(&[], &[n])).collect(), ..Plan::default() };
        let waves = waves(&plan, 2..20);
        assert_eq!(waves.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 2]);
        assert!(waves.concat().into_iter().eq(2..20));
    }
}
