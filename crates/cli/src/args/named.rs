//! The model of a command, as its argument or as `--model`.

use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};
use std::ops::Deref;
use std::path::PathBuf;

/// The ids of the argument, of the option, and of the group of both.
const ARGUMENT: &str = "model";
pub const OPTION: &str = "model_option";
pub const EITHER: &str = "any_model";

const HELP: &str = "Model folder (config.json and model.safetensors), package, or for `run`, `describe`, `graph` and `package` an exported \
    model (.pt2, .onnx); also as --model";

/// A model, or the built-in one.
#[derive(Clone, Debug, Default)]
pub struct OptionalModel(Option<PathBuf>);

/// A model.
#[derive(Clone, Debug)]
pub struct RequiredModel(PathBuf);

impl From<Option<PathBuf>> for OptionalModel {
    fn from(path: Option<PathBuf>) -> Self {
        Self(path)
    }
}

impl Deref for OptionalModel {
    type Target = Option<PathBuf>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Deref for RequiredModel {
    type Target = PathBuf;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

fn augmented(command: Command, help: String, is_required: bool) -> Command {
    let path = || Arg::new(ARGUMENT).value_name("MODEL").value_parser(value_parser!(PathBuf));
    let option = path().id(OPTION).long("model").hide(true).conflicts_with(ARGUMENT);
    let group = ArgGroup::new(EITHER).args([ARGUMENT, OPTION]).required(is_required);
    command.arg(path().help(help)).arg(option).group(group)
}

fn of(matches: &ArgMatches) -> Option<PathBuf> {
    [ARGUMENT, OPTION].iter().find_map(|id| matches.get_one(id).cloned())
}

impl Args for OptionalModel {
    fn augment_args(command: Command) -> Command {
        augmented(command, format!("{HELP}; the built-in model if left out"), false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionalModel {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(of(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RequiredModel {
    fn augment_args(command: Command) -> Command {
        augmented(command, HELP.to_owned(), true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RequiredModel {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        of(matches).map(Self).ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingRequiredArgument))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
