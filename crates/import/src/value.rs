use crate::array::Array;
use crate::size::Size;
use rewire_graph::Tensor;

/// Why a node cannot be lowered.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The operator, or this use of it, is not supported.
    Unsupported(String),
    /// The program contradicts the operator's schema.
    Program(String),
    /// The node reads a result of a body or function that failed. The failure has already been reported.
    Reported,
}

impl Fault {
    pub fn unsupported<T>(reason: impl Into<String>) -> Lowered<T> {
        Err(Self::Unsupported(reason.into()))
    }

    pub fn program<T>(reason: impl Into<String>) -> Lowered<T> {
        Err(Self::Program(reason.into()))
    }

    /// The reason to report; `None` if it has already been reported.
    pub fn reason(self) -> Option<String> {
        match self {
            Self::Unsupported(reason) | Self::Program(reason) => Some(reason),
            Self::Reported => None,
        }
    }
}

/// The result of a lowering.
pub(crate) type Lowered<T> = Result<T, Fault>;

/// A number that is not a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Number {
    Int(Size),
    Float(f64),
    Bool(bool),
    /// A float computed from sizes, as a 0-dim `F32`.
    Computed(Tensor),
}

/// A value of a program.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    None,
    Tensor(Array),
    List(Vec<Value>),
    Number(Number),
    String(String),
    /// A result that cannot be lowered, with the reason.
    Unsupported(&'static str),
}

impl Value {
    pub fn int(value: impl Into<Size>) -> Self {
        Self::Number(Number::Int(value.into()))
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Tensor(array)
    }
}
