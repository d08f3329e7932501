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
    /// No adapter serves the request.
    #[error("no GPU adapter{}: {missing}", filter.as_deref().map(|f| format!(" matches `{f}`")).unwrap_or_default())]
    NoAdapter {
        /// The part of a name that was asked for.
        filter: Option<String>,
        /// What is missing and what to install.
        missing: String,
    },
    /// The driver refused to open a device.
    #[error("cannot open a device on {adapter}: {reason}")]
    Open {
        /// The adapter.
        adapter: String,
        /// What the driver said.
        reason: String,
    },
    /// A device has no matrices of the tier that was asked for.
    #[error("{adapter} has no matrices of tier {tier}: expected `{}` at most, {}", own.tier, own.reason)]
    Matrices {
        /// The adapter.
        adapter: String,
        /// The tier.
        tier: MatrixTier,
        /// What it has, and why no more.
        own: Matrices,
    },
    /// The device went away: reset, removed or destroyed.
    #[error("the device {adapter} is lost: {reason}")]
    Lost {
        /// The adapter.
        adapter: String,
        /// What the driver said.
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
        /// What was being done.
        during: String,
    },
    /// A buffer is larger than the device allows.
    #[error("{what} takes {bytes} bytes, more than the {limit} of `{name}`: {way_out}")]
    TooLarge {
        /// The buffer.
        what: String,
        /// Bytes it takes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
        /// The name of the limit.
        name: &'static str,
        /// What to do about it.
        way_out: &'static str,
    },
    /// A step has no memory for a tensor that it reads or writes.
    #[error("{step} cannot run: {what} is not on the device")]
    Unbound {
        /// The step.
        step: String,
        /// What is missing.
        what: String,
    },
    /// A kernel takes more workgroups than a dispatch may have.
    #[error("{what} takes {workgroups} workgroups, more than the {limit} of a grid: run fewer rows at once")]
    Grid {
        /// The step.
        what: String,
        /// Workgroups it takes.
        workgroups: u64,
        /// Workgroups that two dimensions and a 32-bit number allow.
        limit: u64,
    },
    /// The device rejected a shader or a command.
    #[error("the device rejected {what}: {reason}")]
    Rejected {
        /// What was rejected.
        what: String,
        /// What the validation said.
        reason: String,
    },
    /// The result did not arrive.
    #[error("cannot read results back: {reason}")]
    Readback {
        /// What the driver said.
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
    /// A kernel can be run neither as asked nor anywhere else.
    #[error("step {step} ({name}, `{path}`) cannot run with kernel {kernel}: {reason}")]
    Step {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// The kernel that was asked for.
        kernel: super::Kernel,
        /// Why.
        reason: String,
    },
    /// A kernel was asked for by a pattern that matches no step.
    #[error("no operator and no module is like `{pattern}`: expected the name of one, such as `{}`", near.join("`, `"))]
    KernelRule {
        /// The pattern.
        pattern: String,
        /// Names that are like it.
        near: Vec<String>,
    },
    /// A step that is computed from parameters failed.
    #[error("step {step} ({name}, `{path}`), computed from parameters, failed: {reason}")]
    Load {
        /// Position among the steps that are computed when parameters are bound.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// Why.
        reason: String,
    },
    /// A function or operator of a user's own is not registered, or is another one.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The plan refers to what it does not hold.
    #[error("the plan is not valid: {reason}")]
    Plan {
        /// What is wrong.
        reason: String,
    },
    /// A tuning was given where no kernel has any.
    #[error("kernel cpu has no tunings, got {tuning}: leave the tuning out, or take kernel wgpu")]
    Untuned {
        /// The tuning.
        tuning: String,
    },
    /// The host has no memory for the parameters.
    #[error("cannot hold the parameters: {reason}")]
    Memory {
        /// What failed.
        reason: String,
    },
    /// There is no such parameter.
    #[error("there is no parameter `{name}`{}", nearest.as_ref().map(|name| format!(": did you mean `{name}`?")).unwrap_or_default())]
    UnknownParameter {
        /// Name given.
        name: String,
        /// The name of the plan that is most like it.
        nearest: Option<String>,
    },
    /// A parameter was not given.
    #[error("parameter `{name}` is missing: expected {dtype} {shape:?}")]
    MissingParameter {
        /// Name of the parameter.
        name: String,
        /// Expected element type.
        dtype: DType,
        /// Expected shape.
        shape: Vec<usize>,
    },
    /// A parameter has another shape.
    #[error("parameter `{name}`: expected shape {expected:?}, got {actual:?}")]
    ParameterShape {
        /// Name of the parameter.
        name: String,
        /// Expected shape.
        expected: Vec<usize>,
        /// Shape given.
        actual: Vec<usize>,
    },
    /// A parameter has another element type.
    #[error("parameter `{name}`: expected {expected}, got {actual}")]
    ParameterType {
        /// Name of the parameter.
        name: String,
        /// Expected element type.
        expected: DType,
        /// Element type given.
        actual: DType,
    },
    /// A parameter holds an infinity or NaN.
    #[error("parameter `{name}` holds {value} at element {element}: expected finite values as {dtype}")]
    ParameterValue {
        /// Name of the parameter.
        name: String,
        /// Position of the first offender, row major.
        element: usize,
        /// Its value.
        value: f32,
        /// Element type in memory.
        dtype: DType,
    },
}

impl RuntimeError {
    /// A parameter that cannot be stored in the type of its plan.
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
    /// A file that parameters are mapped from is not as it was when the model was loaded.
    #[error(
        "{} was changed in place while the model has it in memory: load the model again, and replace its files by renaming others over them, \
         or load them without mapping", path.display()
    )]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// The device failed or refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Workers dropped the run.
    #[error(transparent)]
    Dropped(#[from] WorkDropped),
    /// An input was not given.
    #[error("input `{name}` is missing: expected {dtype} {shape}{}", unread_names(unread))]
    MissingInput {
        /// Name of the input.
        name: String,
        /// Expected element type.
        dtype: DType,
        /// Expected shape.
        shape: String,
        /// Names that were given and that the plan does not read, those most like `name` first.
        unread: Vec<String>,
    },
    /// An input was given that the plan does not know.
    #[error("there is no input or output `{name}`: the plan has {known}")]
    UnknownName {
        /// Name given.
        name: String,
        /// Names of the plan.
        known: String,
    },
    /// An input has another shape.
    #[error("input `{name}`: expected shape {expected}, got {actual:?}")]
    InputShape {
        /// Name of the input.
        name: String,
        /// Expected shape.
        expected: String,
        /// Shape given.
        actual: Vec<usize>,
    },
    /// An input has another element type.
    #[error("input `{name}`: expected {expected}, got {actual}")]
    InputType {
        /// Name of the input.
        name: String,
        /// Expected element type.
        expected: String,
        /// Element type given.
        actual: DType,
    },
    /// An input holds a value that it must not hold.
    #[error("input `{name}`: expected {expected}, got {value} at element {element}")]
    InputValue {
        /// Name of the input.
        name: String,
        /// What is allowed.
        expected: String,
        /// Position of the first offender, row major.
        element: usize,
        /// Its value.
        value: i64,
    },
    /// A device tensor was given where the value is needed on the host, or for another device.
    #[error("input `{name}`: {reason}")]
    InputPlace {
        /// Name of the input.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no such state, or no room for it.
    #[error("state `{name}`: {reason}")]
    State {
        /// Name of the state.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A run cannot be part of an encoder.
    #[error("the run cannot be recorded: {reason}")]
    NotEncoded {
        /// What is in the way.
        reason: String,
    },
    /// A state was on a device that is lost.
    #[error("state `{name}` was on a device that is lost: set it by `Session::set_state`, or all by `reset_states`")]
    StateLost {
        /// Name of the state.
        name: String,
    },
    /// A value of the shape program cannot be used by a kernel.
    #[error("{what}: expected {expected}, got {value}")]
    HostValue {
        /// The value.
        what: String,
        /// What is allowed.
        expected: String,
        /// What it is.
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
    /// A loop of a kernel has more points than a 32-bit index counts.
    #[error(
        "step {step} (`{path}`) runs over more than {limit} points, the most that a 32-bit index counts: run fewer samples at a time"
    )]
    Points {
        /// The step.
        step: String,
        /// Its module path.
        path: String,
        /// The most points.
        limit: usize,
    },
    /// Sizes cannot be computed from the inputs.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tensor is larger than a binding, and the kernel cannot bind it in parts either.
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
        /// Bytes of a binding.
        limit: u64,
        /// What the kernel lacks.
        reason: String,
    },
    /// A step cannot run with the tuning that it is forced to.
    #[error("step {step} ({name}, `{path}`) cannot run with {tuning}: {reason}; any of `Model::variants` can")]
    Tuning {
        /// Position in the plan.
        step: usize,
        /// Name of the step.
        name: String,
        /// Module path of the step.
        path: String,
        /// The tuning.
        tuning: String,
        /// What does not fit.
        reason: String,
    },
    /// The host has no memory for the tensors of the run.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),
    /// Kernels cannot be measured.
    #[error("{device} cannot time kernels: use an adapter with timestamps")]
    NoTimes {
        /// The adapter, or `cpu`.
        device: String,
    },
    /// Tunings cannot be written to their store.
    #[error("{}: the tunings are not kept: {reason}; make the folder writable, or free space there", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The device is lost, and the plan cannot run elsewhere.
    #[error("{lost}, and the model cannot go on elsewhere: {reason}")]
    Recovery {
        /// The loss.
        lost: String,
        /// What is in the way.
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
