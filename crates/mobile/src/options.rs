use rewire::rank::RankOptions;
use rewire::runtime::PipelineStore;

/// What a model runs on.
pub type Kernel = rewire::Kernel;

/// What a model runs on.
#[uniffi::remote(Enum)]
pub enum Kernel {
    /// A hardware GPU where there is one, and the CPU otherwise.
    Auto,
    /// A GPU.
    Wgpu,
    /// The CPU.
    Cpu,
}

/// Which files of a model are mapped into memory.
pub type Mapping = rewire::Mapping;

/// Which files of a model are mapped into memory.
#[uniffi::remote(Enum)]
pub enum Mapping {
    /// Large ones, which must not be written to or cut while the model has them: replace them by renaming others over them.
    Large,
    /// None: a model takes memory for all of its files, and does not depend on them once it is loaded.
    Never,
}

/// What runs some steps of a model.
pub type KernelRule = rewire::KernelRule;

/// What runs some steps of a model.
#[uniffi::remote(Record)]
pub struct KernelRule {
    /// Matches the operator or the module of a step; `*` matches any text.
    pub pattern: String,
    /// What runs the steps that match.
    pub kernel: Kernel,
}

/// What a model runs on, and how it is loaded.
#[derive(Clone, Debug, uniffi::Record)]
pub struct Options {
    /// What it runs on.
    pub kernel: Kernel,
    /// The GPU to use: a part of its name, driver or backend, or `#` and its number.
    #[uniffi(default)]
    pub adapter: Option<String>,
    /// A folder in which compiled kernels are kept for later starts. The driver trusts what it reads there: it should be writable for the app
    /// alone.
    #[uniffi(default)]
    pub pipelines: Option<String>,
    /// Which files are mapped into memory: large ones if left out.
    #[uniffi(default)]
    pub mapping: Option<Mapping>,
    /// What runs some steps instead. Of several rules that match a step, the last counts; one that matches none is an error.
    #[uniffi(default)]
    pub kernel_for: Vec<KernelRule>,
}

impl From<Options> for RankOptions {
    fn from(Options { kernel, adapter, pipelines, mapping, kernel_for }: Options) -> Self {
        let (pipelines, mapping) = (pipelines.map(PipelineStore::at), mapping.unwrap_or_default());
        Self { kernel, adapter, pipelines, mapping, kernel_rules: kernel_for, ..Self::default() }
    }
}
