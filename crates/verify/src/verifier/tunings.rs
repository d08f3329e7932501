use super::{CaseReport, Loaded, Verifier};
use rewire_graph_rewrite::device::Tuning;
use rewire_runtime::cpu::Arch;
use std::path::Path;

impl Verifier {
    /// Replays a case once per tuning variant, and returns one report per replay. On the device, the variants of a step are all tunings
    /// worth measuring, with cooperative matrices and with multiply-adds. In each replay every step uses its next variant; steps without
    /// further variants use the default. If all steps run on the CPU, the case is replayed with each set of vector
    /// [instructions](Arch) of the processor.
    pub fn verify_tunings(&self, path: &Path) -> Vec<CaseReport> {
        let mut opened = self.report(path);
        let mut loaded = match self.load(path, &mut opened) {
            Ok(loaded) => loaded,
            Err(failure) => return vec![opened.or_failure(Err::<(), _>(failure))],
        };
        if loaded.session.report().gpu_steps == 0 {
            return self.instructions(loaded, &opened);
        }
        let steps = loaded.session.plan().steps.iter().enumerate();
        let variants: Vec<(String, Vec<Tuning>)> = steps
            .map(|(position, step)| (step.name.clone(), loaded.session.model().candidate_tunings(position)))
            .collect();
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

    fn instructions(&self, mut loaded: Loaded, opened: &CaseReport) -> Vec<CaseReport> {
        let replay = |arch: &Arch| {
            arch.select();
            let mut report = CaseReport { variant: Some(arch.name().to_owned()), ..opened.clone() };
            let compared = self.compare(&mut loaded, &mut report);
            report.or_failure(compared)
        };
        let reports = Arch::all().iter().map(replay).collect();
        Arch::all().iter().take(1).for_each(|widest| widest.select());
        reports
    }
}
