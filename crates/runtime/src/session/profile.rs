use rewire_graph_rewrite::plan::Step;
use serde::Serialize;
use std::time::Duration;
use web_time::Instant;

/// How closely a run is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All steps of a site in a row together, which leaves them as they run without.
    #[default]
    Passes,
    /// Every step. Devices that cannot take the time within a pass give every step a pass of its own.
    Steps,
}

/// What did something in a run.
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

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// What did it.
    pub lane: Lane,
    /// What was done; the name of the step where it is one.
    pub name: String,
    /// Module path of the step.
    pub path: String,
    /// Position of the step in the plan.
    pub step: Option<usize>,
    /// Time since the run began. What the adapter does is taken to begin with its submission.
    pub start: Duration,
    /// Time it took.
    pub duration: Duration,
}

/// What a run spent its time on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// In order of their ends.
    pub spans: Vec<Span>,
    /// Time of the passes on the adapter, by its own clock. `None` without an adapter, where it has no timestamps, or
    /// more steps are timed than it has room for.
    pub gpu: Option<Duration>,
    /// Time of the steps on the CPU.
    pub cpu: Duration,
}

/// Takes the time of a run, if asked to.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Recording>);

#[derive(Debug)]
struct Recording {
    begun: Instant,
    detail: Detail,
    profile: Profile,
    /// When the latest step on the CPU ended.
    cpu_until: Option<Instant>,
}

impl Recorder {
    pub fn new(detail: Detail) -> Self {
        Self(Some(Recording { begun: Instant::now(), detail, profile: Profile::default(), cpu_until: None }))
    }

    /// How closely is timed; `None` if it is not.
    pub fn detail(&self) -> Option<Detail> {
        self.0.as_ref().map(|recording| recording.detail)
    }

    /// The time, if it is taken.
    pub fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    /// Notes what the host did from `since` till now.
    pub fn host(&mut self, name: &str, since: Option<Instant>) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            recording.add(Lane::Host, name, "", None, since, since.elapsed());
        }
    }

    /// Notes a step that the CPU ran, from when on and for how long. Steps that ran side by side come in the order of their ends.
    pub fn cpu(&mut self, position: usize, step: &Step, spent: Option<(Instant, Duration)>) {
        if let (Some(recording), Some((since, duration))) = (&mut self.0, spent) {
            let begun = recording.cpu_until.map_or(since, |until| until.max(since));
            recording.profile.cpu += (since + duration).saturating_duration_since(begun);
            recording.cpu_until = Some(since + duration);
            recording.add(Lane::Cpu, &step.name, &step.path, Some(position), since, duration);
        }
    }

    /// Notes a pass of the adapter that took from `start` to `end` after `since`.
    pub fn pass(&mut self, since: Option<Instant>, start: Duration, end: Duration) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            let duration = end.saturating_sub(start);
            *recording.profile.gpu.get_or_insert_default() += duration;
            recording.add(Lane::Gpu, "pass", "", None, since + start, duration);
        }
    }

    /// Notes a step of the adapter that took from `start` to `end` after `since`.
    pub fn gpu(&mut self, position: usize, step: &Step, since: Option<Instant>, [start, end]: [Duration; 2]) {
        if let (Some(recording), Some(since)) = (&mut self.0, since) {
            let duration = end.saturating_sub(start);
            recording.add(Lane::Gpu, &step.name, &step.path, Some(position), since + start, duration);
        }
    }

    /// What was noted.
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
