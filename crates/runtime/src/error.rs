use crate::memory::HostMemoryError;
use crate::{Matrices, MatrixTier, WorkDropped};
use rewire_graph::op::RegistryError;
use rewire_graph::{Coded, DType, StoredTypeError};
use rewire_graph_rewrite::plan::ShapeError;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a device failed or refused.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "device.")]
#[non_exhaustive]
pub enum GpuError {
    /// Workers dropped a wait for the device.
    #[error(transparent)]
    Dropped(WorkDropped),
    /// The host has too little memory.
    #[error(transparent)]
    HostMemory(HostMemoryError),
    /// No adapter matches the request.
    #[error("no GPU adapter{}: {missing}", filter.as_deref().map(|f| format!(" matches `{f}`")).unwrap_or_default())]
    NoAdapter {
        /// The filter.
        filter: Option<String>,
        /// The problem, with installation advice.
        missing: String,
    },
    /// The driver refused to open a device.
    #[error("cannot open a device on {adapter}: {reason}")]
    Open {
        /// The adapter.
        adapter: String,
        /// The driver's message.
        reason: String,
    },
    /// A device does not support the requested matrix tier.
    #[error("{adapter} does not support matrix tier {tier}: expected `{}` at most, {}", own.tier, own.reason)]
    Matrices {
        /// The adapter.
        adapter: String,
        /// The tier.
        tier: MatrixTier,
        /// The supported tier, and why it is not higher.
        own: Matrices,
    },
    /// The device was lost: reset, removed or destroyed.
    #[error("the device {adapter} is lost: {reason}")]
    Lost {
        /// The adapter.
        adapter: String,
        /// The driver's message.
        reason: String,
    },
    /// The device was opened by another process, of which this one is a forked child.
    #[error(
        "the device {adapter} was opened before this process was forked from the one that opened it: open models in the child, or start \
         processes without forking (`spawn` of Python's multiprocessing)"
    )]
    Forked {
        /// The adapter.
        adapter: String,
    },
    /// An allocation failed.
    #[error("out of device memory while {during}")]
    OutOfMemory {
        /// The operation that failed.
        during: String,
    },
    /// A buffer is larger than the device allows.
    #[error("{what} takes {bytes} bytes, more than the {limit} of `{name}`: {way_out}")]
    TooLarge {
        /// The buffer.
        what: String,
        /// The buffer's size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
        /// The name of the limit.
        name: &'static str,
        /// A workaround.
        way_out: &'static str,
    },
    /// A tensor of a step has no memory.
    #[error("{step} cannot run: {what} is not on the device")]
    Unbound {
        /// The step.
        step: String,
        /// The tensor.
        what: String,
    },
    /// A kernel needs more workgroups than a dispatch allows.
    #[error("{what} takes {workgroups} workgroups, more than the {limit} of a grid: run fewer rows at once")]
    Grid {
        /// The step.
        what: String,
        /// Workgroups of the kernel.
        workgroups: u64,
        /// The largest number of workgroups, given by two dimensions and a 32-bit number.
        limit: u64,
    },
    /// The device rejected a shader or a command.
    #[error("the device rejected {what}: {reason}")]
    Rejected {
        /// The shader or command.
        what: String,
        /// The validation message.
        reason: String,
    },
    /// The result did not arrive.
    #[error("cannot read results back: {reason}")]
    Readback {
        /// The driver's message.
        reason: String,
    },
}

impl Coded for GpuError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// Why a model could not be loaded.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "load.")]
#[non_exhaustive]
pub enum RuntimeError {
    /// The device failed or refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A kernel cannot run as requested, nor elsewhere.
    #[error("step {step} ({name}, `{path}`) cannot run with kernel {kernel}: {reason}")]
    Step {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// The requested kernel.
        kernel: super::Kernel,
        /// Why.
        reason: String,
    },
    /// The pattern of a kernel rule matches no step.
    #[error("no operator or module matches `{pattern}`: expected the name of one, such as `{}`", near.join("`, `"))]
    KernelRule {
        /// The pattern.
        pattern: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// A step that computes from parameters at load time failed.
    #[error("step {step} ({name}, `{path}`), computed from parameters, failed: {reason}")]
    Load {
        /// Position among the steps that run when parameters are bound.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// Why.
        reason: String,
    },
    /// A user-defined function or custom operator is not registered, or differs from the registered one.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The plan is invalid.
    #[error("the plan is not valid: {reason}")]
    Plan {
        /// The problem.
        reason: String,
    },
    /// A tuning was given for kernel `cpu`, which has none.
    #[error("kernel cpu has no tunings, got {tuning}: omit the tuning, or use kernel wgpu")]
    Untuned {
        /// The tuning.
        tuning: String,
    },
    /// The host lacks memory for the parameters.
    #[error("cannot hold the parameters: {reason}")]
    Memory {
        /// The cause.
        reason: String,
    },
    /// The plan has no such parameter.
    #[error("there is no parameter `{name}`{}", nearest.as_ref().map(|name| format!(": did you mean `{name}`?")).unwrap_or_default())]
    UnknownParameter {
        /// The name.
        name: String,
        /// The most similar name in the plan.
        nearest: Option<String>,
    },
    /// A parameter is missing.
    #[error("parameter `{name}` is missing: expected {dtype} {shape:?}")]
    MissingParameter {
        /// Name of the parameter.
        name: String,
        /// Expected element type.
        dtype: DType,
        /// Expected shape.
        shape: Vec<usize>,
    },
    /// A parameter has a wrong shape.
    #[error("parameter `{name}`: expected shape {expected:?}, got {actual:?}")]
    ParameterShape {
        /// Name of the parameter.
        name: String,
        /// Expected shape.
        expected: Vec<usize>,
        /// Actual shape.
        actual: Vec<usize>,
    },
    /// Rows of a parameter cannot be replaced.
    #[error("rows of parameter `{name}` cannot be replaced: {reason}")]
    ParameterRows {
        /// Name of the parameter.
        name: String,
        /// Why.
        reason: String,
    },
    /// A parameter has a wrong element type.
    #[error("parameter `{name}`: expected {expected}, got {actual}")]
    ParameterType {
        /// Name of the parameter.
        name: String,
        /// Expected element type.
        expected: DType,
        /// Actual element type.
        actual: DType,
    },
    /// A parameter contains an infinity or NaN.
    #[error("parameter `{name}` holds {value} at element {element}: expected finite values as {dtype}")]
    ParameterValue {
        /// Name of the parameter.
        name: String,
        /// Position of the first such element, row major.
        element: usize,
        /// Its value.
        value: f32,
        /// Element type in memory.
        dtype: DType,
    },
}

impl RuntimeError {
    /// The error for a parameter that cannot be converted to the storage type of its plan.
    pub fn of_stored(name: &str, error: StoredTypeError) -> Self {
        match error {
            StoredTypeError::Type { expected, actual, .. } => {
                Self::ParameterType { name: name.to_owned(), expected, actual }
            }
            StoredTypeError::Size(error) => Self::Memory { reason: format!("`{name}`: {error}") },
        }
    }
}

impl Coded for RuntimeError {
    fn code(&self) -> &'static str {
        match self {
            Self::Gpu(source) => source.code(),
            other => other.into(),
        }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "run.")]
#[non_exhaustive]
pub enum RunError {
    /// A file from which parameters are mapped was modified after the model was loaded.
    #[error(
        "{} was modified while the model has it in memory: load the model again, and replace its files by renaming others over them, \
         or load them without mapping", path.display()
    )]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// The device was lost, and the parameters that the session holds have been replaced since.
    #[error(
        "the device was lost, and the parameters that the session holds have been replaced since: repeat all of its runs"
    )]
    Replaced,
    /// The device failed or refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Workers dropped the run.
    #[error(transparent)]
    Dropped(#[from] WorkDropped),
    /// An input is missing.
    #[error("input `{name}` is missing: expected {dtype} {shape}{}", unread_names(unread))]
    MissingInput {
        /// Name of the input.
        name: String,
        /// Expected element type.
        dtype: DType,
        /// Expected shape.
        shape: String,
        /// Given names that the plan does not read, those most similar to `name` first.
        unread: Vec<String>,
    },
    /// The plan has no input of a given name.
    #[error("there is no input or output `{name}`: the plan has {known}")]
    UnknownName {
        /// The name.
        name: String,
        /// Names in the plan.
        known: String,
    },
    /// An input has a wrong shape.
    #[error("input `{name}`: expected shape {expected}, got {actual:?}")]
    InputShape {
        /// Name of the input.
        name: String,
        /// Expected shape.
        expected: String,
        /// Actual shape.
        actual: Vec<usize>,
    },
    /// An input has a wrong element type.
    #[error("input `{name}`: expected {expected}, got {actual}")]
    InputType {
        /// Name of the input.
        name: String,
        /// Expected element type.
        expected: String,
        /// Actual element type.
        actual: DType,
    },
    /// An input contains an invalid value.
    #[error("input `{name}`: expected {expected}, got {value} at element {element}")]
    InputValue {
        /// Name of the input.
        name: String,
        /// The valid values.
        expected: String,
        /// Position of the first invalid element, row major.
        element: usize,
        /// Its value.
        value: i64,
    },
    /// A device tensor was given for a value that is needed on the host or on another device.
    #[error("input `{name}`: {reason}")]
    InputPlace {
        /// Name of the input.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A state does not exist, or memory for it cannot be allocated.
    #[error("state `{name}`: {reason}")]
    State {
        /// Name of the state.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A run cannot be recorded in a command encoder.
    #[error("the run cannot be recorded: {reason}")]
    NotEncoded {
        /// The reason.
        reason: String,
    },
    /// A state was on a device that is lost.
    #[error(
        "state `{name}` was on a device that is lost: set it with `Session::set_state`, or reset all states with `reset_states`"
    )]
    StateLost {
        /// Name of the state.
        name: String,
    },
    /// A kernel cannot use a host value.
    #[error("{what}: expected {expected}, got {value}")]
    HostValue {
        /// The value.
        what: String,
        /// The valid values.
        expected: String,
        /// The value found.
        value: i64,
    },
    /// A size of a tensor is negative or too large.
    #[error("{what}: the size {size} is negative or too large")]
    Size {
        /// The tensor.
        what: String,
        /// The size.
        size: String,
    },
    /// A loop of a kernel has too many points for a 32-bit index.
    #[error(
        "step {step} (`{path}`) runs over more than {limit} points, the most that a 32-bit index counts: run fewer samples at a time"
    )]
    Points {
        /// The step.
        step: String,
        /// Its module path.
        path: String,
        /// The largest number of points.
        limit: usize,
    },
    /// Sizes cannot be computed from the inputs.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tensor exceeds the binding size, and the kernel cannot bind it in parts.
    #[error(
        "step {step} ({name}, `{path}`) cannot bind {tensor}: its {bytes} bytes are more than the {limit} of \
         `max_storage_buffer_binding_size`, and in parts {reason}; run fewer rows at once, or use kernel cpu"
    )]
    Binding {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// The largest tensor of the step.
        tensor: String,
        /// Its bytes.
        bytes: u64,
        /// The binding size in bytes.
        limit: u64,
        /// Why the kernel cannot bind it in parts.
        reason: String,
    },
    /// A step cannot run with its forced tuning.
    #[error("step {step} ({name}, `{path}`) cannot run with {tuning}: {reason}; any of `Model::candidate_tunings` can")]
    Tuning {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// The tuning.
        tuning: String,
        /// Why it does not fit.
        reason: String,
    },
    /// The host lacks memory for the tensors of the run.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),
    /// The device cannot time kernels.
    #[error("{device} cannot time kernels: use an adapter with timestamps")]
    NoTimes {
        /// The adapter, or `cpu`.
        device: String,
    },
    /// Tunings cannot be written to the store.
    #[error("{}: the tunings cannot be stored: {reason}; make the folder writable, or free space there", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The device is lost, and the plan cannot run elsewhere.
    #[error("{lost}, and the model cannot continue on another one: {reason}")]
    Recovery {
        /// The loss.
        lost: String,
        /// The reason.
        reason: String,
    },
    /// A kernel failed on the CPU.
    #[error("step {step} ({name}, `{path}`) failed on the CPU: {reason}")]
    Cpu {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// Why.
        reason: String,
    },
}

impl Coded for RunError {
    fn code(&self) -> &'static str {
        match self {
            Self::Gpu(source) => source.code(),
            Self::Shape(source) => source.code(),
            other => other.into(),
        }
    }
}

fn unread_names(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(4).map(|name| format!("`{name}`")).collect();
    match (names.len(), shown.join(", ")) {
        (0, _) => String::new(),
        (1, name) => format!("; {name} was given, which the plan does not read"),
        (2..=4, all) => format!("; {all} were given, which the plan does not read"),
        (count, some) => format!("; {some} and {} more were given, which the plan does not read", count - shown.len()),
    }
}
