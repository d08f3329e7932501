mod decoder;
#[cfg(feature = "import")]
mod exported;
#[cfg(feature = "import")]
mod node_case;
mod tunings;

use crate::case::Expected;
use crate::replay::ReplayError;
use crate::{CaseError, GoldenCase, Mismatch, relative_error};
use rewire::generate::GenerateError;
use rewire::{describe, weights, write_file};
use rewire_graph::{DifferentiateError, HostTensor};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::{Named, Plan};
use rewire_graph_rewrite::{RewriteError, lower, optimize};
use rewire_runtime::{
    Gpu, GpuError, Inputs, Kernel, KernelRule, MatrixTier, Model, ModelOptions, Outputs, PipelineStore, RunError,
    RuntimeError, Session,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The test for a kind of folder that is one case, and its replay.
type FolderCase = (fn(&Path) -> bool, fn(&Verifier, &Path) -> CaseReport);

const FOLDER_CASES: &[FolderCase] = &[
    #[cfg(feature = "import")]
    (exported::is_exported, Verifier::exported),
    #[cfg(feature = "import")]
    (node_case::is_node_case, Verifier::node_case),
    (decoder::is_decoder_case, Verifier::decoder),
];

/// True for a folder that is one case.
pub(crate) fn is_folder_case(path: &Path) -> bool {
    FOLDER_CASES.iter().any(|(is_case, _)| is_case(path))
}

const TOLERANCE: f64 = 2e-5;
const TOLERANCE_GRADIENT: f64 = 1e-4;
const TOLERANCE_HALF: f64 = 5e-3;

/// Options of a replay: its device, and the folder for results.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The backend.
    pub kernel: Kernel,
    /// Backends of some operators or modules, which override `kernel`.
    pub kernel_rules: Vec<KernelRule>,
    /// Part of the name, driver or backend of the adapter to use.
    pub adapter: Option<String>,
    /// f16 matmul tier of the adapter's kernels; the best available if `None`.
    pub matrices: Option<MatrixTier>,
    /// Folder for computed outputs, as `<op>/<case>.safetensors`.
    pub save: Option<PathBuf>,
    /// Also compute and compare gradients.
    pub backward: bool,
    /// Tuning of the kernel emitter.
    pub tuning: Tuning,
    /// A cache of compiled kernels that persists between processes.
    pub pipelines: Option<PipelineStore>,
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Status {
    /// All outputs are within the tolerance.
    #[serde(rename = "ok")]
    Ok,
    /// An output exceeds the tolerance, or a step ran on another device than requested.
    #[serde(rename = "FAIL")]
    Fail,
    /// The operator is unknown or has no kernel.
    #[serde(rename = "unsupported")]
    Unsupported,
    /// The file is invalid, or the run failed.
    #[serde(rename = "error")]
    Error,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// The operator; empty if the file could not be read.
    pub op: String,
    /// The file's name without extension.
    pub case: String,
    /// The requested backend.
    pub kernel: Kernel,
    /// The tunings that its steps were forced to use; `None` for default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The adapter, or `cpu`.
    pub adapter: String,
    /// Steps that ran on the adapter.
    pub gpu_steps: usize,
    /// Steps that ran on the CPU.
    pub cpu_steps: usize,
    /// The largest error of all compared outputs; `None` if none could be compared.
    pub max_rel_err: Option<f64>,
    /// The maximum allowed error.
    pub tolerance: f64,
    /// The outcome.
    pub status: Status,
    /// The reason, unless the status is ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A loaded case.
struct Loaded {
    case: GoldenCase,
    session: Session,
    inputs: Inputs,
    /// True if the operator only moves data, so that results must be equal.
    exact: bool,
}

/// Replays golden cases on one device.
#[derive(Debug)]
pub struct Verifier {
    options: VerifyOptions,
    session: ModelOptions,
}

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    GoldenCase(#[from] CaseError),
    #[cfg(feature = "import")]
    #[error(transparent)]
    Exported(#[from] exported::ExportedError),
    #[error(transparent)]
    Generate(Box<GenerateError>),
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    #[error(transparent)]
    Rewrite(Box<RewriteError>),
    #[error(transparent)]
    Load(Box<RuntimeError>),
    #[error(transparent)]
    Run(Box<RunError>),
    #[error("cannot save to {}: {reason}", path.display())]
    Save { path: PathBuf, reason: String },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Fail => "FAIL",
            Self::Unsupported => "unsupported",
            Self::Error => "error",
        })
    }
}

impl Failure {
    fn status(&self) -> Status {
        match self {
            Self::GoldenCase(CaseError::Replay { source, .. })
                if matches!(**source, ReplayError::Unsupported { .. }) =>
            {
                Status::Unsupported
            }
            #[cfg(feature = "import")]
            Self::Exported(error) => error.status(),
            Self::Generate(error) => match &**error {
                GenerateError::Compile(error) if matches!(**error, RewriteError::Unsupported { .. }) => {
                    Status::Unsupported
                }
                GenerateError::Load(error) if matches!(**error, RuntimeError::Step { .. }) => Status::Unsupported,
                _ => Status::Error,
            },
            Self::Differentiate(DifferentiateError::Operator { .. }) => Status::Unsupported,
            Self::Rewrite(error) if matches!(**error, RewriteError::Unsupported { .. }) => Status::Unsupported,
            Self::Load(error) if matches!(**error, RuntimeError::Step { .. }) => Status::Unsupported,
            _ => Status::Error,
        }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        Self::Generate(Box::new(error))
    }
}

impl From<RewriteError> for Failure {
    fn from(error: RewriteError) -> Self {
        Self::Rewrite(Box::new(error))
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

impl Verifier {
    /// Opens the device.
    ///
    /// # Errors
    /// [`GpuError`] if the kernel is `wgpu` and the requested adapter does not exist.
    pub fn new(options: VerifyOptions) -> Result<Self, GpuError> {
        let kernel_rules = options.kernel_rules.clone();
        let gpu = Gpu::for_kernel(KernelRule::device(options.kernel, &kernel_rules), options.adapter.as_deref())?;
        let gpu = Gpu::with_matrix_tier_if(gpu, options.matrices)?;
        let kernel = if gpu.is_some() { options.kernel } else { Kernel::Cpu };
        let pipelines = options.pipelines.clone();
        let tuning = options.tuning;
        let session = ModelOptions { kernel, kernel_rules, gpu, tuning, pipelines, ..ModelOptions::default() };
        Ok(Self { options, session })
    }

    /// Replays a case, or the exported programs or the language model of a folder. Failures are reported in the result.
    pub fn verify(&self, path: &Path) -> CaseReport {
        if let Some((_, replay)) = FOLDER_CASES.iter().find(|(is_case, _)| is_case(path)) {
            return replay(self, path);
        }
        let mut report = self.report(path);
        let replayed = self.load(path, &mut report).and_then(|mut loaded| {
            let outputs = self.compare(&mut loaded, &mut report)?;
            match &self.options.save {
                Some(folder) => {
                    let file = folder.join(loaded.case.op()).join(format!("{}.safetensors", report.case));
                    self.save(&loaded.case, &outputs, &file)
                }
                None => Ok(()),
            }
        });
        report.or_failure(replayed)
    }

    /// A report without results.
    fn report(&self, path: &Path) -> CaseReport {
        CaseReport {
            op: String::new(),
            case: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
            kernel: self.options.kernel,
            variant: None,
            adapter: "cpu".into(),
            gpu_steps: 0,
            cpu_steps: 0,
            max_rel_err: None,
            tolerance: TOLERANCE,
            status: Status::Ok,
            message: None,
        }
    }

    fn load(&self, path: &Path, report: &mut CaseReport) -> Result<Loaded, Failure> {
        let case = GoldenCase::read(path)?;
        report.op = case.op().to_owned();
        let has_gradients = self.options.backward && case.has_gradients();
        report.tolerance = tolerance(&case, has_gradients);
        let replay = case.trace()?;
        let graph = if has_gradients { case.differentiate(&replay.graph)? } else { replay.graph };
        let plan = lower(&optimize(graph)?.0)?;
        let inputs = inputs(&case, &plan);
        let session = Model::load(plan, |name: &str| case.parameter(name), self.session.clone())?.session();
        (report.gpu_steps, report.cpu_steps) = (session.report().gpu_steps, session.report().cpu_steps);
        report.adapter = session.report().adapter.unwrap_or_else(|| "cpu".into());
        Ok(Loaded { case, session, inputs, exact: replay.exact })
    }

    /// Runs a case and compares its results.
    fn compare(&self, loaded: &mut Loaded, report: &mut CaseReport) -> Result<Outputs, Failure> {
        let outputs = loaded.session.run(&loaded.inputs)?;
        self.judge(loaded, &outputs, report);
        if self.options.kernel == Kernel::Wgpu && self.options.kernel_rules.is_empty() && report.cpu_steps > 0 {
            report.status = Status::Fail;
            report.message = Some(format!("{} steps ran on the CPU", report.cpu_steps));
        }
        Ok(outputs)
    }
}

impl CaseReport {
    /// The report, or the report with the failure if `result` is an error.
    fn or_failure<T>(mut self, result: Result<T, Failure>) -> Self {
        if let Err(failure) = result {
            self.status = failure.status();
            self.message = Some(describe(&failure));
        }
        self
    }
}

impl Verifier {
    /// The expected results that are compared.
    fn expected<'a>(&self, case: &'a GoldenCase) -> impl Iterator<Item = Expected<'a>> {
        let backward = self.options.backward;
        case.expected().filter(move |expected| backward || !expected.is_gradient)
    }

    /// Compares all results with the expected ones.
    fn judge(&self, Loaded { case, exact, .. }: &Loaded, outputs: &Outputs, report: &mut CaseReport) {
        let mut worst: Option<f64> = None;
        for Expected { stored, computed, is_gradient } in self.expected(case) {
            let Some(reference) = case.tensor(stored) else { continue };
            let error = match outputs.get(&computed) {
                Some(out) => relative_error(stored, out, &reference, *exact && !is_gradient),
                None => Err(Mismatch::Missing { name: stored.to_owned() }),
            };
            match error {
                Ok(error) => {
                    worst = Some(worst.unwrap_or(0.0).max(error));
                    if error > tolerance(case, is_gradient) {
                        report.status = Status::Fail;
                        if error <= report.tolerance {
                            report.message.get_or_insert(format!("the error of `{stored}` is {error:.1e}"));
                        }
                    }
                }
                Err(mismatch) => {
                    report.status = Status::Fail;
                    report.message.get_or_insert(mismatch.to_string());
                }
            }
        }
        report.max_rel_err = worst;
        if worst.is_none() && report.message.is_none() {
            report.status = Status::Error;
            report.message = Some("the file has no outputs to compare with".into());
        }
    }

    fn save(&self, case: &GoldenCase, outputs: &Outputs, path: &Path) -> Result<(), Failure> {
        let failed = |reason: String| Failure::Save { path: path.to_owned(), reason };
        let computed = self.expected(case).filter_map(|Expected { stored: name, computed, .. }| {
            Some((name.to_owned(), stored(outputs.get(&computed)?, case.tensor(name))))
        });
        let tensors: BTreeMap<String, HostTensor> = computed.collect();
        let bytes = weights::serialize(&tensors, case.metadata()).map_err(|error| failed(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = std::fs::create_dir_all(folder).and_then(|()| write_file(path, &bytes));
        written.map_err(|error| failed(error.to_string()))
    }
}

/// The allowed error of a result or a gradient.
fn tolerance(case: &GoldenCase, is_gradient: bool) -> f64 {
    match (case.half(), is_gradient) {
        (true, _) => TOLERANCE_HALF,
        (false, true) => TOLERANCE_GRADIENT,
        (false, false) => TOLERANCE,
    }
}

/// The inputs of the plan. Gradients of outputs are stored in the inputs' element type and are converted to the element type of their
/// output.
fn inputs(case: &GoldenCase, plan: &Plan) -> Inputs {
    let tensor = |input: Named<'_>| {
        let tensor = case.input(input.name)?;
        let is_gradient = input.name.starts_with("grad_out.");
        Some((input.name.to_owned(), if is_gradient { tensor.stored_as(input.dtype).ok()? } else { tensor }))
    };
    plan.inputs().filter_map(tensor).collect()
}

/// Converts a result to its reference's element type; a scalar becomes `[1]`.
fn stored(out: &HostTensor, reference: Option<HostTensor>) -> HostTensor {
    let Some(reference) = reference else { return out.clone() };
    let shape = if out.shape().is_empty() { vec![1] } else { out.shape().to_vec() };
    let converted = match (out.dtype() == reference.dtype(), out.dtype().is_float()) {
        (true, _) => out.clone().reshape(shape),
        (false, true) => HostTensor::from_f64(reference.dtype(), shape, &out.to_f64()),
        (false, false) => HostTensor::i64(shape, &out.to_i64()),
    };
    converted.unwrap_or_else(|_| out.clone())
}
