use rewire_graph::Type;
use std::fmt;

/// Why a pattern does not match.
#[derive(Clone, Debug, Default)]
pub struct Mismatch {
    /// Number of operators of the pattern that matched.
    pub(super) operators: usize,
    /// The missing part; `None` if nothing matched.
    pub(super) reason: Option<Reason>,
}

#[derive(Clone, Debug)]
pub(super) enum Reason {
    Operator { wanted: String, found: String },
    Type { capture: String, wanted: Type, found: String },
    Shared { first: String, second: String },
    Condition(String),
    Alternatives,
}

impl Mismatch {
    /// The reason, if at least two operators of the pattern, or all of it, matched.
    pub fn near(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        let near = self.operators >= 2 || matches!(reason, Reason::Condition(_) | Reason::Alternatives);
        near.then(|| reason.to_string())
    }

    pub(super) fn nearer(self, other: Self) -> Self {
        if other.reason.is_some() && (self.reason.is_none() || other.operators > self.operators) { other } else { self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator { wanted, found } => write!(f, "{found} is not {wanted}"),
            Self::Type { capture, wanted, found } => write!(f, "`{capture}` must be like {wanted}, it is {found}"),
            Self::Shared { first, second } => write!(f, "{first} and {second} must be one value"),
            Self::Condition(condition) => f.write_str(condition),
            Self::Alternatives => write!(f, "there are too many ways to compare it with the pattern"),
        }
    }
}
