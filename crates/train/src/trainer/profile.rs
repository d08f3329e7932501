//! Profiles of steps.

use super::Trainer;
use rewire_graph_rewrite::cost::Count;
use rewire_runtime::{Detail, Inputs, Outputs, Profile, RunError};
use std::time::Duration;

/// The fastest batch since profiles are recorded.
#[derive(Debug, Default)]
pub(super) struct Fastest(Option<(Duration, Profile, Vec<Count>)>);

impl Trainer {
    /// Starts to time every kernel of every batch, for [`Trainer::profile`].
    pub fn record_profile(&mut self) {
        self.fastest = Some(Fastest::default());
    }

    /// The profile of the batch with the fastest kernels since [`Trainer::record_profile`], and the bytes and operations of every step of
    /// [`Trainer::plan`]. `None` if no batch was timed.
    pub fn profile(&self) -> Option<(&Profile, &[Count])> {
        let (_, profile, counts) = self.fastest.as_ref()?.0.as_ref()?;
        Some((profile, counts))
    }

    /// Runs the step's plan on a batch.
    pub(super) fn run(&mut self, inputs: &Inputs) -> Result<Outputs, RunError> {
        let Some(Fastest(fastest)) = &mut self.fastest else { return self.session.run(inputs) };
        let (outputs, profile) = self.session.run_timed(inputs, Detail::Steps)?;
        let time = profile.spans.iter().filter(|span| span.step.is_some()).map(|span| span.duration).sum();
        if fastest.as_ref().is_none_or(|(least, ..)| time < *least) {
            *fastest = Some((time, profile, self.session.counts(inputs)?));
        }
        Ok(outputs)
    }
}
