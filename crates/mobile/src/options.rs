use rewire::rank::RankOptions;
use rewire::runtime::PipelineStore;

/// The backend of a model.
pub type Kernel = rewire::Kernel;

/// The backend of a model.
#[uniffi::remote(Enum)]
pub enum Kernel {
    /// A hardware GPU if one exists, otherwise the CPU.
    Auto,
    /// A GPU.
    Wgpu,
    /// The CPU.
    Cpu,
}

/// Which files of a model are memory-mapped.
pub type Mapping = rewire::Mapping;

/// Which files of a model are memory-mapped.
#[uniffi::remote(Enum)]
pub enum Mapping {
    /// Large ones. They must not be written to or truncated while the model uses them: replace them by renaming others over
    /// them.
    Large,
    /// None: all files are read into memory, and the model does not depend on them once it is loaded.
    Never,
}

/// The backend of some steps of a model.
pub type KernelRule = rewire::KernelRule;

/// The backend of some steps of a model.
#[uniffi::remote(Record)]
pub struct KernelRule {
    /// Matches the operator or the module of a step; `*` matches any text.
    pub pattern: String,
    /// The backend of matching steps.
    pub kernel: Kernel,
}

/// Options for loading and running a model.
#[derive(Clone, Debug, uniffi::Record)]
pub struct Options {
    /// The backend.
    pub kernel: Kernel,
    /// The GPU to use: a part of its name, driver or backend, or `#` and its number.
    #[uniffi(default)]
    pub adapter: Option<String>,
    /// A folder that caches compiled kernels for later starts. The driver trusts its content: only the app should be able to write to it.
    #[uniffi(default)]
    pub pipelines: Option<String>,
    /// Which files are memory-mapped: large ones if left out.
    #[uniffi(default)]
    pub mapping: Option<Mapping>,
    /// Backends of some steps. If several rules match a step, the last one applies; a rule without a match is an error.
    #[uniffi(default)]
    pub kernel_for: Vec<KernelRule>,
}

impl From<Options> for RankOptions {
    fn from(Options { kernel, adapter, pipelines, mapping, kernel_for }: Options) -> Self {
        let (pipelines, mapping) = (pipelines.map(PipelineStore::at), mapping.unwrap_or_default());
        Self { kernel, adapter, pipelines, mapping, kernel_rules: kernel_for, ..Self::default() }
    }
}
