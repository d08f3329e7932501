//! Training, with the functions of the `rewire` program.

mod collectives;
mod listener;

use crate::errors;
use crate::options::{kernel_of, mapping_of, rules_of};
use collectives::OfPython;
use listener::Progress;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire::runtime::Refining;
use rewire_cli::{Common, Group, Summary, Train, TrainingError, Watching};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// The interval between checks for an interrupt.
const PAUSE: Duration = Duration::from_millis(50);

/// The arguments of `rewire.train`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options<'py> {
    pipeline: Option<PathBuf>,
    config: Option<PathBuf>,
    data: Vec<PathBuf>,
    out: PathBuf,
    model: Option<PathBuf>,
    checkpoint: Option<PathBuf>,
    fresh: bool,
    negatives: Option<PathBuf>,
    eval: Option<PathBuf>,
    eval_negatives: Option<PathBuf>,
    eval_every: Option<NonZeroU64>,
    metric: Option<String>,
    stop_after: Option<NonZeroU64>,
    tensorboard: Option<PathBuf>,
    profile: Option<PathBuf>,
    resume: bool,
    allow_changes: bool,
    save_every: NonZeroU64,
    seed: Option<u64>,
    export_dcp: Option<PathBuf>,
    memory_limit: Option<NonZeroU64>,
    tables_folder: Option<PathBuf>,
    delta_every: Option<NonZeroU64>,
    ranks: Option<NonZeroUsize>,
    rank_timeout: f64,
    kernel: String,
    adapter: Option<String>,
    mapping: String,
    kernel_for: Option<Bound<'py, PyDict>>,
    collectives: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
}

/// Trains a model and writes it.
#[pyfunction]
pub fn train<'py>(py: Python<'py>, options: Options<'py>) -> PyResult<Bound<'py, PyDict>> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let mut progress =
        Progress { function: options.progress.as_ref().map(|one| one.clone_ref(py)), cancelled: cancelled.clone() };
    let collectives = options.collectives.as_ref().map(|object| OfPython::new(object.bind(py))).transpose()?;
    let group: Group = collectives.map(|group| Arc::new(group) as _);
    let (train, common) = arguments(options)?;
    let trained = interruptible(py, &cancelled, || rewire_cli::train(&train, &common, group, &mut progress))?;
    summary(py, &trained.map_err(|error| errors::of_training(&error))?)
}

/// The arguments of the program.
fn arguments(options: Options<'_>) -> PyResult<(Train, Common)> {
    if Duration::try_from_secs_f64(options.rank_timeout).is_err() {
        return Err(PyValueError::new_err("rank_timeout: expected a number of seconds"));
    }
    let common = Common {
        kernel: kernel_of(&options.kernel)?,
        kernel_for: rules_of(options.kernel_for.as_ref())?,
        adapter: options.adapter,
        matrices: None,
        refine: Refining::Never,
        mapping: mapping_of(&options.mapping)?,
        json: false,
        quiet: false,
        verbose: 0,
        config_file: None,
    };
    let watching = Watching {
        tensorboard: options.tensorboard,
        eval_every: options.eval_every,
        metric: options.metric,
        stop_after: options.stop_after,
    };
    let train = Train {
        model: options.model.into(),
        pipeline: options.pipeline,
        checkpoint: options.checkpoint,
        data: options.data,
        negatives: options.negatives,
        eval_negatives: options.eval_negatives,
        export_dcp: options.export_dcp,
        seed: options.seed,
        config: options.config,
        out: options.out,
        eval: options.eval,
        resume: options.resume,
        allow_changes: options.allow_changes,
        fresh: options.fresh,
        memory_limit: options.memory_limit,
        tables_folder: options.tables_folder,
        save_every: options.save_every,
        delta_every: options.delta_every,
        ranks: options.ranks,
        rank_timeout: options.rank_timeout,
        profile: options.profile,
        watching,
    };
    Ok((train, common))
}

/// Runs `work` on another thread with the GIL released. An interrupt cancels it, and is raised once it has ended.
fn interruptible(
    py: Python<'_>,
    cancelled: &AtomicBool,
    work: impl FnOnce() -> Result<Summary, TrainingError> + Send,
) -> PyResult<Result<Summary, TrainingError>> {
    py.detach(|| {
        std::thread::scope(|scope| {
            let (sender, ended) = channel::<()>();
            let thread = Builder::new().name("rewire trains".to_owned()).spawn_scoped(scope, move || {
                let _sender = sender;
                work()
            })?;
            let mut interrupt = None;
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if let Err(raised) = Python::attach(|py| py.check_signals()) {
                    cancelled.store(true, Ordering::Relaxed);
                    interrupt = Some(raised);
                }
            }
            let trained = thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            interrupt.map_or(Ok(trained), Err)
        })
    })
}

/// The summary as a dict.
fn summary<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("steps", summary.steps)?;
    all.set_item("seconds", summary.seconds)?;
    all.set_item("users_per_second", summary.users_per_second)?;
    all.set_item("device", &summary.adapter)?;
    all.set_item("loss", summary.loss)?;
    all.set_item("auc", &summary.auc)?;
    all.set_item("metrics", &summary.metrics)?;
    if let Some(best) = &summary.best {
        let found = PyDict::new(py);
        found.set_item("metric", &best.metric)?;
        found.set_item("value", best.value)?;
        found.set_item("step", best.step)?;
        all.set_item("best", found)?;
    }
    Ok(all)
}
