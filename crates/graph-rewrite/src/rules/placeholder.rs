use rewire_graph::op::Op;
use rewire_graph::{Type, TypeError};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};

/// Placeholders of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Placeholder {
    /// Any value of its type.
    Capture {
        name: String,
        /// True if the shape must agree too.
        shaped: bool,
    },
    /// Any scalar constant.
    Number { name: String },
    /// An operator of one kind, with any attributes.
    Operator { name: String, kind: Kind },
    /// Its first operand, or else its second.
    Either,
    /// The input of a repetition: the result of the previous repetition.
    Carried { name: String },
    /// One or more repetitions of its third operand. In each, the second operand is the result of the previous
    /// repetition, or the first operand in the first repetition.
    Repeat {
        name: String,
        /// Captures that differ in each repetition.
        locals: Vec<String>,
    },
}

/// The property that identifies the operators that a placeholder matches.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Their Rust type, tested by this function.
    Type(fn(&dyn Op) -> bool),
    /// Their name.
    Name(String),
}

impl Kind {
    pub fn accepts(&self, op: &dyn Op) -> bool {
        match self {
            Self::Type(test) => test(op),
            Self::Name(name) => op.name() == name,
        }
    }
}

impl Placeholder {
    /// The name of its capture in a match.
    pub fn captured(&self) -> Option<&str> {
        match self {
            Self::Capture { name, .. } | Self::Number { name } | Self::Operator { name, .. } => Some(name),
            Self::Either | Self::Carried { .. } | Self::Repeat { .. } => None,
        }
    }
}

/// A placeholder with its type during tracing.
#[derive(Clone, Debug)]
pub(super) struct PlaceholderOp {
    /// Its number, unique in the pattern.
    pub number: usize,
    pub placeholder: Placeholder,
    pub ty: Type,
}

impl PartialEq for PlaceholderOp {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Hash for PlaceholderOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Op for PlaceholderOp {
    fn name(&self) -> &str {
        match self.placeholder {
            Placeholder::Capture { .. } => "capture",
            Placeholder::Number { .. } => "number",
            Placeholder::Operator { .. } => "operator",
            Placeholder::Either => "either",
            Placeholder::Carried { .. } => "carried",
            Placeholder::Repeat { .. } => "repeat",
        }
    }

    fn attributes(&self) -> Value {
        let name = match &self.placeholder {
            Placeholder::Carried { name } | Placeholder::Repeat { name, .. } => Some(name.as_str()),
            other => other.captured(),
        };
        json!({ "name": name, "type": self.ty })
    }

    fn infer(&self, _: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(vec![self.ty.clone()])
    }
}
