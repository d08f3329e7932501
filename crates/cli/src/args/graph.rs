//! The command that draws graphs.

use super::OptionalModel;
use super::values::nonzero_bytes;
use clap::ValueEnum;
use std::num::NonZeroU64;

#[derive(Debug, clap::Args)]
pub struct Graph {
    /// May also be a golden case.
    #[command(flatten)]
    pub model: OptionalModel,
    /// The stage to draw: as traced from the model's code, with the gradients of its parameters, or rewritten and fused.
    #[arg(long, value_enum, default_value_t = Stage::Rewritten)]
    pub stage: Stage,
    /// Rewrite the graph with the gradients of its parameters.
    #[arg(long)]
    pub backward: bool,
    /// Recompute tensors that exceed BYTES, such as 2GiB, at the sizes assumed for predictions.
    #[arg(long, value_name = "BYTES", value_parser = nonzero_bytes)]
    pub memory_limit: Option<NonZeroU64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    pub passes: Passes,
    #[command(flatten)]
    pub view: View,
    /// Print where each kernel runs: on the target, with its bindings, or on the CPU, with the reason. With --wgsl, the target to emit the
    /// kernel for.
    #[arg(long, value_enum, value_name = "TARGET", conflicts_with_all = ["explain", "diff", "bisect"])]
    pub target: Option<MappingTarget>,
}

/// The rewriting passes.
#[derive(Debug, clap::Args)]
pub struct Passes {
    /// Run only the first N passes.
    #[arg(long, value_name = "N")]
    pub passes_up_to: Option<usize>,
    /// Leave out a pass or a rule; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,
    /// Run only this pass or rule.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
}

/// Output other than a drawing.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct View {
    /// Print which rules fired and where, which nearly matched, and why they did not.
    #[arg(long)]
    pub explain: bool,
    /// Print the operators that the passes removed and added.
    #[arg(long)]
    pub diff: bool,
    /// Print the WGSL of a kernel, by its number in the text of the rewritten graph, for TARGET or for the baseline with as many storage
    /// buffers as the kernel needs.
    #[arg(long, value_name = "NODE")]
    pub wgsl: Option<usize>,
    /// Find the first rewrite of a golden case that changes the interpreter's result.
    #[arg(long)]
    pub bisect: bool,
}

/// The target that kernels are mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MappingTarget {
    /// The limits that every WebGPU implementation offers.
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
