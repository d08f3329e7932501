use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kernels that run the steps of a model.
///
/// ```
/// use rewire_runtime::Kernel;
/// assert_eq!("cpu".parse(), Ok(Kernel::Cpu));
/// assert_eq!(Kernel::default().to_string(), "auto");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// A hardware GPU for each step that it supports, the CPU for the others. Software adapters are ignored unless
    /// named.
    #[default]
    Auto,
    /// Any adapter, hardware first. Loading fails if there is none or it does not support a step.
    Wgpu,
    /// The CPU only.
    Cpu,
}

/// The string is not the name of a [`Kernel`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("kernel: expected auto, wgpu or cpu, got `{0}`")]
pub struct ParseKernelError(pub String);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Wgpu => "wgpu",
            Self::Cpu => "cpu",
        })
    }
}

impl FromStr for Kernel {
    type Err = ParseKernelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "wgpu" => Ok(Self::Wgpu),
            "cpu" => Ok(Self::Cpu),
            _ => Err(ParseKernelError(text.to_owned())),
        }
    }
}
