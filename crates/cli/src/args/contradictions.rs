//! Arguments that contradict each other.

use super::{Args, Command, Common, Format, IndexKind, config, examples};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use rewire::graph_rewrite::device::Tuning;
use rewire::{Kernel, KernelRule, MatrixTier};
use std::ffi::OsString;
use std::path::Path;

impl Args {
    /// Parses the arguments of a process, including the program's name.
    ///
    /// `--kernel cpu` overrides environment variables that only apply to adapters; all other contradictions are errors.
    pub fn parse_from_process(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments = current(arguments.collect());
        let mut command = Self::complete_command();
        command = config::with_defaults(command.clone(), &arguments)
            .map_err(|error| command.error(ErrorKind::ValueValidation, error))?;
        let matches = command.try_get_matches_from_mut(arguments)?;
        let mut args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if source(&matches, "kernel") == Some(ValueSource::CommandLine) && args.common.kernel == Kernel::Cpu {
            args.forget_variables_of_adapters(&matches);
        }
        match args.contradiction() {
            None => Ok(args),
            Some(reason) => Err(command.error(ErrorKind::ArgumentConflict, reason)),
        }
    }

    /// The command line with the examples of all commands.
    pub fn complete_command() -> clap::Command {
        examples::added(Self::command())
    }

    fn forget_variables_of_adapters(&mut self, matches: &ArgMatches) {
        let is_variable = |name: &str| source(matches, name) == Some(ValueSource::EnvVariable);
        if is_variable("adapter") {
            self.common.adapter = None;
        }
        if is_variable("matrices") {
            self.common.matrices = None;
        }
        match &mut self.command {
            Command::Rank(rank) if is_variable("tuning") => rank.tuning = Tuning::default(),
            Command::Verify(verify) if is_variable("tuning") => verify.tuning = Tuning::default(),
            Command::Compare(compare) if is_variable("tuning") => compare.tuning = Tuning::default(),
            _ => {}
        }
    }

    fn contradiction(&self) -> Option<&'static str> {
        let Self { common, command } = self;
        let is_cpu = KernelRule::device(common.kernel, &common.kernel_for) == Kernel::Cpu;
        let on_cpu = is_cpu.then(|| of_adapters(common, command)).flatten();
        on_cpu.or_else(|| match command {
            Command::Predict(predict) if predict.resume && predict.data.as_deref() == Some(Path::new("-")) => {
                Some("--resume needs --data in a file: stdin cannot be read again")
            }
            Command::Retrieve(retrieve) if retrieve.recall && retrieve.index == IndexKind::Exact => {
                Some("--recall compares an index with the exact search: name one by --index, such as --index hnsw")
            }
            Command::Graph(graph) if common.json => {
                let is_text = graph.view.explain || graph.view.diff || graph.view.wgsl.is_some() || graph.view.bisect;
                (is_text || graph.format != Format::Text).then_some(
                    "graph --json prints counts, or with --target where kernels run: leave out --json, or --format, --explain, --diff, \
                     --wgsl and --bisect",
                )
            }
            _ => None,
        })
    }
}

/// An argument that only applies to adapters.
fn of_adapters(common: &Common, command: &Command) -> Option<&'static str> {
    let tuning = match command {
        Command::Rank(rank) => Some(rank.tuning),
        Command::Verify(verify) => Some(verify.tuning),
        Command::Compare(compare) => Some(compare.tuning),
        Command::Bench(bench) => bench.tuning,
        _ => None,
    };
    if common.adapter.is_some() {
        Some("--kernel cpu uses no adapter: leave out --adapter, or use --kernel wgpu")
    } else if common.matrices.is_some_and(|tier| tier != MatrixTier::None) {
        Some("--kernel cpu has no matrices: leave out --matrices, or use --kernel wgpu")
    } else if tuning.is_some_and(|tuning| tuning != Tuning::default()) {
        Some("--kernel cpu has no tunings: leave out --tuning, or use --kernel wgpu")
    } else if matches!(command, Command::Tune(_)) {
        Some("tune measures kernels on adapters: use --kernel wgpu")
    } else if matches!(command, Command::Compile(_)) {
        Some("compile is for kernels of adapters: use --kernel wgpu")
    } else {
        None
    }
}

/// The source of an argument's value, which may be a subcommand's.
fn source(matches: &ArgMatches, name: &str) -> Option<ValueSource> {
    let of = |matches: &ArgMatches| match matches.try_contains_id(name) {
        Ok(true) => matches.value_source(name),
        _ => None,
    };
    of(matches).or_else(|| of(matches.subcommand()?.1))
}

/// The arguments with `compare` in place of `verify --against`, an older name of it.
fn current(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_against =
        |word: &OsString| word.to_str().is_some_and(|word| word == "--against" || word.starts_with("--against="));
    if let Some(word) =
        arguments.iter().any(is_against).then(|| arguments.iter_mut().find(|word| *word == "verify")).flatten()
    {
        *word = "compare".into();
    }
    arguments
}
