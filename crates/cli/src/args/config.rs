//! Defaults of options from a file.

use super::named;
use clap::{ArgAction, Command};
use etcetera::{BaseStrategy, choose_base_strategy};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::{Table, Value};

/// The variable with the path of the file.
const VARIABLE: &str = "REWIRE_CONFIG";

/// The option with the path of the file.
const OPTION: &str = "--config-file";

/// Why the file does not set options.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {}", path.display(), source.to_string().trim_end().replace('\n', " "))]
    Toml {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: Box<toml::de::Error>,
    },
    /// There is no such command or option.
    #[error("{}: `{key}` is not {expected}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The kind of expected key.
        expected: String,
    },
    /// A value is a table or a date.
    #[error("{}: `{key}` is {actual}: expected a string, a number, a boolean or a list of them", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its type.
        actual: &'static str,
    },
}

/// The path of the file: `--config-file`, `REWIRE_CONFIG`, or the default if that exists.
fn path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut words = arguments.iter().skip(1).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == OPTION {
            return words.next().map(PathBuf::from);
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix(OPTION)?.strip_prefix('=')) {
            return Some(path.into());
        }
    }
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.map(PathBuf::from).or_else(|| Some(default_path()?).filter(|path| path.is_file()))
}

fn default_path() -> Option<PathBuf> {
    Some(choose_base_strategy().ok()?.config_dir().join("rewire").join("config.toml"))
}

/// Sets the defaults of options from the file, if there is one. Its keys are options of all commands; its tables are
/// named after commands and set their options.
///
/// # Errors
/// [`ConfigError`].
pub fn with_defaults(command: Command, arguments: &[OsString]) -> Result<Command, ConfigError> {
    let Some(path) = path(arguments) else { return Ok(command) };
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
    let table: Table =
        text.parse().map_err(|source| ConfigError::Toml { path: path.clone(), source: Box::new(source) })?;
    table.into_iter().try_fold(command, |command, (key, value)| match value {
        Value::Table(options) => of_command(command, &path, &key, options),
        value => set(command, &path, &key, &key, &value),
    })
}

fn of_command(command: Command, path: &Path, name: &str, options: Table) -> Result<Command, ConfigError> {
    if command.find_subcommand(name).is_none() {
        let (path, key, expected) = (path.to_owned(), name.to_owned(), "a command".to_owned());
        return Err(ConfigError::Unknown { path, key, expected });
    }
    let mut fault = None;
    let command = command.mut_subcommand(name, |command| {
        let set = |command: Command, (key, value): (String, Value)| {
            let title = format!("{name}.{key}");
            set(command.clone(), path, &title, &key, &value).unwrap_or_else(|error| {
                fault.get_or_insert(error);
                command
            })
        };
        options.into_iter().fold(command, set)
    });
    fault.map_or(Ok(command), Err)
}

/// Sets the default of an option, which errors call `title`.
fn set(command: Command, path: &Path, title: &str, key: &str, value: &Value) -> Result<Command, ConfigError> {
    let found = command.get_arguments().find(|arg| arg.get_long() == Some(key));
    let Some(id) = found.map(|arg| arg.get_id().clone()) else {
        let expected = match command.get_name() {
            "rewire" => "an option of all commands, or a table of a command's options".to_owned(),
            name => format!("an option of `{name}`"),
        };
        return Err(ConfigError::Unknown { path: path.to_owned(), key: title.to_owned(), expected });
    };
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(value) => Ok(value.to_string()),
        other => Err(ConfigError::Value { path: path.to_owned(), key: title.to_owned(), actual: other.type_str() }),
    };
    let values = match value {
        Value::Array(values) => values.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        value => vec![text(value)?],
    };
    let is_model = id == named::OPTION && command.get_groups().any(|group| group.get_id() == named::EITHER);
    let command = if is_model { command.mut_group(named::EITHER, |group| group.required(false)) } else { command };
    Ok(command.mut_arg(id, |arg| match arg.get_action() {
        // Flags without a value.
        ArgAction::Count if values == ["true"] => arg.default_value("1"),
        _ => arg.required(false).default_values(values),
    }))
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command, Rank};
    use std::io::Write as _;

    fn parse(config: &str, words: &str) -> Result<Args, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(config.as_bytes()).unwrap();
        let option = ["--config-file".into(), file.path().as_os_str().to_owned()];
        let words = std::iter::once("rewire").chain(words.split(' ')).map(Into::into).chain(option);
        Args::parse_from_process(words).map_err(|error| error.to_string())
    }

    fn rank(args: &Args) -> &Rank {
        let Command::Rank(rank) = &args.command else { panic!("{args:?}") };
        rank
    }

    #[test]
    fn a_file_sets_what_the_command_line_does_not() {
        let config = "kernel = \"cpu\"\njson = true\n[rank]\ntop = 3\nallow-unread = true\nparameter-bytes = \"2GiB\"\nmodel = \"m\"\n\
                      [train]\nout = \"o\"\ndata = [\"a\", \"b\"]\n";
        let args = parse(config, "rank").unwrap();
        assert_eq!((args.common.kernel, args.common.json, rank(&args).top), (rewire::Kernel::Cpu, true, 3));
        assert!(rank(&args).weights.allow_unread);
        assert_eq!(rank(&args).placement.parameter_bytes, Some(2 << 30));
        assert_eq!(rank(&args).model.as_deref(), Some("m".as_ref()));
        assert_eq!(rank(&parse(config, "rank --top 5").unwrap()).top, 5);
        let other = parse(config, "rank other").unwrap();
        assert_eq!(rank(&other).model.as_deref(), Some("other".as_ref()));
        let args = parse(config, "train").unwrap();
        let Command::Train(train) = &args.command else { panic!("{args:?}") };
        assert_eq!((train.out.as_os_str(), train.data.len()), ("o".as_ref(), 2));
    }

    #[test]
    fn faults_of_a_file_are_named() {
        let cases = [
            ("kernels = 1", "`kernels` is not an option of all commands"),
            ("[ranks]", "`ranks` is not a command"),
            ("[rank]\ntops = 1", "`rank.tops` is not an option of `rank`"),
            ("[rank]\ntop = 1979-05-27", "`rank.top` is datetime"),
            ("[rank]\ntop = \"x\"", "invalid value 'x' for '--top <K>'"),
            ("[rank", "TOML parse error"),
        ];
        for (config, expected) in cases {
            let error = parse(config, "rank").unwrap_err();
            assert!(error.contains(expected), "{config}: {error}");
        }
        let missing = ["rewire", "rank", "--config-file=/nowhere/c.toml"].map(Into::into);
        let error = Args::parse_from_process(missing.into_iter()).unwrap_err().to_string();
        assert!(error.contains("cannot read /nowhere/c.toml"), "{error}");
    }

    #[test]
    fn a_model_is_an_argument_or_an_option() {
        for words in ["rank m", "rank --model m", "rank --top 2 m"] {
            assert_eq!(rank(&parse("", words).unwrap()).model.as_deref(), Some("m".as_ref()), "{words}");
        }
        parse("", "rank m --model n").unwrap_err();
        assert!(parse("", "eval --data d").unwrap_err().contains("MODEL"));
        parse("[eval]\nmodel = \"m\"", "eval --data d").unwrap();
        for words in ["compare m --against n", "verify --model m --against n", "--json verify --against=n m"] {
            let args = parse("", words).unwrap();
            let Command::Compare(compare) = &args.command else { panic!("{words}: {args:?}") };
            assert_eq!((compare.model.as_deref(), compare.against.as_os_str()), (Some("m".as_ref()), "n".as_ref()));
        }
    }

    #[test]
    fn bytes_have_units() {
        let limit = |text: &str| {
            let args = parse("", &format!("rank --parameter-bytes {text}")).map_err(|_| ())?;
            Ok::<_, ()>(rank(&args).placement.parameter_bytes)
        };
        assert_eq!(limit("512"), Ok(Some(512)));
        assert_eq!(limit("8GiB"), Ok(Some(8 << 30)));
        assert_eq!(limit("1.5kB"), Ok(Some(1500)));
        assert_eq!((limit("-1"), limit("8XB"), limit("GiB")), (Err(()), Err(()), Err(())));
    }
}
