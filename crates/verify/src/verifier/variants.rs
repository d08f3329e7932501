use super::{CaseReport, Verifier};
use rewire_graph_rewrite::emit::Tuning;
use std::path::Path;

impl Verifier {
    /// Replays a case as often as its steps on the device have variants: cooperative matrices and multiply-adds, each with all
    /// tunings that are worth a measurement. Each time every step is forced to its next one; those that have no more run as
    /// they do otherwise. A report each.
    pub fn variants(&self, path: &Path) -> Vec<CaseReport> {
        let mut opened = self.report(path);
        let mut loaded = match self.load(path, &mut opened) {
            Ok(loaded) => loaded,
            Err(failure) => return vec![opened.or_failure(Err::<(), _>(failure))],
        };
        let steps = loaded.session.plan().steps.iter().enumerate();
        let variants: Vec<(String, Vec<Tuning>)> =
            steps.map(|(position, step)| (step.name.clone(), loaded.session.model().variants(position))).collect();
        let rounds = variants.iter().map(|(_, tunings)| tunings.len()).max().unwrap_or(0).max(1);
        let replay = |round: usize| {
            let mut forced: Vec<String> = vec![];
            for (position, (name, tunings)) in variants.iter().enumerate() {
                let tuning = tunings.get(round).copied();
                loaded.session.force(position, tuning);
                let text = tuning.map(|tuning| format!("{name} {tuning}")).filter(|text| !forced.contains(text));
                forced.extend(text);
            }
            let mut report = CaseReport { variant: Some(forced.join("; ")), ..opened.clone() };
            let compared = self.compare(&mut loaded, &mut report);
            report.or_failure(compared)
        };
        (0..rounds).map(replay).collect()
    }
}
