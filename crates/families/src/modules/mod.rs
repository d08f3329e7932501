//! Modules that several families share.

mod capsules;
mod encoders;
mod interactions;
mod mask_net;
mod tasks;
mod wukong;

pub(crate) use capsules::{CapsuleConfig, Init};
pub(crate) use encoders::{MultiWindow, din, encode, padding, zeros};
pub(crate) use interactions::{CinConfig, fields, pairs_of_fields};
pub(crate) use mask_net::MaskNetConfig;
pub(crate) use tasks::{TaskConfig, intervene};
pub(crate) use wukong::WukongLayerConfig;

use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::MlpConfig;

/// An MLP, traced in the module `name`.
pub(crate) fn mlp(scope: &Scope, name: &str, config: &MlpConfig, x: &Tensor) -> Tensor {
    scope.module(name, |scope| config.forward(scope, x))
}

/// [`mlp`] if there is a configuration, otherwise the input.
pub(crate) fn optional_mlp(scope: &Scope, name: &str, config: Option<&MlpConfig>, x: &Tensor) -> Tensor {
    config.map_or_else(|| x.clone(), |config| mlp(scope, name, config, x))
}

/// Concatenates columns.
pub(crate) fn beside(scope: &Scope, parts: &[Tensor]) -> Tensor {
    scope.concat(&parts.iter().collect::<Vec<_>>(), 1)
}
