//! Losses.

use super::Many;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};

pub(super) const MANY: Many = &[
    ("NegativeLogLikelihoodLoss", |n| Ok(vec![loss(n, n.x()?)?.into()])),
    ("SoftmaxCrossEntropyLoss", |n| {
        let x = n.x()?;
        let (ty, shape) = (x.ty, n.shape(&x));
        let log = n.aten("aten.log_softmax", vec![("self", x.into()), ("dim", Value::int(1))], ty, &shape)?;
        Ok(vec![loss(n, log.clone())?.into(), Item::Array(log)])
    }),
];

/// The loss for log probabilities.
fn loss(n: &Node<'_>, log: Array) -> Lowered<Array> {
    let (target, ty) = (n.array(1)?, log.ty);
    let reduction = match n.text("reduction", "mean").as_str() {
        "none" => 0,
        "mean" => 1,
        "sum" => 2,
        other => return Fault::unsupported(format!("reduction=`{other}`")),
    };
    let mut arguments: Vec<(&str, Value)> = vec![];
    arguments.push((
        "ignore_index",
        Value::int(n.attribute("ignore_index").and_then(|attribute| attribute.i).unwrap_or(i64::MIN)),
    ));
    let shape: Vec<Size> = if reduction == 0 { n.shape(&target) } else { vec![] };
    arguments.insert(0, ("self", log.into()));
    arguments.push(("target", target.into()));
    arguments.push(("reduction", Value::int(reduction)));
    if let Some(weight) = n.optional(2)? {
        arguments.push(("weight", weight.into()));
    }
    n.aten("aten.nll_loss", arguments, ty, &shape)
}
