use super::kind::{is_language, is_matching};
use super::{ExpectedRequests, RankError};
use crate::predict::is_pipeline;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Precision;
use rewire_hstu::models::dlrm_hstu::{CacheOptions, Config};
use rewire_runtime::{
    Gpu, Kernel, KernelRule, MatrixTier, ModelOptions, PipelineStore, Refining, Tables, ThreadPool, TuningStore,
    Workers,
};

/// Options for loading and running a model.
#[derive(Clone, Debug)]
pub struct RankOptions {
    /// The backend of its kernels.
    pub kernel: Kernel,
    /// Backends of some operators or modules instead.
    pub kernel_rules: Vec<KernelRule>,
    /// A part of the name, driver, backend or PCI address of the adapter to use, or `#` and its number.
    pub adapter: Option<String>,
    /// f16 matmul tier of its kernels; the best available if `None`.
    pub matrices: Option<MatrixTier>,
    /// An open device to use, for instance the app's own.
    pub gpu: Option<Gpu>,
    /// Worker threads of the app that run futures not driven by [`rewire_runtime::block_on`].
    pub workers: Option<Workers>,
    /// Threads that run kernels on the CPU and compile kernels. Several rankers may share them; see [`ModelOptions::threads`].
    pub threads: Option<ThreadPool>,
    /// Tuning of the emitter.
    pub tuning: Tuning,
    /// Measured tunings of kernels, used if `tuning` is the default.
    pub tunings: Option<TuningStore>,
    /// When tunings of kernels are measured between runs: by default on GPUs of unknown families.
    pub refining: Refining,
    /// A cache of compiled kernels for later processes.
    pub pipelines: Option<PipelineStore>,
    /// Placement of embedding tables.
    pub tables: Tables,
    /// Memory limit of all parameters in bytes, beyond which [`Tables::Auto`] keeps tables on the host; see
    /// [`ModelOptions::parameter_bytes`].
    pub parameter_bytes: Option<u64>,
    /// Limit in bytes of the cache for frequent rows of tables on the host; see [`ModelOptions::hot_row_bytes`].
    pub hot_row_bytes: u64,
    /// Limit in bytes of copies of these rows on the device; see [`ModelOptions::device_row_bytes`].
    pub device_row_bytes: u64,
    /// Storage types of floats that are not rows with a scale. A package keeps its own by default.
    pub precision: Precision,
    /// Accepts weights with tensors that the model does not use. By default they are an error, because they indicate that
    /// the configuration does not belong to the weights.
    pub allow_unread: bool,
    /// Requests like the first ones, whose kernels are compiled while the model is loaded. Rankings only.
    pub expected: Option<ExpectedRequests>,
    /// Rows per run: sequences are batched up to this number. A longer sequence runs alone.
    pub batch_rows: usize,
    /// Rows that are reserved for candidates if a history is too long, at least 1. With a larger value, many candidates
    /// are split over fewer sequences.
    pub candidate_room: usize,
    /// Layout of the KV cache of histories. A package has its own.
    pub cache: CacheOptions,
    /// Which files are memory-mapped: by default large ones. Do not map files that may be written to or truncated while the
    /// model uses them.
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
            refining: Refining::default(),
            pipelines: None,
            tables: Tables::Auto,
            parameter_bytes: None,
            hot_row_bytes: 0,
            device_row_bytes: 0,
            precision: Precision::default(),
            allow_unread: false,
            expected: None,
            batch_rows: 1 << 13,
            candidate_room: 1,
            cache: CacheOptions::default(),
            #[cfg(feature = "files")]
            mapping: rewire_runtime::Mapping::default(),
        }
    }
}

impl RankOptions {
    /// The model options. Ids are checked when a batch is built.
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
            refining: self.refining,
            pipelines: self.pipelines.clone(),
            tables: self.tables,
            parameter_bytes: self.parameter_bytes,
            hot_row_bytes: self.hot_row_bytes,
            device_row_bytes: self.device_row_bytes,
            ..ModelOptions::default()
        }
    }
}

/// Parses the text of a `config.json`; errors refer to it as `name`.
///
/// # Errors
/// [`RankError::Config`], and [`RankError::Matching`] for a model without logits.
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
