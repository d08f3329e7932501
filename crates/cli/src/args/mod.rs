//! The command line.

mod contradictions;
mod generate;
mod graph;
mod measure;
mod model;
mod quality;
mod retrieve;
mod sid;
mod watching;

pub use generate::Generate;
pub use graph::{Format, Graph, MappingTarget, Passes, Stage};
pub use measure::{Bench, Compile, Profile, Sizes, Tune};
pub use model::{Asked, Devices, Placement, Stored, Weights};
pub use quality::Quality;
pub use retrieve::{IndexKind, Retrieve};
pub use sid::Sid;
pub use watching::Watching;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use rewire::graph_rewrite::device::Tuning;
use rewire::rank::Embedded;
use rewire::{Kernel, KernelRule, Mapping, MatrixTier};
use rewire_measure::MOST_SECONDS;
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

#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// What runs the kernels: auto takes a hardware GPU or the adapter that --adapter names, wgpu any adapter, cpu none.
    #[arg(long, global = true, env = "REWIRE_KERNEL", default_value = "auto", value_name = "KERNEL",
          value_parser = PossibleValuesParser::new(["auto", "wgpu", "cpu"]).try_map(|text| text.parse::<Kernel>()))]
    pub kernel: Kernel,
    /// What runs the operators or modules that a pattern names, instead of --kernel: `stu*=cpu` for instance. `*` matches any text;
    /// of several patterns the last one counts. May be given several times.
    #[arg(long, global = true, value_name = "PATTERN=KERNEL")]
    pub kernel_for: Vec<KernelRule>,
    /// A part of the adapter's name, driver, backend or PCI address, or # and its number as `rewire devices` lists it.
    #[arg(long, global = true, env = "REWIRE_ADAPTER", value_name = "SUBSTRING")]
    pub adapter: Option<String>,
    /// How kernels multiply halves: none one by one, wgsl by cooperative matrices, spirv by these with operations on elements in registers,
    /// which `rewire devices` says who has; as fast as the adapter can if left out.
    #[arg(long, global = true, env = "REWIRE_MATRICES", value_name = "TIER",
          value_parser = PossibleValuesParser::new(["none", "wgsl", "spirv"]).try_map(|text| text.parse::<MatrixTier>()))]
    pub matrices: Option<MatrixTier>,
    /// Which files of a model are mapped into memory: large ones, or never any, which takes memory for all of them and leaves the model
    /// independent of its files.
    #[arg(long, global = true, env = "REWIRE_MAPPING", default_value = "large", value_name = "FILES",
          value_parser = PossibleValuesParser::new(["large", "never"]).try_map(|text| text.parse::<Mapping>()))]
    pub mapping: Mapping,
    /// Print one JSON object a line.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say on stderr what takes how long, with the seconds since the start.
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists adapters and the CPU, and what `auto` takes.
    Devices,
    /// Ranks candidates for users by their histories.
    Rank(Rank),
    /// Writes the scores of all candidates of a file as a table.
    Predict(Predict),
    /// Finds the items whose vectors suit those of users best, and reports recall.
    Retrieve(Retrieve),
    /// Finds items of prompts by a language model, by beam search inside a trie, or draws the tokens that follow them.
    Generate(Generate),
    /// Gives items semantic ids by residual k-means of their vectors, and writes the trie of them.
    Sid(Sid),
    /// Trains a ranking model on what became of candidates.
    Train(Train),
    /// Computes the metrics and losses of a model on a file with labels.
    Eval(Eval),
    /// Makes a model folder, or a package, of a model of TorchEasyRec, or a package of one that PyTorch exported.
    Import(Import),
    /// Runs a model of any kind on tensors by name.
    Run(Run),
    /// Writes a model as one file that starts at once.
    Package(Package),
    /// Replays golden cases and compares the results.
    Verify(Verify),
    /// Times operators, modules and models against the ceilings of the device.
    Bench(Box<Bench>),
    /// Measures the tunings of the kernels of operators, modules and models on the adapter, and keeps the fastest for later runs.
    Tune(Box<Tune>),
    /// Compiles the kernels of operators, modules and models for an adapter of Vulkan, runs none, and prints what its driver tells of each.
    Compile(Box<Compile>),
    /// Writes a Chrome trace of a run: what the host did, and every kernel by module.
    Profile(Box<Profile>),
    /// Draws the graph of a model or golden case.
    Graph(Graph),
    /// Prints what a model reads and gives: features with their ranges, tasks, tensors and an example request.
    Describe(Describe),
}

#[derive(Debug, clap::Args)]
pub struct Describe {
    /// Model folder, package or exported model (.pt2, .onnx); the model in the program if left out.
    #[arg(value_name = "MODEL")]
    pub model: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Eval {
    /// Folder with config.json and model.safetensors, or a package.
    #[arg(long, value_name = "MODEL")]
    pub model: PathBuf,
    /// JSON Lines, CSV (by its ending) or Parquet with features and labels; `-` for JSON Lines from stdin. Ranking models read JSON Lines and
    /// Parquet, with `labels`.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Sampled items of match models: row b has the negatives of batch b, a list in each column of the items' features.
    #[arg(long, value_name = "FILE")]
    pub negatives: Option<PathBuf>,
    /// Rows of a batch; the `eval_batch_size` of the configuration, or its `batch_size`, if left out. Losses are means over batches, and
    /// match models take negatives from the batch.
    #[arg(long, value_name = "N")]
    pub batch: Option<NonZeroUsize>,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
    #[command(flatten)]
    pub weights: Weights,
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
    /// The column of users of an imported model's table. Where a row is one candidate, its rows are put together by user.
    #[arg(long, value_name = "NAME")]
    pub user_column: Option<String>,
    /// The column of items of an imported model's table; the candidates' first feature where a row has several.
    #[arg(long, value_name = "NAME")]
    pub item_column: Option<String>,
    /// Choices for all kernels: a list such as split_sums=true.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub devices: Devices,
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
    /// JSON Lines, CSV (by its ending) or Parquet, uncompressed or with snappy, gzip, brotli, lz4 or zstd; `-` for JSON Lines from stdin; the
    /// data in the program if left out.
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
    /// Write the items of a catalogue that suit users best, by a matching model: the candidates of a file of requests, or the rows of a
    /// table for an imported model.
    #[arg(long, value_name = "FILE", conflicts_with = "embeddings")]
    pub items: Option<PathBuf>,
    /// Items of the catalogue for a user.
    #[arg(long, value_name = "K", default_value = "10", requires = "items")]
    pub top: NonZeroUsize,
    /// The column of items of an imported model's catalogue, integers; the candidates' first feature where a row has several.
    #[arg(long, value_name = "NAME", requires = "items")]
    pub item_column: Option<String>,
    /// Go on where a run was that was killed, with the same model, data and options; begin, if there was none.
    #[arg(long)]
    pub resume: bool,
    /// Write rows that the model does not take there, as JSON Lines with the reason, and go on; without it the first one ends the run. A run
    /// of which all rows are rejected fails and leaves the output as it was.
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
    pub devices: Devices,
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
    /// A pipeline of TorchEasyRec, a file that ends in .config: losses, optimizers, schedules, batches and steps are as it says. --model takes one
    /// that was imported as well.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "config"])]
    pub pipeline: Option<PathBuf>,
    /// The checkpoint that the training of --pipeline begins with, as for `import`; random parameters if left out.
    #[arg(long, value_name = "DIR", requires = "pipeline")]
    pub checkpoint: Option<PathBuf>,
    /// Users with labels: JSON Lines or Parquet; the data in the program if left out. For a pipeline a table with its columns, CSV as well. May be
    /// given several times.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Negatives of a pipeline with a sampler: row b has those of batch b.
    #[arg(long, value_name = "FILE")]
    pub negatives: Option<PathBuf>,
    /// The same for --eval; those of --negatives if left out.
    #[arg(long, value_name = "FILE", requires = "eval")]
    pub eval_negatives: Option<PathBuf>,
    /// Also write a pipeline that was trained as a checkpoint of TorchEasyRec, DIR/model.ckpt-N, with the state of its optimizers.
    #[arg(long, value_name = "DIR")]
    pub export_dcp: Option<PathBuf>,
    /// What random parameters and dropouts of a pipeline are drawn from; 0 if left out.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// How to train, JSON; as the program trains its own model if left out.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder to write: a model, and what --resume goes on from.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Users with labels to rank after every epoch and at the end; those of the training, at the end alone, if left out.
    #[arg(long, value_name = "FILE")]
    pub eval: Option<PathBuf>,
    /// Continue the training that wrote the folder, with the same model, configuration, data and device.
    #[arg(long)]
    pub resume: bool,
    /// Resume though the data, their order, the device or the program are not those of the checkpoint: results then differ from those
    /// of a training that was not interrupted.
    #[arg(long, requires = "resume")]
    pub allow_changes: bool,
    /// Begin with random parameters, though the model has some.
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,
    /// Bytes that the tensors of a step may take: what does not fit is computed again. As `memory_limit` of the configuration,
    /// which it replaces.
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<NonZeroU64>,
    /// Steps after which the folder is written, beside the end of every epoch.
    #[arg(long, value_name = "STEPS", default_value = "1000")]
    pub save_every: NonZeroU64,
    #[command(flatten)]
    pub watching: Watching,
}

#[derive(Debug, clap::Args)]
pub struct Import {
    /// The pipeline configuration of TorchEasyRec, a file that ends in .config, or an exported model, .pt2 or .onnx.
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Its checkpoint: a folder model.ckpt-N, a folder of such, whose latest is taken, or a .safetensors file with the same names.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Exponential moving averages of parameters, a distributed checkpoint or a .safetensors file of their own, which take the places of the
    /// parameters with their names.
    #[arg(long, value_name = "DIR")]
    pub ema: Option<PathBuf>,
    /// The model folder to write, or a package where the name ends in .rewire. An exported model becomes a package.
    #[arg(long, value_name = "MODEL")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Run {
    /// Model folder, package, or an exported model, .pt2 or .onnx.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The tensors of a run, safetensors, with the names that `describe` prints.
    #[arg(long, value_name = "FILE")]
    pub inputs: PathBuf,
    /// The file to write, safetensors: what the model gives, and buffers and inputs that it changes.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Repeat the run for so many seconds and print the median and least time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Choices for all kernels: a list such as split_sums=true.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
}

#[derive(Debug, clap::Args)]
pub struct Package {
    /// Model folder, exported model (.pt2, .onnx), or a package to make another of; the model in the program if left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The file to write. It is written beside and renamed, so that programs that have an older package of this name loaded keep it. Copying over it in
    /// place is an error for them.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub out: Option<PathBuf>,
    /// Read all of the package --model and of the file with its tables, say whether they are as they were written, and write nothing.
    #[arg(long, requires = "model", conflicts_with_all = ["out", "tables_file", "devices", "tune"])]
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
    /// A tile for the kernels that have one of its kind, such as reduction:threads=128; matrices=false for all.
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
