use crate::Coded;
use crate::SizeDef;
use crate::limits::LimitError;
use std::panic::Location;
use strum::IntoStaticStr;
use thiserror::Error;

/// An operator does not accept an operand or attribute.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{argument}` must be {expected}, got {actual}")]
pub struct TypeError {
    /// The operand or attribute.
    pub argument: String,
    /// The accepted values.
    pub expected: String,
    /// The value found.
    pub actual: String,
}

impl TypeError {
    /// An error about `argument`.
    pub fn new(argument: impl Into<String>, expected: impl Into<String>, actual: impl ToString) -> Self {
        Self { argument: argument.into(), expected: expected.into(), actual: actual.to_string() }
    }
}

/// Why a graph was rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "graph.")]
#[non_exhaustive]
pub enum GraphError {
    /// An operator does not accept its operands.
    #[error("{op}{}{}: {source}", at(path), placed(*place))]
    Type {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// The line of the model's code that called the operator, if it is known.
        place: Option<&'static Location<'static>>,
        /// The reason.
        source: Box<TypeError>,
    },
    /// A result is larger than kernels support.
    #[error("{op}{}{}: the result {source}", at(path), placed(*place))]
    Limit {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// The line of the model's code that called the operator, if it is known.
        place: Option<&'static Location<'static>>,
        /// The limit that is exceeded.
        source: LimitError,
    },
    /// A node reads a value that does not exist.
    #[error("{node}{} reads a value that does not exist: {detail}", at(path))]
    Dangling {
        /// The node.
        node: String,
        /// Module path; empty at top level.
        path: String,
        /// The value.
        detail: String,
    },
    /// The graph has a cycle.
    #[error("the graph has a cycle through {node}")]
    Cycle {
        /// A node on the cycle.
        node: String,
    },
    /// The operands of an operator belong to two models.
    #[error("{op}{} reads {own} and {other} of another scope: trace a model in one scope", at(path))]
    Scopes {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// An operand of the operator's scope.
        own: String,
        /// An operand of another scope.
        other: String,
    },
    /// Tracing continued in a scope after its graph was taken.
    #[error("the scope is finished: trace another model in a new scope")]
    Finished,
    /// An input or parameter is declared again with another type.
    #[error("the {kind} name `{name}` is used twice with different types")]
    Duplicate {
        /// Input or parameter.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Two inputs, two parameters or two outputs have the same name.
    #[error("the name `{name}` is used for two {kind}s: give each a unique name")]
    Shared {
        /// Input, parameter or output.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A state is set to a value of another type, set more than once, or not declared.
    #[error("the state `{name}` must be {expected}, got {actual}")]
    State {
        /// The state.
        name: String,
        /// The type of the state.
        expected: String,
        /// The type of the value.
        actual: String,
    },
    /// Scores are an output.
    #[error("the output `{name}` is {ty}, scores, which are never stored: sum values with them by `weighted_sum`")]
    ScoreOutput {
        /// The output.
        name: String,
        /// The type of the scores.
        ty: String,
    },
    /// The stored type of a result differs from the inferred one.
    #[error("{op}{} is recorded as {recorded} but infers {inferred}", at(path))]
    Mismatch {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// The type in the graph.
        recorded: String,
        /// The type from inference.
        inferred: String,
    },
    /// No input or host value determines a size.
    #[error("the size s{symbol} (`{name}`) is not an extent of any input: declare an input with it")]
    UnboundSize {
        /// The symbol.
        symbol: u32,
        /// Its name.
        name: String,
    },
}

impl Coded for GraphError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

impl GraphError {
    /// An operator of a module does not accept an operand.
    pub fn of_type(op: &str, path: &str, source: TypeError) -> Self {
        Self::Type { op: op.to_owned(), path: path.to_owned(), place: None, source: Box::new(source) }
    }

    /// The error with the line of the model's code that called its operator.
    pub(crate) fn at(mut self, line: Option<&'static Location<'static>>) -> Self {
        if let Self::Type { place, .. } | Self::Limit { place, .. } = &mut self {
            *place = line;
        }
        self
    }

    /// The error with the names of sizes instead of their symbols, `rows` for `s0`.
    pub(crate) fn with_names(mut self, sizes: &[SizeDef]) -> Self {
        let texts = match &mut self {
            Self::Type { source, .. } => {
                let TypeError { expected, actual, .. } = &mut **source;
                [expected, actual]
            }
            Self::Mismatch { recorded, inferred, .. } => [recorded, inferred],
            _ => return self,
        };
        for text in texts {
            *text = named(text, sizes);
        }
        self
    }
}

/// Replaces symbols in a string by the names of their sizes.
fn named(text: &str, sizes: &[SizeDef]) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, after) = rest.split_at(end);
        let symbol = word.strip_prefix('s').and_then(|digits| digits.parse::<usize>().ok());
        result.push_str(symbol.and_then(|symbol| sizes.get(symbol)).map_or(word, |size| &size.name));
        rest = after;
    }
    result
}

fn placed(place: Option<&Location<'_>>) -> String {
    place.map_or_else(String::new, |place| format!(" at {place}"))
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" in `{path}`") }
}
