use super::function::{float_literal, int_literal, type_of};
use rewire_graph::Scalar;

/// The components of a `vec4`, one per lane.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// An expression's value in emitted code.
#[derive(Clone, Debug)]
pub(super) enum WgslValue {
    /// A float constant.
    Float(f32),
    /// An integer constant.
    Int(Scalar, i64),
    /// A boolean constant.
    Bool(bool),
    /// A scalar, the same in all lanes.
    Uniform(String),
    /// The first lane of an `i32` that increases by one per lane.
    Consecutive(String),
    /// A `vec4` with one component per lane.
    Vector(String),
    /// One scalar per lane.
    Split([String; 4]),
}

impl WgslValue {
    /// The scalar of a lane.
    pub fn lane(&self, lane: usize) -> String {
        match self {
            &Self::Float(value) => float_literal(value),
            &Self::Int(scalar, value) => int_literal(scalar, value),
            Self::Bool(value) => value.to_string(),
            Self::Uniform(text) => text.clone(),
            Self::Consecutive(text) if lane == 0 => text.clone(),
            Self::Consecutive(text) => format!("({text} + {lane})"),
            Self::Vector(text) => format!("{text}.{}", COMPONENTS[lane & 3]),
            Self::Split(parts) => parts[lane & 3].clone(),
        }
    }

    /// The first lane.
    pub fn first(&self) -> String {
        self.lane(0)
    }

    /// All lanes as a `vec4`; not for `I64`.
    pub fn vector(&self, scalar: Scalar) -> String {
        let ty = type_of(scalar);
        match self {
            Self::Vector(text) => text.clone(),
            Self::Consecutive(text) => format!("({text} + vec4<i32>(0, 1, 2, 3))"),
            Self::Split(parts) => format!("vec4<{ty}>({})", parts.join(", ")),
            _ => format!("vec4<{ty}>({})", self.first()),
        }
    }

    /// The value in one lane.
    pub fn in_lane(&self, lane: usize) -> Self {
        match self {
            Self::Consecutive(_) | Self::Vector(_) | Self::Split(_) => Self::Uniform(self.lane(lane)),
            _ => self.clone(),
        }
    }

    /// A float or bool.
    pub fn of_constant(scalar: Scalar, value: f64) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool(value != 0.0),
            _ => Self::Float(value as f32),
        }
    }

    /// An integer or bool.
    pub fn of_integer(scalar: Scalar, value: i64) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool(value != 0),
            _ => Self::Int(scalar, scalar.wrap(value)),
        }
    }
}
