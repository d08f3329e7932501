//! The command line.

mod compare;
mod config;
mod contradictions;
#[cfg(test)]
mod documented;
mod examples;
mod generate;
mod graph;
mod measure;
mod model;
mod named;
mod quality;
mod retrieve;
#[cfg(feature = "serve")]
mod serve;
mod sid;
mod values;
mod watching;

pub use compare::Compare;
pub use generate::Generate;
pub use graph::{Format, Graph, MappingTarget, Passes, Stage};
pub use measure::{Bench, Compile, Profile, Sizes, Tune};
pub use model::{Asked, DeviceList, Devices, Placement, Stored, Weights};
pub use named::{OptionalModel, RequiredModel};
pub use quality::Quality;
pub use retrieve::{IndexKind, Retrieve};
#[cfg(feature = "serve")]
pub use serve::Serve;
pub use sid::Sid;
pub use watching::Watching;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand};
use clap_complete::Shell;
use rewire::graph_rewrite::device::Tuning;
use rewire::rank::Embedded;
use rewire::runtime::Refining;
use rewire::{Kernel, KernelRule, Mapping, MatrixTier};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use values::{ascii, embedded, file_name, nonzero_bytes, seconds};

/// Ranks candidates with fused kernels on a GPU or the CPU.
#[derive(Debug, Parser)]
#[command(name = "rewire", version, propagate_version = true)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[expect(missing_docs, reason = "clap would show it as the description of the program")]
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Common {
    /// Backend of kernels: auto selects a hardware GPU, else the CPU, or the adapter that --adapter names; wgpu
    /// requires an adapter; cpu uses none.
    #[arg(long, global = true, env = "REWIRE_KERNEL", default_value = "auto", value_name = "KERNEL",
          value_parser = PossibleValuesParser::new(["auto", "wgpu", "cpu"]).try_map(|text| text.parse::<Kernel>()))]
    pub kernel: Kernel,
    /// Backend of operators or modules that match a pattern, instead of --kernel, such as `stu*=cpu`. `*` matches any
    /// text; the last matching pattern applies. May be given several times.
    #[arg(long, global = true, value_name = "PATTERN=KERNEL")]
    pub kernel_for: Vec<KernelRule>,
    /// A part of the adapter's name, driver, backend or PCI address, or # and its number in the list of `rewire
    /// devices`. `{rank}` is replaced by the number of a rank of `train` on its machine: #{rank} gives each rank a GPU.
    #[arg(long, global = true, env = "REWIRE_ADAPTER", value_name = "SUBSTRING")]
    pub adapter: Option<String>,
    /// f16 matmul tier: none uses multiply-adds; wgsl uses cooperative matrices; spirv does, too, with elementwise work
    /// in registers. The best available tier if left out. `rewire devices` lists the tier of each adapter.
    #[arg(long, global = true, env = "REWIRE_MATRICES", value_name = "TIER",
          value_parser = PossibleValuesParser::new(["none", "wgsl", "spirv"]).try_map(|text| text.parse::<MatrixTier>()))]
    pub matrices: Option<MatrixTier>,
    /// When tunings of kernels are measured between runs, for later runs and programs: on GPUs of unknown families,
    /// always, or never. Commands that measure or check kernels never do.
    #[arg(long, global = true, env = "REWIRE_REFINE", default_value = "unknown", value_name = "WHEN",
          value_parser = PossibleValuesParser::new(["unknown", "always", "never"]).try_map(|text| text.parse::<Refining>()))]
    pub refine: Refining,
    /// Which model files are memory-mapped: large ones, or never any. Files that are not mapped are read into memory,
    /// and may change afterwards.
    #[arg(long, global = true, env = "REWIRE_MAPPING", default_value = "large", value_name = "FILES",
          value_parser = PossibleValuesParser::new(["large", "never"]).try_map(|text| text.parse::<Mapping>()))]
    pub mapping: Mapping,
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only warnings and errors to stderr.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log the duration of each stage to stderr, with the seconds since the start; -vv also logs libraries.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// TOML file with defaults of options: keys are options of all commands; a table named after a command holds its
    /// options. ~/.config/rewire/config.toml if left out.
    #[arg(long, global = true, env = "REWIRE_CONFIG", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists adapters and the CPU, and the one that `auto` selects.
    Devices(DeviceList),
    /// Ranks candidates for users from their histories.
    Rank(Rank),
    /// Scores all candidates of a file and writes the scores as a table.
    Predict(Predict),
    /// Finds the items with the best matching vectors for users, and reports recall.
    Retrieve(Retrieve),
    /// Generates items from prompts with a language model, by beam search in a trie, or samples the tokens that follow
    /// them.
    Generate(Generate),
    /// Assigns semantic ids to items by residual k-means of their vectors, or by an autoencoder, and writes their trie.
    Sid(Sid),
    /// Trains a ranking model or a TorchEasyRec pipeline.
    Train(Train),
    /// Computes the metrics and losses of a model on a file with labels.
    Eval(Eval),
    /// Imports a TorchEasyRec model as a model folder or a package, or an exported PyTorch model as a package.
    Import(Import),
    /// Runs any model on named tensors.
    Run(Run),
    /// Packs a model into one file that loads fast.
    Package(Package),
    /// Applies the deltas of a training to a model.
    Apply(Apply),
    /// Replays golden cases and compares the results.
    Verify(Verify),
    /// Compares the logits of two models for the same users.
    Compare(Compare),
    /// Times operators, modules and models against the roofline of the device.
    Bench(Box<Bench>),
    /// Tunes the kernels of operators, modules and models on the adapter, and stores the fastest variants for later runs.
    Tune(Box<Tune>),
    /// Compiles the kernels of operators, modules and models for a Vulkan adapter without running them, and prints the statistics of its
    /// driver.
    Compile(Box<Compile>),
    /// Writes a Chrome trace of a run: the host's work, and every kernel by module.
    Profile(Box<Profile>),
    /// Draws the graph of a model or golden case.
    Graph(Graph),
    /// Serves models by HTTP: requests of many clients run together.
    #[cfg(feature = "serve")]
    Serve(Box<Serve>),
    /// Prints the inputs and outputs of a model: features with their ranges, tasks, tensors and an example request.
    Describe(Describe),
    /// Prints the completions of a shell.
    Completions(Completions),
    /// Writes the manual pages of all commands.
    #[command(hide = true)]
    Man(Man),
}

#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct Man {
    /// The folder of the pages.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Describe {
    #[command(flatten)]
    pub model: OptionalModel,
}

#[derive(Debug, clap::Args)]
pub struct Eval {
    #[command(flatten)]
    pub model: RequiredModel,
    /// JSON Lines, CSV (by its ending) or Parquet with features and labels; `-` for JSON Lines from stdin. Ranking models read JSON Lines and
    /// Parquet, with `labels`.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Sampled items for match models: row b has the negatives of batch b, one list per column of the items' features.
    #[arg(long, value_name = "FILE")]
    pub negatives: Option<PathBuf>,
    /// Batch size in rows; the configuration's `eval_batch_size`, or its `batch_size`, if left out. Losses are means over batches, and
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
    #[command(flatten)]
    pub model: OptionalModel,
    /// JSON Lines or Parquet, `-` for JSON Lines from stdin; the built-in data if left out.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Candidates to print per user.
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub top: usize,
    /// The user column of an imported model's table. If each row holds one candidate, rows are grouped by user.
    #[arg(long, value_name = "NAME")]
    pub user_column: Option<String>,
    /// The item column of an imported model's table; the candidates' first feature if a row has several candidates.
    #[arg(long, value_name = "NAME")]
    pub item_column: Option<String>,
    /// Tuning of all kernels: a list such as split_sums=true.
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
    #[command(flatten)]
    pub model: OptionalModel,
    /// JSON Lines, CSV (by its extension) or Parquet, uncompressed or with snappy, gzip, brotli, lz4 or zstd; `-` for JSON Lines from
    /// stdin; the built-in data if left out.
    #[arg(long, value_name = "IN")]
    pub data: Option<PathBuf>,
    /// The output file; its extension selects the format: .jsonl, .csv or .parquet. One row per candidate, in the order of the
    /// input.
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// Input columns to copy to the output: one value per user, or a list with one value per candidate.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Maximum sum of users, events and candidates per batch; chosen automatically if left out. Scores do not depend on
    /// it.
    #[arg(long, value_name = "N")]
    pub batch: Option<NonZeroUsize>,
    /// Write vectors instead of scores: of users, or of candidates.
    #[arg(long, value_name = "OF", value_parser = PossibleValuesParser::new(["users", "items"]).map(|text| embedded(&text)))]
    pub embeddings: Option<Embedded>,
    /// Write the best catalogue items of users, with a matching model: the candidates of a file of requests, or the
    /// rows of a table for an imported model.
    #[arg(long, value_name = "FILE", conflicts_with = "embeddings")]
    pub items: Option<PathBuf>,
    /// Catalogue items per user.
    #[arg(long, value_name = "K", default_value = "10", requires = "items")]
    pub top: NonZeroUsize,
    /// The item column of an imported model's catalogue, integers; the candidates' first feature if a row has several
    /// candidates.
    #[arg(long, value_name = "NAME", requires = "items")]
    pub item_column: Option<String>,
    /// Continue an interrupted run with the same model, data and options; start from the beginning if there was none.
    #[arg(long)]
    pub resume: bool,
    /// Write invalid rows to FILE as JSON Lines with the reason, and continue. Without this option the first invalid row aborts the run. A
    /// run with only invalid rows fails and leaves the output unchanged.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
    /// Rows between checkpoints, which are written at least every ten seconds. --resume continues from a checkpoint, and
    /// Parquet starts a new row group.
    #[arg(long, value_name = "ROWS", default_value = "65536")]
    pub save_every: NonZeroU64,
    /// The separator of list values in a CSV field.
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

/// A training.
#[derive(Debug, clap::Args)]
pub struct Train {
    /// The model.
    #[command(flatten)]
    pub model: OptionalModel,
    /// A TorchEasyRec pipeline (a file that ends in .config), which sets losses, optimizers, schedules, batches and
    /// steps. --model also accepts an imported pipeline.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["any_model", "config"])]
    pub pipeline: Option<PathBuf>,
    /// The checkpoint from which the training of --pipeline starts, as for `import`; random parameters if left out.
    #[arg(long, value_name = "DIR", requires = "pipeline")]
    pub checkpoint: Option<PathBuf>,
    /// Users with labels: JSON Lines or Parquet; the built-in data if left out. For a pipeline, a table with its columns, also CSV. May be
    /// given several times.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Negatives for a pipeline with a sampler: row b has the negatives of batch b.
    #[arg(long, value_name = "FILE")]
    pub negatives: Option<PathBuf>,
    /// Negatives for --eval; those of --negatives if left out.
    #[arg(long, value_name = "FILE", requires = "eval")]
    pub eval_negatives: Option<PathBuf>,
    /// Also write a trained pipeline as a TorchEasyRec checkpoint, DIR/model.ckpt-N, with its optimizer states.
    #[arg(long, value_name = "DIR")]
    pub export_dcp: Option<PathBuf>,
    /// Seed of the random parameters and dropout of a pipeline; 0 if left out.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Training configuration, JSON; that of the built-in model if left out.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The output folder: a model, and the checkpoint for --resume.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Users with labels to evaluate on after every epoch and at the end; the training data, only at the end, if left out.
    #[arg(long, value_name = "FILE")]
    pub eval: Option<PathBuf>,
    /// Continue the training that wrote the folder, with the same model, configuration, data and device.
    #[arg(long)]
    pub resume: bool,
    /// Resume even if the data, their order, the device or the program differ from those of the checkpoint. The results
    /// then differ from an uninterrupted training.
    #[arg(long, requires = "resume")]
    pub allow_changes: bool,
    /// Start from random parameters, even if the model has trained ones.
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,
    /// Memory limit of a step's tensors in bytes; tensors that exceed it are recomputed. Overrides `memory_limit` of the
    /// configuration.
    #[arg(long, value_name = "BYTES", value_parser = nonzero_bytes)]
    pub memory_limit: Option<NonZeroU64>,
    /// Keep tables and their optimizer states in files of this folder instead of memory; the system caches used pages.
    /// The files are unnamed and are deleted when the program ends.
    #[arg(long, value_name = "DIR")]
    pub tables_folder: Option<PathBuf>,
    /// Write a Chrome trace of the batch with the fastest kernels, with every kernel by module.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Steps between checkpoints, in addition to the end of every epoch.
    #[arg(long, value_name = "STEPS", default_value = "1000")]
    pub save_every: NonZeroU64,
    /// Steps between deltas: files in OUT/deltas with the changes since the previous delta, for `apply` and `serve`. A delta is
    /// also written before every checkpoint.
    #[arg(long, value_name = "STEPS")]
    pub delta_every: Option<NonZeroU64>,
    /// Number of ranks in this process; a step trains on the batches of all ranks. Not for programs that MPI starts,
    /// which are one rank each.
    #[arg(long, value_name = "N")]
    pub ranks: Option<NonZeroUsize>,
    /// Seconds that a rank waits for another rank before it fails with an error that names that rank.
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
    pub rank_timeout: f64,
    /// Event files and early stopping.
    #[command(flatten)]
    pub watching: Watching,
}

#[derive(Debug, clap::Args)]
pub struct Import {
    /// A TorchEasyRec pipeline configuration (.config), or an exported model (.pt2 or .onnx).
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Its checkpoint: a folder model.ckpt-N, a folder of these, of which the latest is used, or a .safetensors file with the same
    /// names.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Exponential moving averages that replace the parameters with the same names: a distributed checkpoint or a separate .safetensors
    /// file.
    #[arg(long, value_name = "DIR")]
    pub ema: Option<PathBuf>,
    /// The model folder to write, or a package if the name ends in .rewire. An exported model becomes a package.
    #[arg(long, value_name = "MODEL")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Run {
    #[command(flatten)]
    pub model: RequiredModel,
    /// The input tensors, safetensors, with the names that `describe` prints.
    #[arg(long, value_name = "FILE")]
    pub inputs: PathBuf,
    /// The output file, safetensors: the model's results, and the buffers and inputs that it changes.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Repeat the run for this many seconds and print the median and minimum time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Write a Chrome trace of the fastest of 20 further runs, with every kernel by module.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Tuning of all kernels: a list such as split_sums=true.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub stored: Stored,
    #[command(flatten)]
    pub placement: Placement,
}

#[derive(Debug, clap::Args)]
pub struct Package {
    #[command(flatten)]
    pub model: OptionalModel,
    /// The output file. It is written under a temporary name and renamed, so programs that have loaded an older package
    /// of this name keep their content. Do not copy over a package in place: programs that use it would fail.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub out: Option<PathBuf>,
    /// Read the whole package and its file of tables, report whether both are intact, and write nothing.
    #[arg(long, requires = "any_model", conflicts_with_all = ["out", "tables_file", "devices", "tune"])]
    pub check: bool,
    #[command(flatten)]
    pub stored: Stored,
    /// Store embedding tables in a file of this name next to the package. Several packages may share it: a file with the same
    /// tables is left unchanged, one with other tables is an error.
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub tables_file: Option<String>,
    /// A target device in addition to the baseline: an adapter as for --adapter, or a JSON file that describes its limits and
    /// features. May be given several times.
    #[arg(long = "for", value_name = "ADAPTER")]
    pub devices: Vec<String>,
    /// First tune the kernels on the adapters of --for, with the users of a file: the first user alone, and the
    /// following ones as a batch. Without it the package contains earlier tuning results.
    #[arg(long, value_name = "FILE", requires = "devices")]
    pub tune: Option<PathBuf>,
    /// Seconds to measure each of the two on an adapter; longer if the candidates need more time for a few runs each.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds, requires = "tune")]
    pub seconds: f64,
    #[command(flatten)]
    pub weights: Weights,
}

#[derive(Debug, clap::Args)]
pub struct Apply {
    /// Model folder or package from a training with --delta-every.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The deltas that follow the model's version, in order.
    #[arg(required = true, value_name = "DELTA")]
    pub deltas: Vec<PathBuf>,
    /// The folder or package to write, of the same kind as the model; it may be the model itself. It is
    /// replaced atomically.
    #[arg(long, value_name = "MODEL")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Golden cases, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write the computed results to DIR/<op>/<case>.safetensors.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Also compute and compare gradients.
    #[arg(long)]
    pub backward: bool,
    /// Tile sizes for all kernels of one kind, such as reduction:threads=128; matrices=false for all.
    #[arg(long, env = "REWIRE_TUNING", value_name = "TUNING", default_value_t)]
    pub tuning: Tuning,
    /// Replay every case with each candidate tuning, forced in turn: one line per case and variant.
    #[arg(long, conflicts_with_all = ["save", "tuning"])]
    pub variants: bool,
}
