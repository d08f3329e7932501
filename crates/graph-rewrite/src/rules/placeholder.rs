use rewire_graph::op::Op;
use rewire_graph::{Type, TypeError};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};

/// What stands for operators of the searched graph in a pattern.
#[derive(Clone, Debug)]
pub(super) enum Placeholder {
    /// Any value of its type.
    Capture {
        name: String,
        /// True if the shape has to agree as well.
        shaped: bool,
    },
    /// Any scalar constant.
    Number { name: String },
    /// An operator of one kind with any attributes.
    Operator { name: String, kind: Kind },
    /// Its first operand, or else its second.
    Either,
    /// What a repetition begins with: the result of the one before.
    Carried { name: String },
    /// Its third operand one or more times, each with the one before as its second operand, the first with the first.
    Repeat {
        name: String,
        /// Captures that are others in each repetition.
        locals: Vec<String>,
    },
}

/// What the operators that a placeholder stands for have in common.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Their type in Rust, which this tests.
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
    /// The name that a match knows it by.
    pub fn captured(&self) -> Option<&str> {
        match self {
            Self::Capture { name, .. } | Self::Number { name } | Self::Operator { name, .. } => Some(name),
            Self::Either | Self::Carried { .. } | Self::Repeat { .. } => None,
        }
    }
}

/// A placeholder with the type it has while a pattern is traced.
#[derive(Clone, Debug)]
pub(super) struct PlaceholderOp {
    /// Its number among those of the pattern, which tells it from all others.
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
