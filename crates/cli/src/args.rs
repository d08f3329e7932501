use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use rewire::Kernel;
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
    #[arg(long, global = true, default_value = "auto", value_name = "KERNEL",
          value_parser = PossibleValuesParser::new(["auto", "wgpu", "cpu"]).try_map(|text| text.parse::<Kernel>()))]
    pub kernel: Kernel,
    /// A part of the adapter's name, driver or backend.
    #[arg(long, global = true, value_name = "SUBSTRING")]
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
    /// Replays golden cases and compares the results.
    Verify(Verify),
    /// Draws the graph of a model or golden case.
    Graph(Graph),
}

#[derive(Debug, clap::Args)]
pub struct Rank {
    /// Folder with config.json and model.safetensors; the model in the program if left out.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// JSON Lines or Parquet, `-` for JSON Lines from stdin; the data in the program if left out.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Candidates to print for a user.
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub top: usize,
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// Golden cases, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Write what was computed to DIR/<op>/<case>.safetensors.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Graph {
    /// Model folder or golden case; the model in the program if left out.
    #[arg(value_name = "MODEL|CASE")]
    pub model: Option<PathBuf>,
    /// As traced from the model's code, or rewritten and fused.
    #[arg(long, value_enum, default_value_t = Stage::Rewritten)]
    pub stage: Stage,
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
    /// Find the first rewrite of a golden case after which the interpreter computes something else.
    #[arg(long)]
    pub bisect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    Traced,
    Rewritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Dot,
    Svg,
}
