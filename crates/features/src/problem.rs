use std::fmt;
use thiserror::Error;

/// An invalid or unsupported value of a configuration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key}: {reason}")]
pub struct Problem {
    /// JSON pointer of the value, such as `/model_config/mmoe/expert_mlp/activation`.
    pub key: String,
    /// The reason, with the expected value.
    pub reason: String,
}

impl Problem {
    /// Creates a problem.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

/// All problems of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl Problems {
    /// Adds a problem.
    pub fn push(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        let problem = Problem::new(key, reason);
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// Returns `value` if there are no problems.
    ///
    /// # Errors
    /// All problems.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
