use std::fmt;
use thiserror::Error;

/// A value of a configuration that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key}: {reason}")]
pub struct Problem {
    /// The JSON pointer of the value, `/model_config/mmoe/expert_mlp/activation`.
    pub key: String,
    /// What is wrong, and what was expected.
    pub reason: String,
}

impl Problem {
    /// A value that cannot be used.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

/// All values of a configuration that cannot be used.
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

    /// `value` where there are no problems.
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
