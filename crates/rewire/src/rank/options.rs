use super::RankError;
use super::kind::{is_language, is_matching};
use crate::predict::is_pipeline;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Precision;
use rewire_hstu::models::dlrm_hstu::{CacheOptions, Config};
use rewire_runtime::{
    Gpu, Kernel, KernelRule, MatrixTier, ModelOptions, PipelineStore, Tables, ThreadPool, TuningStore, Workers,
};

/// How a model is loaded and run.
#[derive(Clone, Debug)]
pub struct RankOptions {
    /// What runs it.
    pub kernel: Kernel,
    /// What runs some of its operators or modules instead.
    pub kernel_rules: Vec<KernelRule>,
    /// A part of the name, driver, backend or PCI address of the adapter to use, or `#` and its number.
    pub adapter: Option<String>,
    /// How its kernels multiply halves; as fast as it can if `None`.
    pub matrices: Option<MatrixTier>,
    /// An open device to use, the app's own for instance.
    pub gpu: Option<Gpu>,
    /// Threads of the app's that do the work of futures, where it is not [`rewire_runtime::block_on`] that runs them.
    pub workers: Option<Workers>,
    /// Threads that run kernels on the CPU and compile kernels, which several rankers may share; see [`ModelOptions::threads`].
    pub threads: Option<ThreadPool>,
    /// Choices of the emitter.
    pub tuning: Tuning,
    /// Tunings of kernels that were measured, where `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// Where compiled kernels are kept for later processes.
    pub pipelines: Option<PipelineStore>,
    /// Where embedding tables lie.
    pub tables: Tables,
    /// Bytes that parameters may take together before [`Tables::Auto`] leaves tables on the host; see
    /// [`ModelOptions::parameter_bytes`].
    pub parameter_bytes: Option<u64>,
    /// How floats are stored, where they are not rows with a scale. A package's are as it has them otherwise.
    pub precision: Precision,
    /// Takes weights with tensors that the model does not read. Without it they are an error, as they tell that the
    /// configuration is not the one that they were made with.
    pub allow_unread: bool,
    /// Rows of a run: sequences are run together until they have so many. A longer sequence is run alone.
    pub batch_rows: usize,
    /// Rows that a history which is too long leaves to candidates, at least 1. More makes fewer sequences of
    /// many candidates.
    pub candidate_room: usize,
    /// How histories are kept from the candidates that read them. A package has its own.
    pub cache: CacheOptions,
    /// Which files are mapped into memory: large ones, unless a file may be written to or cut while the model has it.
    #[cfg(feature = "files")]
    pub mapping: rewire_runtime::Mapping,
}

impl Default for RankOptions {
    fn default() -> Self {
        Self {
            kernel: Kernel::Auto,
            kernel_rules: vec![],
            adapter: None,
            matrices: None,
            gpu: None,
            workers: None,
            threads: None,
            tuning: Tuning::default(),
            tunings: None,
            pipelines: None,
            tables: Tables::Auto,
            parameter_bytes: None,
            precision: Precision::default(),
            allow_unread: false,
            batch_rows: 1 << 13,
            candidate_room: 1,
            cache: CacheOptions::default(),
            #[cfg(feature = "files")]
            mapping: rewire_runtime::Mapping::default(),
        }
    }
}

impl RankOptions {
    /// How the model is loaded. Batches have checked their ids.
    pub(crate) fn of_model(&self) -> ModelOptions {
        ModelOptions {
            kernel: self.kernel,
            kernel_rules: self.kernel_rules.clone(),
            adapter: self.adapter.clone(),
            matrices: self.matrices,
            gpu: self.gpu.clone(),
            workers: self.workers.clone(),
            threads: self.threads.clone(),
            clamp_ids: true,
            tuning: self.tuning,
            tunings: self.tunings.clone(),
            pipelines: self.pipelines.clone(),
            tables: self.tables,
            parameter_bytes: self.parameter_bytes,
            ..ModelOptions::default()
        }
    }
}

/// Takes the text of a `config.json`; `name` stands for it in errors.
///
/// # Errors
/// [`RankError::Config`], and [`RankError::Matching`] where it is of a model without logits.
pub fn parse_config(name: &str, text: &str) -> Result<Config, RankError> {
    let text = text.trim_start_matches('\u{feff}');
    if is_pipeline(text) {
        return Err(RankError::Imported { name: name.to_owned() });
    }
    if is_language(text) {
        return Err(RankError::Language { name: name.to_owned() });
    }
    if is_matching(text) {
        return Err(RankError::Matching { name: name.to_owned() });
    }
    let bad = |source| RankError::Config { name: name.to_owned(), source: Box::new(source) };
    Config::from_json(text).map_err(bad)
}
