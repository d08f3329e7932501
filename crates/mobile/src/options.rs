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
}

impl From<Options> for RankOptions {
    fn from(Options { kernel, adapter, pipelines }: Options) -> Self {
        Self { kernel, adapter, pipelines: pipelines.map(PipelineStore::at), ..Self::default() }
    }
}
