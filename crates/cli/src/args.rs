use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use rewire::graph::DType;
use rewire::graph_rewrite::emit::Tuning;
use rewire::rank::{CacheOptions, Embedded, Precision, RankOptions};
use rewire::{Kernel, Tables};
use rewire_measure::{BenchError, Lengths, MOST_SECONDS, Metric, SUITES, Shape};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

/// Ranks candidates with fused kernels on a GPU or the CPU.
#[derive(Debug, Parser)]
#[command(name = "rewire", version, propagate_version = true)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Args)]
pub struct Common {
    /// What runs the kernels: auto takes a hardware GPU, wgpu any adapter, cpu none.
    #[arg(long, global = true, env = "REWIRE_KERNEL", default_value = "auto", value_name = "KERNEL",
          value_parser = PossibleValuesParser::new(["auto", "wgpu", "cpu"]).try_map(|text| text.parse::<Kernel>()))]
    pub kernel: Kernel,
    /// A part of the adapter's name, driver, backend or PCI address, or # and its number as `rewire devices` lists it.
    #[arg(long, global = true, env = "REWIRE_ADAPTER", value_name = "SUBSTRING")]
    pub adapter: Option<String>,
    /// Print one JSON object a line.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists adapters and the CPU, and what `auto` takes.
    Devices,
    /// Ranks candidates for users by their histories.
    Rank(Rank),
    /// Writes the scores of all candidates of a file as a table.
    Predict(Predict),
    /// Trains a ranking model on what became of candidates.
    Train(Train),
    /// Writes a model as one file that starts at once.
    Package(Package),
    /// Replays golden cases and compares the results.
    Verify(Verify),
    /// Times operators, modules and models against the ceilings of the device.
    Bench(Box<Bench>),
    /// Measures the tunings of the kernels of operators, modules and models on the adapter, and keeps the fastest for later runs.
    Tune(Box<Tune>),
    /// Writes a Chrome trace of a run: what the host did, and every kernel by module.
    Profile(Box<Profile>),
    /// Draws the graph of a model or golden case.
    Graph(Graph),
}

#[derive(Debug, clap::Args)]
pub struct Rank {
    /// Folder with config.json and model.safetensors, or a package; the model in the program if left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// JSON Lines or Parquet, `-` for JSON Lines from stdin; the data in the program if left out.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Candidates to print for a user.
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub top: usize,
    /// Choices for all kernels: a list such as split_sums=true.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
pub struct Predict {
    /// Folder with config.json and model.safetensors, or a package; the model in the program if left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// JSON Lines, CSV or Parquet, by its ending, `-` for JSON Lines from stdin; the data in the program if left out.
    #[arg(long, value_name = "IN")]
    pub data: Option<PathBuf>,
    /// The file to write, whose ending says the format: .jsonl, .csv or .parquet. A row a candidate, in the order of the input.
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// Columns of the input to carry along: a value a user, or a list with a value a candidate.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Users, events and candidates to compute together; found by itself if left out. Changes no score.
    #[arg(long, value_name = "N")]
    pub batch: Option<NonZeroUsize>,
    /// Write vectors in place of scores: of users, or of candidates.
    #[arg(long, value_name = "OF", value_parser = PossibleValuesParser::new(["users", "items"]).map(|text| embedded(&text)))]
    pub embeddings: Option<Embedded>,
    /// Write the items of a catalogue that suit users best, by a matching model: the candidates of a file of requests.
    #[arg(long, value_name = "FILE", conflicts_with = "embeddings")]
    pub items: Option<PathBuf>,
    /// Items of the catalogue for a user.
    #[arg(long, value_name = "K", default_value = "10", requires = "items")]
    pub top: NonZeroUsize,
    /// Go on where a run was that was killed, with the same model, data and options; begin, if there was none.
    #[arg(long)]
    pub resume: bool,
    /// Write rows that are no requests there, as JSON Lines with the reason, and go on; without it the first one ends the run.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Rows after which what is written is made durable, at least every ten seconds: what --resume goes on from, and the row
    /// groups of Parquet.
    #[arg(long, value_name = "ROWS", default_value = "65536")]
    pub save_every: NonZeroU64,
    /// What stands between the values of a list in a field of CSV.
    #[arg(long, value_name = "C", default_value = ";", value_parser = ascii)]
    pub list_separator: u8,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
pub struct Train {
    /// Folder with config.json, and model.safetensors to begin with, if it is there, or a package; the model in the program, from
    /// scratch, if left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Users with labels: JSON Lines or Parquet; the data in the program if left out. May be given several times.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// How to train, JSON; as the program trains its own model if left out.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder to write: a model, and what --resume goes on from.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Users with labels to rank after every epoch and at the end; those of the training, at the end alone, if left out.
    #[arg(long, value_name = "FILE")]
    pub eval: Option<PathBuf>,
    /// Go on where the training that wrote the folder was.
    #[arg(long)]
    pub resume: bool,
    /// Begin with parameters drawn anew, though the model has some.
    #[arg(long)]
    pub fresh: bool,
    /// Bytes that the tensors of a step may take: what does not fit is computed again. As `memory_limit` of the configuration,
    /// which it replaces.
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<NonZeroU64>,
    /// Steps after which the folder is written, beside the end of every epoch.
    #[arg(long, value_name = "STEPS", default_value = "1000")]
    pub save_every: NonZeroU64,
}

#[derive(Debug, clap::Args)]
pub struct Package {
    /// Model folder, or a package to make another of; the model in the program if left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The file to write.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub out: Option<PathBuf>,
    /// Read all of the package --model and of the file with its tables, say whether they are as they were written, and write nothing.
    #[arg(long, requires = "model", conflicts_with = "out")]
    pub check: bool,
    #[command(flatten)]
    pub stored: Stored,
    /// Put embedding tables into a file of this name beside the package, which several packages may share: it stays as it is where
    /// it holds the same tables already, and is an error where it holds others.
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub tables_file: Option<String>,
    /// A device that the package is for beside the baseline: an adapter as for --adapter, or a file of JSON that tells what it
    /// offers. May be given several times.
    #[arg(long = "for", value_name = "ADAPTER")]
    pub devices: Vec<String>,
    /// Measure the tunings of the kernels first, on the adapters that --for names, with the users of a file: the first one alone,
    /// and those that follow together. Without it the package has what was measured before.
    #[arg(long, value_name = "FILE", requires = "devices")]
    pub tune: Option<PathBuf>,
    /// Seconds that an adapter is measured for, twice, or longer where every candidate needs it for a few runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds, requires = "tune")]
    pub seconds: f64,
    #[command(flatten)]
    pub weights: Weights,
}

/// Where parameters lie.
#[derive(Debug, clap::Args)]
pub struct Placement {
    /// Where embedding tables lie: on the device, on the host, which hands looked-up rows to the kernels, or auto: on the host
    /// where they exceed what parameters may take.
    #[arg(long, default_value = "auto", value_name = "PLACE",
          value_parser = PossibleValuesParser::new(["auto", "device", "host"]).try_map(|text| text.parse::<Tables>()))]
    pub tables_on: Tables,
    /// Bytes that parameters may take together; three quarters of the device's memory, or what the host has left, if left out.
    #[arg(long, value_name = "BYTES")]
    pub parameter_bytes: Option<u64>,
}

impl Placement {
    /// The options of a model that is placed so.
    pub fn of_model(&self) -> RankOptions {
        RankOptions { tables: self.tables_on, parameter_bytes: self.parameter_bytes, ..RankOptions::default() }
    }
}

/// How the floats of a model are stored.
#[derive(Debug, clap::Args)]
pub struct Stored {
    /// Storage of weights: f32, f16 or bf16, or matrices as int8 rows with a scale each; as the model has them if left out.
    #[arg(long, env = "REWIRE_DTYPE", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(["f32", "f16", "bf16", "int8"]).try_map(|text| storage(&text)))]
    pub dtype: Option<DType>,
    /// Storage of embedding tables: f32, f16 or bf16, or int8, int4 or int2 rows with a scale each; that of weights if left out.
    #[arg(long, env = "REWIRE_TABLES", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(TABLES).try_map(|text| storage(&text)))]
    pub tables: Option<DType>,
    /// Storage of values between kernels: f32, f16 or bf16; f32 if left out, or as the package has them.
    #[arg(long, env = "REWIRE_ACTIVATIONS", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(dtypes()).try_map(|text| dtype(&text)))]
    pub activations: Option<DType>,
    /// What sums of products are kept in: f32; f16, of halves on matrix hardware; or i32, by int8 weights without matrix hardware, with
    /// values rounded to 8 bits. f32 if left out, or as the package has them.
    #[arg(long, env = "REWIRE_SUMS", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(["f32", "f16", "i32"]).try_map(|text| dtype(&text)))]
    pub sums: Option<DType>,
    /// Storage of a history's keys and values, f32 or f16; as the package has them in one.
    #[arg(long, env = "REWIRE_CACHE", value_name = "DTYPE", default_value = "f32",
          value_parser = PossibleValuesParser::new(["f32", "f16"]).try_map(|text| dtype(&text)))]
    pub cache: DType,
}

/// Types that tables are stored in.
const TABLES: [&str; 6] = ["f32", "f16", "bf16", "int8", "int4", "int2"];

impl Stored {
    pub fn precision(&self) -> Precision {
        let (tables, sums) = (self.tables.or(self.dtype), self.sums);
        Precision { tables, weights: self.dtype, activations: self.activations, sums }
    }

    pub fn cache(&self) -> CacheOptions {
        CacheOptions { dtype: self.cache }
    }
}

/// How a model folder is taken.
#[derive(Debug, clap::Args)]
pub struct Weights {
    /// Take weights that hold tensors which the model of the configuration does not read.
    #[arg(long)]
    pub allow_unread: bool,
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Golden cases, or folders of them.
    #[arg(required_unless_present = "against", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write what was computed to DIR/<op>/<case>.safetensors.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Compute and compare gradients as well.
    #[arg(long)]
    pub backward: bool,
    /// Tile sizes for all kernels: a list such as rows=64,columns=32.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    /// Replay every case with each tuning that is worth a measurement, forced in turn: a line a case and variant.
    #[arg(long, conflicts_with_all = ["save", "tuning"])]
    pub variants: bool,
    #[command(flatten)]
    pub models: Models,
}

/// Two models whose scores are compared.
#[derive(Debug, clap::Args)]
pub struct Models {
    /// Compare a model's logits with those of this folder or package, instead of golden cases.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["paths", "save", "backward", "variants"])]
    pub against: Option<PathBuf>,
    /// The model that is compared, a folder or a package; the model in the program if left out.
    #[arg(long, value_name = "MODEL", requires = "against")]
    pub model: Option<PathBuf>,
    /// Users to compare over, with labels or without: JSON Lines or Parquet; the data in the program if left out.
    #[arg(long, value_name = "FILE", requires = "against")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Bench {
    /// What to time: operators and modules as listed below, `demo`, model folders and packages.
    #[arg(required_unless_present_any = ["suite", "records"], value_name = "OP|MODEL")]
    pub ops: Vec<String>,
    /// Also time a set of workloads, each at its own sizes.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SUITES))]
    pub suite: Option<String>,
    /// Seconds that each is repeated for.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Tile sizes for all kernels, instead of those that `rewire tune` found: a list such as rows=64,columns=32, or default.
    #[arg(long, value_name = "TUNING")]
    pub tuning: Option<Tuning>,
    /// Compare with what `--json` printed earlier; it is an error if anything is worse.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Changes of a metric up to this many percent are none: wall_ms, gpu_ms, peak_bytes or load_ms. May be given several
    /// times.
    #[arg(long, value_name = "METRIC=PERCENT", value_parser = threshold, requires = "compare")]
    pub threshold: Vec<(Metric, f64)>,
    /// Put what `--json` printed earlier, perhaps on other devices, into the picture and on the page as well.
    #[arg(long, value_name = "FILE")]
    pub records: Vec<PathBuf>,
    /// Write a roofline picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a page with floors, shares of the ceilings, and figures of other libraries.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Tune {
    /// What to tune: operators and modules as listed below, `demo`, model folders and packages.
    #[arg(required_unless_present = "suite", value_name = "OP|MODEL")]
    pub ops: Vec<String>,
    /// Also tune a set of workloads, each at its own sizes.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(SUITES))]
    pub suite: Option<String>,
    /// Seconds that each is measured for, or longer where every candidate needs it for a few runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
#[command(after_help = operators())]
pub struct Profile {
    /// What to run: an operator or module as listed below, `demo`, a model folder or a package.
    #[arg(value_name = "OP|MODEL")]
    pub op: String,
    /// The file to write; stdout if left out.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Time the parts instead: lookups of the rows that inputs name, what computes with the rows, and the whole.
    #[arg(long, conflicts_with = "output")]
    pub parts: bool,
    /// Seconds that each part is repeated for.
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
    /// The standard shape to begin with.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = PossibleValuesParser::new(Shape::NAMES))]
    pub shape: String,
    /// Number of samples.
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Number of heads.
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// Width of a query and a key of a head.
    #[arg(long, value_name = "N")]
    attn_dim: Option<usize>,
    /// Width of a value of a head; that of a query if only that is given.
    #[arg(long, value_name = "N")]
    hidden_dim: Option<usize>,
    /// Width of the rows of layers.
    #[arg(long, value_name = "N")]
    embedding_dim: Option<usize>,
    /// Number of layers.
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// The largest number of rows of a sample.
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    /// Rows of a sample: full, N, uniform:LO:HI, or uniform:LO%:HI% of the largest number.
    #[arg(long, value_name = "DIST")]
    len_dist: Option<Lengths>,
    /// Candidates among the rows of a sample: N, or uniform:LO:HI.
    #[arg(long, value_name = "DIST")]
    targets: Option<Lengths>,
    /// The largest distance that attention sees; 0 for no limit.
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// Contextual rows of a sample.
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Rows of a product.
    #[arg(long, value_name = "N")]
    m: Option<usize>,
    /// Length of the sums of a product.
    #[arg(long, value_name = "N")]
    k: Option<usize>,
    /// Columns of a product.
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
    /// Let dropout act.
    #[arg(long)]
    train: bool,
    /// Let the norm's gate and input come before its result.
    #[arg(long)]
    concat: bool,
    /// Put an activation and a residual behind the product.
    #[arg(long)]
    epilogue: bool,
    /// Compute the gradients of all inputs and parameters as well.
    #[arg(long)]
    backward: bool,
    /// Type of inputs, weights and results.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(dtypes()).try_map(|text| dtype(&text)))]
    dtype: Option<DType>,
    /// Type of embedding tables, also int8, int4 or int2 rows with a scale each; that of inputs if left out.
    #[arg(long, value_name = "DTYPE", value_parser = PossibleValuesParser::new(TABLES).try_map(|text| storage(&text)))]
    tables: Option<DType>,
    /// What lengths, targets and data follow from.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Sizes {
    /// The standard shape with what was given.
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
            seed: self.seed.unwrap_or(base.seed),
        })
    }
}

fn embedded(text: &str) -> Embedded {
    if text == "users" { Embedded::Users } else { Embedded::Items }
}

/// An ASCII character that is no part of a number or of CSV itself.
fn ascii(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"+-.\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("expected one ASCII character that is no part of a number, such as ; or |".to_owned()),
    }
}

/// Names of the types that floats are stored in.
fn dtypes() -> impl Iterator<Item = &'static str> {
    let stored = |dtype: &DType| dtype.is_float() && dtype.format().is_written();
    DType::ALL.into_iter().filter(stored).map(|dtype| dtype.format().name)
}

fn dtype(text: &str) -> Result<DType, String> {
    DType::named(text).ok_or_else(|| "expected a storage type".to_owned())
}

/// The storage type of parameters that is meant by a name.
fn storage(text: &str) -> Result<DType, String> {
    match text {
        "int8" => Ok(DType::Rows8),
        "int4" => Ok(DType::Rows4),
        "int2" => Ok(DType::Rows2),
        name => dtype(name),
    }
}

/// The name of a file in a folder that is told elsewhere.
fn file_name(text: &str) -> Result<String, String> {
    match std::path::Path::new(text).file_name() {
        Some(name) if name == text => Ok(text.to_owned()),
        _ => Err("expected the name of a file, without a folder".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("expected a number from 0 to {MOST_SECONDS}"))
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)
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

#[derive(Debug, clap::Args)]
pub struct Graph {
    /// Model folder, package or golden case; the model in the program if left out.
    #[arg(value_name = "MODEL|CASE")]
    pub model: Option<PathBuf>,
    /// As traced from the model's code, with the gradients of its parameters, or rewritten and fused.
    #[arg(long, value_enum, default_value_t = Stage::Rewritten)]
    pub stage: Stage,
    /// Rewrite the graph with the gradients of its parameters.
    #[arg(long)]
    pub backward: bool,
    /// Compute again what does not fit in BYTES, at the sizes that predictions are for.
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<NonZeroU64>,
    /// Form of the drawing.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    pub passes: Passes,
    #[command(flatten)]
    pub view: View,
}

/// What rewrites the graph.
#[derive(Debug, clap::Args)]
pub struct Passes {
    /// Run the first N passes.
    #[arg(long, value_name = "N")]
    pub passes_up_to: Option<usize>,
    /// Leave out a pass or a rule; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
    /// Run one pass or rule alone.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
}

/// What is printed instead of a drawing.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct View {
    /// Print which rule fired where, which nearly did, and why it did not.
    #[arg(long)]
    pub explain: bool,
    /// Print the operators that the passes removed and added.
    #[arg(long)]
    pub diff: bool,
    /// Print the WGSL of a kernel, by its number in the text of the rewritten graph.
    #[arg(long, value_name = "NODE")]
    pub wgsl: Option<usize>,
    /// Print where each kernel runs: on the target, with its bindings, or on the CPU, and why.
    #[arg(long, value_enum, value_name = "TARGET")]
    pub target: Option<MappingTarget>,
    /// Find the first rewrite of a golden case after which the interpreter computes something else.
    #[arg(long)]
    pub bisect: bool,
}

/// What kernels are mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MappingTarget {
    /// What every WebGPU implementation offers.
    Baseline,
    /// The adapter that `--kernel` and `--adapter` choose.
    Adapter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    Traced,
    Differentiated,
    Rewritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Dot,
    Svg,
}
