use rewire_graph_rewrite::plan::Step;
use serde::Serialize;
use std::time::Duration;
use web_time::Instant;

/// The granularity of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Consecutive steps on a site together, which does not change their execution.
    #[default]
    Passes,
    /// Every step. On devices without timestamps within a pass, every step gets its own pass.
    Steps,
}

/// The executor of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The thread that runs the session: sizes, uploads, submission, waiting.
    Host,
    /// Kernels on the CPU.
    Cpu,
    /// Kernels on the adapter, by its own clock.
    Gpu,
}

/// A timed interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// The executor.
    pub lane: Lane,
    /// The activity, or the name of the step.
    pub name: String,
    /// Module path of the step.
    pub path: String,
    /// Position of the step in the plan.
    pub step: Option<usize>,
    /// Time since the run began. Work on the adapter is assumed to begin with its submission.
    pub start: Duration,
    /// Duration.
    pub duration: Duration,
}

/// The profile of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Ordered by end time.
    pub spans: Vec<Span>,
    /// Time of the passes on the adapter, by its own clock. `None` without an adapter or timestamps, or if more steps
    /// are timed than it supports.
    pub gpu: Option<Duration>,
    /// Time of the steps on the CPU.
    pub cpu: Duration,
}

/// Records the times of a run, if enabled.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Recording>);

#[derive(Debug)]
struct Recording {
    begun: Instant,
    detail: Detail,
    profile: Profile,
    /// End time of the latest step on the CPU.
    cpu_until: Option<Instant>,
}

impl Recorder {
    pub fn new(detail: Detail) -> Self {
        Self(Some(Recording { begun: Instant::now(), detail, profile: Profile::default(), cpu_until: None }))
    }

    /// The granularity; `None` if disabled.
    pub fn detail(&self) -> Option<Detail> {
        self.0.as_ref().map(|recording| recording.detail)
    }

    /// The current time, if enabled.
    pub fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    /// Records work of the host from `since` until now.
    pub fn host(&mut self, name: &str, since: Option<Instant>) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            recording.add(Lane::Host, name, "", None, since, since.elapsed());
        }
    }

    /// Records a step on the CPU, with start and duration. Parallel steps are recorded in the order of their ends.
    pub fn cpu(&mut self, position: usize, step: &Step, spent: Option<(Instant, Duration)>) {
        if let (Some(recording), Some((since, duration))) = (&mut self.0, spent) {
            let begun = recording.cpu_until.map_or(since, |until| until.max(since));
            recording.profile.cpu += (since + duration).saturating_duration_since(begun);
            recording.cpu_until = Some(since + duration);
            recording.add(Lane::Cpu, &step.name, &step.path, Some(position), since, duration);
        }
    }

    /// Records a pass of the adapter from `start` to `end`, relative to `since`.
    pub fn pass(&mut self, since: Option<Instant>, start: Duration, end: Duration) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            let duration = end.saturating_sub(start);
            *recording.profile.gpu.get_or_insert_default() += duration;
            recording.add(Lane::Gpu, "pass", "", None, since + start, duration);
        }
    }

    /// Records a step of the adapter from `start` to `end`, relative to `since`.
    pub fn gpu(&mut self, position: usize, step: &Step, since: Option<Instant>, [start, end]: [Duration; 2]) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            let duration = end.saturating_sub(start);
            recording.add(Lane::Gpu, &step.name, &step.path, Some(position), since + start, duration);
        }
    }

    /// The recorded profile.
    pub fn finish(self) -> Profile {
        self.0.map(|recording| recording.profile).unwrap_or_default()
    }
}

impl Recording {
    fn add(&mut self, lane: Lane, name: &str, path: &str, step: Option<usize>, since: Instant, duration: Duration) {
        let start = since.saturating_duration_since(self.begun);
        self.profile.spans.push(Span { lane, name: name.to_owned(), path: path.to_owned(), step, start, duration });
    }
}
