use rewire_graph::{Coded, GraphError, TensorSizeError};
use std::collections::BTreeMap;
use std::fmt;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a file could not be imported.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "import.")]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file extension is not one of the supported formats.
    #[error("{path}: expected the name of an exported model, which ends in .pt2")]
    Format {
        /// The file.
        path: String,
    },
    /// The program was built without readers of exported models.
    #[error("{path}: this build has no importers: build it with the cargo feature `import`")]
    NoReader {
        /// The file.
        path: String,
    },
    /// The archive is corrupt or was not written by torch.export.
    #[error("{entry}: {reason}")]
    Archive {
        /// The entry of the archive.
        entry: String,
        /// The reason.
        reason: String,
    },
    /// The file has an unsupported version of the format.
    #[error("{what} {actual} is not supported: expected {expected}")]
    Version {
        /// The component that has the version.
        what: &'static str,
        /// The supported version.
        expected: String,
        /// The file's version.
        actual: String,
    },
    /// A payload can only be read by executing a pickle.
    #[error("`{name}` is stored as a pickle, which rewire never executes")]
    Pickle {
        /// The tensor or object.
        name: String,
    },
    /// The program contradicts its format.
    #[error("node `{node}`: {reason}")]
    Program {
        /// The node, tensor or symbol.
        node: String,
        /// The reason.
        reason: String,
    },
    /// Some operators have no lowering. All of them are listed.
    #[error("{0}")]
    Unsupported(Unsupported),
    /// Shapes depend on the values of inputs, which must be bound.
    #[error("shapes depend on the values of {}: bind them when the model is read", inputs.join(", "))]
    Unbound {
        /// Names of the inputs.
        inputs: Vec<String>,
    },
    /// The operators do not form a valid graph.
    #[error("node `{node}`: {source}")]
    Graph {
        /// The node that was lowered last.
        node: String,
        /// The error of the graph.
        source: Box<GraphError>,
    },
    /// A tensor has an invalid size.
    #[error("tensor `{name}`: {source}")]
    Tensor {
        /// The tensor.
        name: String,
        /// The reason.
        source: TensorSizeError,
    },
}

impl Coded for ImportError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph { source, .. } => source.code(),
            other => other.into(),
        }
    }
}

impl ImportError {
    pub(crate) fn archive(entry: &str, reason: impl ToString) -> Self {
        Self::Archive { entry: entry.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn program(node: &str, reason: impl ToString) -> Self {
        Self::Program { node: node.to_owned(), reason: reason.to_string() }
    }
}

/// The operators of a program that cannot be lowered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsupported {
    /// For each operator and reason, the number of occurrences by module.
    pub operators: BTreeMap<(String, String), BTreeMap<String, usize>>,
}

impl Unsupported {
    /// Adds an occurrence of an operator in a module.
    pub(crate) fn add(&mut self, operator: &str, reason: &str, module: &str) {
        let modules = self.operators.entry((operator.to_owned(), reason.to_owned())).or_default();
        *modules.entry(module.to_owned()).or_insert(0) += 1;
    }

    /// True if all operators can be lowered.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unsupported operators:")?;
        for ((operator, reason), modules) in &self.operators {
            let count: usize = modules.values().sum();
            write!(f, "\n  {operator} ({count}): {reason}; in ")?;
            for (n, (module, count)) in modules.iter().enumerate() {
                let module = if module.is_empty() { "the model itself" } else { module };
                write!(f, "{}{module} ({count})", if n == 0 { "" } else { ", " })?;
            }
        }
        Ok(())
    }
}
