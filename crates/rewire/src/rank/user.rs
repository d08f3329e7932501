use serde::{Serialize, Serializer};
use std::fmt;

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// A name.
    Name(String),
    /// A number.
    Number(i64),
}

impl From<&str> for User {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for User {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<i64> for User {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => serializer.serialize_str(name),
            Self::Number(number) => serializer.serialize_i64(*number),
        }
    }
}
