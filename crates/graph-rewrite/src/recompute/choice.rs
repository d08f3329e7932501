use super::timeline::Timeline;
use rewire_graph::{Arrange, NodeId};
use std::collections::HashMap;

/// Largest number of kernels that are repeated together.
const TOGETHER: usize = 8;

/// Costs of kernels and tensors.
pub(super) struct Costs {
    pub seconds: HashMap<NodeId, f64>,
    /// Bytes of each tensor.
    pub bytes: Vec<u64>,
}

/// A candidate repetition: a kernel, and the kernels that must run again before it.
struct Choice {
    /// Steps to repeat, in order.
    again: Vec<usize>,
    wanted: usize,
    /// The step before which the repeated steps run.
    at: usize,
    /// Predicted seconds per freed byte.
    price: f64,
}

/// Properties of a timeline.
struct StepInfo {
    spans: Vec<Option<(usize, usize)>>,
    /// By tensor, the step that writes it.
    writer: Vec<Option<usize>>,
    /// Bytes in use, by step.
    live: Vec<u64>,
}

impl Costs {
    /// At the peak of memory use, repeats the kernel that frees the most bytes per second of its run time. Returns
    /// false if no kernel frees any.
    pub fn improve(&mut self, timeline: &mut Timeline) -> bool {
        let facts = self.facts(timeline);
        let Some(peak) = (0..facts.live.len()).max_by_key(|&step| facts.live[step]) else { return false };
        let mut choices: Vec<Choice> =
            (0..peak).flat_map(|wanted| self.choices(timeline, &facts, wanted, peak)).collect();
        choices.arrange_by(|a, b| a.price.total_cmp(&b.price));
        let before = height(&facts.live, facts.live[peak]);
        for choice in choices {
            let mut next = timeline.clone();
            next.repeat(&choice.again, choice.wanted, choice.at);
            self.extend(&next);
            if height(&self.facts(&next).live, facts.live[peak]) < before {
                *timeline = next;
                return true;
            }
            self.bytes.truncate(timeline.tensors.len());
        }
        false
    }

    /// Sets the bytes of the tensors of repetitions, which equal those of the originals.
    fn extend(&mut self, timeline: &Timeline) {
        let known: HashMap<_, _> = timeline.tensors.iter().map(|tensor| tensor.value).zip(self.bytes.clone()).collect();
        let more = timeline.tensors.iter().skip(self.bytes.len());
        self.bytes.extend(more.map(|tensor| known.get(&tensor.value).copied().unwrap_or(0)));
    }

    fn facts(&self, timeline: &Timeline) -> StepInfo {
        let spans = timeline.spans();
        let mut writer = vec![None; timeline.tensors.len()];
        for (at, step) in timeline.steps.iter().enumerate() {
            step.writes.iter().for_each(|&tensor| writer[tensor] = Some(at));
        }
        let mut changes = vec![0i128; timeline.steps.len() + 1];
        for (tensor, span) in spans.iter().enumerate() {
            if let Some((first, last)) = *span {
                changes[first] += i128::from(self.bytes[tensor]);
                changes[last + 1] -= i128::from(self.bytes[tensor]);
            }
        }
        let sums = changes.iter().scan(0i128, |sum, change| {
            *sum += change;
            Some(u64::try_from(*sum).unwrap_or(u64::MAX))
        });
        StepInfo { live: sums.take(timeline.steps.len()).collect(), spans, writer }
    }

    /// The candidates for repeating a step whose results are live at step `peak`.
    fn choices(&self, timeline: &Timeline, facts: &StepInfo, wanted: usize, peak: usize) -> Vec<Choice> {
        let step = &timeline.steps[wanted];
        let over = |&tensor: &usize| {
            let is_over = facts.spans[tensor].is_some_and(|(first, last)| first < peak && peak < last);
            is_over && !timeline.tensors[tensor].is_output && !timeline.steps[peak].reads.contains(&tensor)
        };
        let kept: Vec<usize> = step.writes.iter().copied().filter(over).collect();
        let next = |tensor: &usize| (peak + 1..timeline.len()).find(|&at| timeline.steps[at].reads.contains(tensor));
        let Some(at) = kept.iter().filter_map(next).min().filter(|_| step.is_repeatable) else { return vec![] };
        let gained: u64 = kept.iter().map(|&tensor| self.bytes[tensor]).sum();
        let found = [false, true].into_iter().filter_map(|is_deep| {
            let (again, lost) = self.needed(timeline, facts, wanted, (peak, at), is_deep)?;
            let gained = gained.checked_sub(lost).filter(|&gained| gained > 0)?;
            let seconds: f64 = again.iter().filter_map(|&step| self.seconds.get(&timeline.steps[step].node)).sum();
            Some(Choice { again, wanted, at, price: seconds / gained as f64 })
        });
        found.collect()
    }

    /// The steps to repeat so that `wanted` can run before step `at`, and the additional bytes that this keeps live at
    /// step `peak`: operands or, if `is_deep`, operands of the kernels that compute them.
    fn needed(
        &self,
        timeline: &Timeline,
        facts: &StepInfo,
        wanted: usize,
        (peak, at): (usize, usize),
        is_deep: bool,
    ) -> Option<(Vec<usize>, u64)> {
        let (mut again, mut kept, mut position) = (vec![wanted], vec![], 0);
        while let Some(&step) = again.get(position) {
            position += 1;
            for &tensor in &timeline.steps[step].reads {
                let Some((_, last)) = facts.spans[tensor].filter(|(_, last)| *last < at) else { continue };
                let writer = facts.writer[tensor].filter(|&step| is_deep && timeline.steps[step].is_repeatable);
                match writer {
                    Some(writer) if !again.contains(&writer) => again.push(writer),
                    Some(_) => {}
                    None if last < peak && !kept.contains(&tensor) => kept.push(tensor),
                    None => {}
                }
            }
            if again.len() > TOGETHER {
                return None;
            }
        }
        again.sort_unstable();
        Some((again, kept.iter().map(|&tensor| self.bytes[tensor]).sum()))
    }
}

/// The peak of memory use, and the number of steps at which it is at least `least`, or 0 if it is less.
fn height(live: &[u64], least: u64) -> (u64, usize) {
    let most = live.iter().copied().max().unwrap_or(0);
    (most, live.iter().filter(|&&bytes| bytes >= least).count())
}
