use crate::Coded;
use crate::SizeDef;
use crate::limits::LimitError;
use strum::IntoStaticStr;
use thiserror::Error;

/// An operand or attribute that an operator cannot take.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{argument}` must be {expected}, got {actual}")]
pub struct TypeError {
    /// The operand or attribute.
    pub argument: String,
    /// What the operator takes.
    pub expected: String,
    /// What it was given.
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
    /// An operator does not take its operands.
    #[error("{op}{}: {source}", at(path))]
    Type {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// What is wrong.
        source: TypeError,
    },
    /// A result is larger than any kernel takes.
    #[error("{op}{}: the result {source}", at(path))]
    Limit {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// What is too large.
        source: LimitError,
    },
    /// A node reads a value that does not exist.
    #[error("{node}{} reads a value that does not exist: {detail}", at(path))]
    Dangling {
        /// The node.
        node: String,
        /// Module path; empty at top level.
        path: String,
        /// Which value.
        detail: String,
    },
    /// The graph has a cycle.
    #[error("the graph has a cycle through {node}")]
    Cycle {
        /// A node on the cycle.
        node: String,
    },
    /// An operator reads values of two models.
    #[error("{op}{} reads {own} and, of another scope, {other}: trace a model in one scope", at(path))]
    Scopes {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// What it reads of its own scope.
        own: String,
        /// What it reads of another.
        other: String,
    },
    /// More is traced in a scope whose graph was taken.
    #[error("the scope is finished: trace another model in a scope of its own")]
    Finished,
    /// A name of an input or parameter is used again for another one.
    #[error("the {kind} name `{name}` is used twice with different types")]
    Duplicate {
        /// Input or parameter.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name is used for two inputs, two parameters or two outputs.
    #[error("the name `{name}` is used for two {kind}s: give each a name of its own")]
    Shared {
        /// Input, parameter or output.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A state is set to a value of another type, more than once, or is not declared.
    #[error("the state `{name}` must be {expected}, got {actual}")]
    State {
        /// The state.
        name: String,
        /// What it takes.
        expected: String,
        /// What it was given.
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
    /// A stored type is not what its operator infers.
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
    /// A size has no source.
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
    /// The error with the names of sizes in place of their symbols, `rows` for `s0`.
    pub(crate) fn with_names(mut self, sizes: &[SizeDef]) -> Self {
        let texts = match &mut self {
            Self::Type { source, .. } => [&mut source.expected, &mut source.actual],
            Self::Mismatch { recorded, inferred, .. } => [recorded, inferred],
            _ => return self,
        };
        for text in texts {
            *text = named(text, sizes);
        }
        self
    }
}

/// A text with the names of sizes in place of words that are symbols.
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

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" in `{path}`") }
}
