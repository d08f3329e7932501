//! Measuring the tunings of a model's kernels in the background.

use super::{Model, ModelOptions};
use crate::session::{Inputs, Session};
use crate::{Gpu, RunError};
use rewire_cpu::parallel::Process;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Plan;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, current, park_timeout};
use std::time::Duration;
use web_time::Instant;

/// When the tunings of a model's kernels are measured in the background.
///
/// After a run, a thread of the model measures the kernels of that run as [`Session::refine`] does, in runs of its own.
/// Such a run begins only while no session of the model runs, and they take a tenth of the time at most. Later runs use
/// the results, which are identical to the bit; [`ModelOptions::tunings`] stores them. Not measured are models with states, runs
/// with more than 256 MiB of tensors on the device, and devices that cannot time their kernels. The thread ends
/// with the model: dropping the last clone and session waits for the run that it is in.
///
/// ```
/// use rewire_runtime::Refining;
/// assert_eq!("never".parse(), Ok(Refining::Never));
/// assert_eq!(Refining::default().to_string(), "unknown");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Refining {
    /// On GPUs of unknown families, whose tiles are chosen without knowing their registers. Not on software adapters and devices that
    /// the app opened ([`ModelOptions::gpu`]).
    #[default]
    Unknown,
    /// On all adapters.
    Always,
    /// Never.
    Never,
}

impl Refining {
    /// True if kernels for a target are measured, on a device that the app opened or not.
    fn covers(self, target: &Target, is_apps: bool) -> bool {
        match self {
            Self::Unknown => !is_apps && !target.software && target.registers == 0,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The string is not the name of a [`Refining`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("refining: expected unknown, always or never, got `{0}`")]
pub struct ParseRefiningError(pub String);

impl fmt::Display for Refining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

impl FromStr for Refining {
    type Err = ParseRefiningError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "unknown" => Ok(Self::Unknown),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(ParseRefiningError(text.to_owned())),
        }
    }
}

/// Limit in bytes of a measured run's tensors on the device, which has them twice meanwhile.
const MOST_BYTES: u64 = 256 << 20;

/// The pause after a measurement, as a multiple of its duration.
const PAUSE: u32 = 9;

/// The time after which a thread looks again whether a session runs, or whether it has to end.
const WATCHED: Duration = Duration::from_millis(5);

/// The measurements of a model. Clones and sessions of the model share it.
#[derive(Debug)]
pub(crate) struct Refiner {
    state: Arc<State>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    process: Process,
}

#[derive(Debug, Default)]
struct State {
    /// Number of runs of sessions.
    runs: AtomicUsize,
    /// True while a thread measures, and after a failure.
    is_taken: AtomicBool,
    ends: AtomicBool,
}

/// A run of a session, until it is dropped.
pub(crate) struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Refiner {
    /// The measurements of a model, if its options ask for some.
    pub fn of(plan: &Plan, options: &ModelOptions) -> Option<Arc<Self>> {
        let can_measure = cfg!(all(feature = "emit", not(target_arch = "wasm32")));
        let is_wanted = options.refining != Refining::Never && options.tuning == Tuning::default();
        (can_measure && is_wanted && plan.states().is_empty())
            .then(|| Arc::new(Self { state: Arc::default(), threads: Mutex::default(), process: Process::current() }))
    }

    /// Counts a run of a session.
    pub fn run(&self) -> Running {
        self.state.runs.fetch_add(1, Ordering::Relaxed);
        Running(self.state.clone())
    }

    /// True if runs on a device with that many bytes of tensors may be measured now.
    pub fn may_measure(&self, options: &ModelOptions, gpu: &Gpu, bytes: impl Fn() -> u64) -> bool {
        let is_wanted = options.refining.covers(gpu.target(), options.gpu.is_some());
        is_wanted && !self.state.is_taken.load(Ordering::Relaxed) && bytes() <= MOST_BYTES
    }

    /// True if a thread measures.
    #[cfg(test)]
    pub fn measures(&self) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().any(|thread| !thread.is_finished())
    }

    /// Measures the kernels of a run with these inputs on a thread, unless one measures.
    pub fn measure(&self, model: &Model, inputs: &Inputs) {
        if self.process != Process::current() || self.state.is_taken.swap(true, Ordering::Relaxed) {
            return;
        }
        let (state, model, inputs) = (self.state.clone(), model.without_refiner(), inputs.clone());
        let measuring = Measuring::new();
        let measure = move || {
            let measured = state.measure(model.session(), &inputs);
            drop((model, inputs, measuring));
            match measured {
                Ok(()) => state.is_taken.store(false, Ordering::Relaxed),
                Err(error) => tracing::debug!("tunings are not refined any more: {error}"),
            }
        };
        match Builder::new().name("rewire refines".to_owned()).spawn(measure) {
            Ok(thread) => {
                let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => tracing::warn!("tunings are not refined: no thread can be started: {error}"),
        }
    }
}

/// Threads that measure, and whether the process exits.
static MEASURING: AtomicUsize = AtomicUsize::new(0);
static EXITS: AtomicBool = AtomicBool::new(false);

/// A thread that measures.
struct Measuring;

impl Measuring {
    fn new() -> Self {
        at_exit::end_measurements();
        MEASURING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An app may exit without dropping its models. Drivers, which were loaded earlier, end after this handler.
#[cfg(unix)]
mod at_exit {
    use super::{EXITS, MEASURING, Ordering, Process};
    use std::ffi::c_int;
    use std::sync::OnceLock;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// The longest wait, for a thread that the exiting one blocks.
    const LONGEST: Duration = Duration::from_secs(5);

    unsafe extern "C" {
        safe fn atexit(handler: extern "C" fn()) -> c_int;
    }

    /// The process with the handler. A forked child has none of its threads.
    static PROCESS: OnceLock<Process> = OnceLock::new();

    pub fn end_measurements() {
        PROCESS.get_or_init(|| {
            if atexit(end) != 0 {
                tracing::warn!("the process may exit while tunings are measured");
            }
            Process::current()
        });
    }

    extern "C" fn end() {
        if PROCESS.get() != Some(&Process::current()) {
            return;
        }
        EXITS.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while MEASURING.load(Ordering::SeqCst) > 0 && begun.elapsed() < LONGEST {
            sleep(Duration::from_millis(1));
        }
    }
}

/// Other systems end threads before they unload drivers.
#[cfg(not(unix))]
mod at_exit {
    pub fn end_measurements() {}
}

impl State {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed) || EXITS.load(Ordering::Relaxed)
    }

    /// Measures until all kernels at the sizes of these inputs are measured, or the model is dropped.
    fn measure(&self, mut session: Session, inputs: &Inputs) -> Result<(), RunError> {
        while !self.ends() {
            if self.runs.load(Ordering::Relaxed) > 0 {
                park_timeout(WATCHED);
                continue;
            }
            let begun = Instant::now();
            let refinement = session.refine(inputs, Duration::ZERO)?;
            if let Some(tuned) = &refinement.tuned {
                tracing::debug!("{}: {} instead of {}", tuned.name, tuned.after, tuned.before);
            }
            if refinement.rest == 0 {
                break;
            }
            self.pause(begun.elapsed() * PAUSE);
        }
        Ok(())
    }

    /// Waits for a time, or until the model is dropped.
    fn pause(&self, time: Duration) {
        let begun = Instant::now();
        while let Some(rest) = time.checked_sub(begun.elapsed())
            && !self.ends()
        {
            park_timeout(rest.min(WATCHED));
        }
    }
}

impl Drop for Refiner {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Relaxed);
        // A forked child has the handles without the threads.
        if self.process != Process::current() {
            return;
        }
        let threads = std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Threads that used a GPU driver must not end after it is unloaded.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != current().id()) {
            if thread.join().is_err() {
                tracing::warn!("the thread that refines tunings panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_unknown_families_are_measured_by_default() {
        let targets = [(false, 0), (false, 192), (true, 0)];
        let targets = targets.map(|(software, registers)| Target { software, registers, ..Target::BASELINE });
        let covered = |refining: Refining, is_apps| targets.each_ref().map(|target| refining.covers(target, is_apps));
        assert_eq!(covered(Refining::default(), false), [true, false, false]);
        assert_eq!(covered(Refining::default(), true), [false; 3]);
        assert_eq!((covered(Refining::Always, true), covered(Refining::Never, false)), ([true; 3], [false; 3]));
    }

    #[test]
    fn names_are_parsed() {
        for refining in [Refining::Unknown, Refining::Always, Refining::Never] {
            assert_eq!(refining.to_string().parse(), Ok(refining));
        }
        assert!("often".parse::<Refining>().unwrap_err().to_string().contains("expected unknown, always or never"));
    }
}
