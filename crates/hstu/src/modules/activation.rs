use super::{NORM_EPS, layers::statistics};
use crate::number::{F32, is_f32, number_of};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An activation function. Names are torch's, such as `nn.ReLU` or `nn.LeakyReLU(negative_slope=0.2)`, or `Dice`; the empty name is
/// the identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Activation {
    /// `x`
    Identity,
    /// `max(x, 0)`
    #[default]
    Relu,
    /// `x` if positive, otherwise `slope x`.
    LeakyRelu {
        /// The slope of negative values.
        slope: f64,
    },
    /// ELU, CELU and SELU: `scale x` if positive, otherwise `scale alpha (e^(x / width) - 1)`.
    Exponential {
        /// Factor of the negative branch.
        alpha: f64,
        /// Divisor of `x` in the negative branch.
        width: f64,
        /// Factor of both branches.
        scale: f64,
    },
    /// `x Phi(x)`, exact.
    Gelu,
    /// `x Phi(x)` with the tanh approximation.
    GeluTanh,
    /// `x / (1 + e^-x)`
    Silu,
    /// `x tanh(log(1 + e^x))`
    Mish,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `log(1 / (1 + e^-x))`
    LogSigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x - tanh(x)`
    Tanhshrink,
    /// `log(1 + e^(beta x)) / beta`
    Softplus {
        /// Factor of the argument.
        beta: f64,
    },
    /// `x / (1 + |x|)`
    Softsign,
    /// `min(max(x, low), high)`
    Clamp {
        /// The smallest value.
        low: f64,
        /// The largest value.
        high: f64,
    },
    /// `min(max(x / 6 + 1 / 2, 0), 1)`
    Hardsigmoid,
    /// `x hardsigmoid(x)`
    Hardswish,
    /// `x` if positive, otherwise `weight x`, with one parameter or one per column.
    Prelu {
        /// One parameter for all columns.
        shared: bool,
    },
    /// `p x + (1 - p) alpha x`, where `p` is the sigmoid of the batch-normalized `x`, with one `alpha` per column.
    Dice,
}

/// SELU's alpha and scale.
const SELU: (f64, f64) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);

impl TryFrom<String> for Activation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut call = Call::parse(&text)?;
        let activation = match call.name {
            "" | "nn.Identity" => Self::Identity,
            "nn.ReLU" => Self::Relu,
            "nn.ReLU6" => Self::Clamp { low: 0.0, high: 6.0 },
            "nn.LeakyReLU" => Self::LeakyRelu { slope: call.number("negative_slope", 0.01)? },
            "nn.ELU" => Self::Exponential { alpha: call.number("alpha", 1.0)?, width: 1.0, scale: 1.0 },
            "nn.CELU" => {
                let alpha = call.number("alpha", 1.0)?;
                Self::Exponential { alpha, width: alpha, scale: 1.0 }
            }
            "nn.SELU" => Self::Exponential { alpha: SELU.0, width: 1.0, scale: SELU.1 },
            "nn.GELU" => match call.take("approximate").as_deref() {
                None | Some("none") => Self::Gelu,
                Some("tanh") => Self::GeluTanh,
                Some(other) => return Err(format!("`{text}`: `approximate` must be `none` or `tanh`, got `{other}`")),
            },
            "nn.SiLU" => Self::Silu,
            "nn.Mish" => Self::Mish,
            "nn.Sigmoid" => Self::Sigmoid,
            "nn.LogSigmoid" => Self::LogSigmoid,
            "nn.Tanh" => Self::Tanh,
            "nn.Tanhshrink" => Self::Tanhshrink,
            "nn.Softplus" => {
                call.take("threshold");
                Self::Softplus { beta: call.number("beta", 1.0)? }
            }
            "nn.Softsign" => Self::Softsign,
            "nn.Hardtanh" => Self::Clamp { low: call.number("min_val", -1.0)?, high: call.number("max_val", 1.0)? },
            "nn.Hardsigmoid" => Self::Hardsigmoid,
            "nn.Hardswish" => Self::Hardswish,
            "nn.PReLU" => {
                call.take("init");
                Self::Prelu { shared: call.number("num_parameters", 1.0)? == 1.0 }
            }
            "Dice" => Self::Dice,
            other => {
                return Err(format!(
                    "`{other}` is not an activation function; known are those of `torch.nn`, and `Dice`"
                ));
            }
        };
        call.take("inplace");
        call.finish()?;
        Ok(activation)
    }
}

/// `name(key=value, ..)`
struct Call<'a> {
    text: &'a str,
    name: &'a str,
    arguments: BTreeMap<&'a str, &'a str>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let (name, inner) = match text.trim().split_once('(') {
            None => (text.trim(), ""),
            Some((name, rest)) => {
                let inner = rest.strip_suffix(')').ok_or_else(|| format!("`{text}` lacks a closing parenthesis"))?;
                (name.trim(), inner)
            }
        };
        let arguments = inner.split(',').map(str::trim).filter(|argument| !argument.is_empty());
        let pair = |argument: &'a str| {
            let (key, value) = argument.split_once('=')?;
            Some((key.trim(), value.trim().trim_matches(['\'', '"'])))
        };
        let arguments = arguments.map(|argument| {
            pair(argument).ok_or_else(|| format!("`{text}`: `{argument}` must be of the form `key=value`"))
        });
        Ok(Self { text, name, arguments: arguments.collect::<Result<_, _>>()? })
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.arguments.remove(key).map(str::to_owned)
    }

    fn number(&mut self, key: &str, default: f64) -> Result<f64, String> {
        let Some(value) = self.take(key) else { return Ok(default) };
        let number = number_of(&value).filter(|&number| is_f32(number));
        number.ok_or_else(|| format!("`{}`: `{key}` must be {F32}, got `{value}`", self.text))
    }

    fn finish(self) -> Result<(), String> {
        match self.arguments.keys().next() {
            Some(key) => Err(format!("`{}`: `{key}` is not an argument of the function", self.text)),
            None => Ok(()),
        }
    }
}

impl Activation {
    /// Applies the function to `x` `[.., D]`. Its parameters, if any, belong to the module of `scope`.
    pub fn forward(&self, scope: &Scope, x: &Tensor) -> Tensor {
        self.counted(scope, x, None)
    }

    /// [`Activation::forward`] with row counts for batch statistics; see [`statistics`](super::layers::statistics).
    pub(super) fn counted(&self, scope: &Scope, x: &Tensor, counts: Option<&Tensor>) -> Tensor {
        let negative = |slope: Tensor| x.gt(0.0).select(x, &slope);
        match *self {
            Self::Identity => x.clone(),
            Self::Relu => x.relu(),
            Self::LeakyRelu { slope } => negative(x * slope),
            Self::Exponential { alpha, width, scale } => {
                negative((&(x / width).clamp(None, Some(0.0)).exp() - 1.0) * alpha) * scale
            }
            Self::Gelu => x.gelu_erf(),
            Self::GeluTanh => x.gelu_tanh(),
            Self::Silu => x.silu(),
            Self::Mish => x * x.softplus().tanh(),
            Self::Sigmoid => x.sigmoid(),
            Self::LogSigmoid => -(-x).softplus(),
            Self::Tanh => x.tanh(),
            Self::Tanhshrink => x - x.tanh(),
            Self::Softplus { beta } => (x * beta).softplus() / beta,
            Self::Softsign => x / (x.abs() + 1.0),
            Self::Clamp { low, high } => x.clamp(Some(low), Some(high)),
            Self::Hardsigmoid => hardsigmoid(x),
            Self::Hardswish => x * hardsigmoid(x),
            Self::Prelu { shared } => {
                let columns = if shared { 1 } else { x.width() };
                negative(x * scope.weight("weight", &[columns.into()]))
            }
            Self::Dice => {
                let [mean, variance] = scope.module("bn", |scope| statistics(scope, x, counts));
                let p = ((x - mean) * (variance + NORM_EPS).rsqrt()).sigmoid();
                let alpha = scope.weight("alpha", &[x.width().into()]);
                (p.after_scalar(BinaryOp::Sub, 1.0) * alpha + &p) * x
            }
        }
    }
}

fn hardsigmoid(x: &Tensor) -> Tensor {
    ((x + 3.0) / 6.0).clamp(Some(0.0), Some(1.0))
}
