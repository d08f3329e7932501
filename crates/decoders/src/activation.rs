use crate::ConfigError;
use rewire_graph::Tensor;
use serde_json::Value;

/// The activation of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
    /// `max(x, 0)`
    Relu,
}

impl Activation {
    /// Parses `name`, the value of a configuration's `key`.
    pub(crate) fn named(key: &str, name: &str) -> Result<Self, ConfigError> {
        Ok(match name {
            "silu" | "swish" => Self::Silu,
            "gelu" => Self::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Self::GeluTanh,
            "relu" => Self::Relu,
            _ => {
                let expected = "silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast or relu";
                return Err(ConfigError::value(key, expected, &Value::from(name)));
            }
        })
    }

    pub(crate) fn of(self, x: &Tensor) -> Tensor {
        match self {
            Self::Silu => x.silu(),
            Self::Gelu => x.gelu_erf(),
            Self::GeluTanh => x.gelu_tanh(),
            Self::Relu => x.relu(),
        }
    }
}
