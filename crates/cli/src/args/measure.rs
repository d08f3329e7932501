//! Commands that measure.

use super::model::{Placement, SUMS, TABLES, WEIGHTS, Weights, dtype, dtypes, storage};
use super::quality::Quality;
use super::values::seconds;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rewire::Kernel;
use rewire::graph::DType;
use rewire::graph_rewrite::device::Tuning;
use rewire_measure::{BenchError, Lengths, Metric, SUITES, Shape, Sweep};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Bench {
    /// Workloads to time: operators and modules as listed below, `demo`, model folders and packages.
    #[arg(required_unless_present_any = ["suite", "records", "scaling"], value_name = "OP|MODEL")]
    pub ops: Vec<String>,
    /// Also time a set of workloads, each at its standard sizes.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SUITES))]
    pub suite: Option<String>,
    /// Seconds to repeat each one for.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Tile sizes for all kernels of one kind, instead of those that `rewire tune` found, such as
    /// reduction:threads=128; matrices=false for all; or default.
    #[arg(long, value_name = "TUNING")]
    pub tuning: Option<Tuning>,
    /// Also time each workload without some passes or rules, such as fusion: the difference is their effect.
    #[arg(long, value_name = "PASS,..", value_delimiter = ',', conflicts_with_all = ["sweep", "quality"])]
    pub without: Vec<String>,
    /// Train the built-in model as 1, 2 and 4 ranks of this process, at most one for each GPU, or as the ranks that MPI
    /// started; prints rows per second, and the time for computing, exchanging and waiting per step.
    #[arg(long, conflicts_with_all = ["ops", "suite", "sweep", "quality", "compare", "records", "svg", "markdown"])]
    pub scaling: bool,
    /// Compare with earlier `--json` output; it is an error if a workload is worse.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Tolerated change of a metric in percent: wall_ms, gpu_ms, peak_bytes or load_ms. May be given several times.
    #[arg(long, value_name = "METRIC=PERCENT", value_parser = threshold, requires = "compare")]
    pub threshold: Vec<(Metric, f64)>,
    /// Also include earlier `--json` output, for instance of other devices, in the picture and on the page.
    #[arg(long, value_name = "FILE")]
    pub records: Vec<PathBuf>,
    /// Write a roofline picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Sweep a size from LO to HI, doubling it each time, such as max-len=128:4096; --svg plots time over size.
    #[arg(long, value_name = "AXIS=LO:HI", requires = "ops",
          conflicts_with_all = ["suite", "compare", "records", "markdown"])]
    pub sweep: Option<Sweep>,
    /// Write one row per measurement of a sweep.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub csv: Option<PathBuf>,
    /// Kernels of a sweep: auto, wgpu and cpu; --kernel if left out.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "sweep")]
    pub kernels: Vec<Kernel>,
    /// Types of a sweep; --dtype if left out.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "sweep",
          value_parser = PossibleValuesParser::new(dtypes()).try_map(|text| dtype(&text)))]
    pub dtypes: Vec<DType>,
    /// Modes of a sweep: forward and backward; by --backward if left out.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "sweep",
          value_parser = PossibleValuesParser::new(["forward", "backward"]).map(|text| text == "backward"))]
    pub modes: Vec<bool>,
    /// Write a page with roofline floors, shares of the roofline, and figures of other libraries.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also time operators and layers in PyTorch, with this Python interpreter and as many threads.
    #[arg(long, value_name = "PYTHON", conflicts_with_all = ["sweep", "quality", "scaling"])]
    pub python: Option<PathBuf>,
    #[command(flatten)]
    pub quality: Quality,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Tune {
    /// Workloads to tune: operators and modules as listed below, `demo`, model folders and packages.
    #[arg(required_unless_present = "suite", value_name = "OP|MODEL")]
    pub ops: Vec<String>,
    /// Also tune a set of workloads, each at its standard sizes.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SUITES))]
    pub suite: Option<String>,
    /// Seconds to measure each workload; longer if the candidates need more time for a few runs each.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Compile {
    /// Workloads to compile: operators and modules as listed below, `demo`, model folders, packages and golden cases; `demo` if left out.
    #[arg(value_name = "WORK")]
    pub works: Vec<String>,
    /// Also compile a set of workloads, each at its standard sizes.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SUITES))]
    pub suite: Option<String>,
    /// Tile sizes for all kernels of one kind, such as reduction:threads=128; matrices=false for all; or default.
    #[arg(long, value_name = "TUNING", default_value = "default")]
    pub tuning: Tuning,
    /// Write the instructions of every kernel into this folder, one file each.
    #[arg(long, value_name = "DIR")]
    pub isa: Option<PathBuf>,
    /// Fail if a kernel spills registers.
    #[arg(long)]
    pub deny_spills: bool,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Profile {
    /// The workload: an operator or module as listed below, `demo`, a model folder or a package.
    #[arg(value_name = "OP|MODEL")]
    pub op: String,
    /// The file to write; stdout if left out.
    #[arg(long, alias = "output", value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Time the parts separately: lookups of table rows that inputs select, the computation on these rows, and the
    /// whole model.
    #[arg(long, conflicts_with = "out")]
    pub parts: bool,
    /// Seconds to repeat each part for.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, requires = "parts")]
    pub seconds: f64,
    #[command(flatten)]
    pub placement: Placement,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

/// Sizes that differ from those of the standard shape.
#[derive(Debug, clap::Args)]
pub struct Sizes {
    /// The standard shape to start from.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = PossibleValuesParser::new(Shape::NAMES))]
    pub shape: String,
    /// Number of samples.
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Number of heads.
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// Width of a head's queries and keys.
    #[arg(long, value_name = "N")]
    attn_dim: Option<usize>,
    /// Width of a head's values; --attn-dim if only that is given.
    #[arg(long, value_name = "N")]
    hidden_dim: Option<usize>,
    /// Width of the rows of layers.
    #[arg(long, value_name = "N")]
    embedding_dim: Option<usize>,
    /// Number of layers.
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Maximum number of rows of a sample.
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    /// Rows of a sample: full, N, uniform:LO:HI, or uniform:LO%:HI% of the largest number.
    #[arg(long, value_name = "DIST")]
    len_dist: Option<Lengths>,
    /// Candidates among the rows of a sample: N, or uniform:LO:HI.
    #[arg(long, value_name = "DIST")]
    targets: Option<Lengths>,
    /// Attention window; 0 for no limit.
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// Contextual rows of a sample.
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Rows of a matmul (M).
    #[arg(long, value_name = "N")]
    m: Option<usize>,
    /// Inner dimension of a matmul (K).
    #[arg(long, value_name = "N")]
    k: Option<usize>,
    /// Columns of a matmul (N).
    #[arg(long, value_name = "N")]
    n: Option<usize>,
    /// Rows of norms, pointwise operators and lookups.
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Columns of norms, pointwise and jagged operators and lookups.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Rows of the table of lookups.
    #[arg(long, value_name = "N")]
    table: Option<usize>,
    /// Enable dropout.
    #[arg(long)]
    train: bool,
    /// Concatenate the norm's gate and input before its result.
    #[arg(long)]
    concat: bool,
    /// Append an activation and a residual to the matmul.
    #[arg(long)]
    epilogue: bool,
    /// Also compute the gradients of all inputs and parameters.
    #[arg(long)]
    pub backward: bool,
    /// Type of inputs, weights and results.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(dtypes()).try_map(|text| dtype(&text)))]
    dtype: Option<DType>,
    /// Type of embedding tables, also int8, int4 or int2 rows with a scale per row; --dtype if left out.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(TABLES).try_map(|text| storage(&text)))]
    tables: Option<DType>,
    /// Type of weights, also matrices as int8 rows with a scale per row; --dtype if left out.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(WEIGHTS).try_map(|text| storage(&text)))]
    weights: Option<DType>,
    /// Accumulators of matmuls: f32; f16 for f16 operands on matrix hardware; or i32, with factors rounded to 8 bits.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(SUMS).try_map(|text| dtype(&text)))]
    sums: Option<DType>,
    /// Seed of lengths, targets and data.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Sizes {
    /// The standard shape with the given sizes.
    pub fn shape(&self) -> Result<Shape, BenchError> {
        let base = Shape::named(&self.shape)?;
        Ok(Shape {
            batch: self.batch.unwrap_or(base.batch),
            heads: self.heads.unwrap_or(base.heads),
            attn_dim: self.attn_dim.unwrap_or(base.attn_dim),
            hidden_dim: self.hidden_dim.or(self.attn_dim).unwrap_or(base.hidden_dim),
            embedding_dim: self.embedding_dim.unwrap_or(base.embedding_dim),
            layers: self.layers.unwrap_or(base.layers),
            max_len: self.max_len.unwrap_or(base.max_len),
            len_dist: self.len_dist.unwrap_or(base.len_dist),
            targets: self.targets.unwrap_or(base.targets),
            window: self.window.unwrap_or(base.window),
            context: self.context.unwrap_or(base.context),
            m: self.m.unwrap_or(base.m),
            k: self.k.unwrap_or(base.k),
            n: self.n.unwrap_or(base.n),
            rows: self.rows.unwrap_or(base.rows),
            width: self.width.unwrap_or(base.width),
            table: self.table.unwrap_or(base.table),
            train: self.train || base.train,
            concat: self.concat || base.concat,
            epilogue: self.epilogue || base.epilogue,
            backward: self.backward || base.backward,
            dtype: self.dtype.unwrap_or(base.dtype),
            tables: self.tables.or(base.tables),
            weights: self.weights.or(base.weights),
            sums: self.sums.or(base.sums),
            seed: self.seed.unwrap_or(base.seed),
        })
    }
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)
}

/// A share given in percent.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    percent(text).map(|percent| percent / 100.0).ok_or_else(|| "expected a number from 0".to_owned())
}

fn threshold(text: &str) -> Result<(Metric, f64), String> {
    let known = Metric::ALL.map(Metric::name).join(", ");
    let wrong = || format!("expected METRIC=PERCENT with a metric of {known}");
    let (name, percent) = text.split_once('=').ok_or_else(wrong)?;
    let metric = Metric::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(wrong)?;
    Ok((metric, self::percent(percent).ok_or_else(wrong)? / 100.0))
}

fn operators() -> String {
    let lines = rewire_measure::operators().map(|(name, about)| format!("  {name:<18}{about}\n"));
    format!("Operators and modules:\n{}", lines.collect::<String>())
}
