//! Predictions of a task, which depend on its losses.

use crate::modules::ConfigError;
use rewire_graph::Tensor;
use serde_json::Value;

/// Predictions of a task from its logits `[R, K]`, with the reference's names.
///
/// # Errors
/// [`ConfigError`] names the entry of `losses` that is unknown or requires another number of classes.
pub fn prediction(logits: &Tensor, suffix: &str, losses: &[Value]) -> Result<Vec<(String, Tensor)>, ConfigError> {
    let flat = || logits.reshape(&[logits.dim(0)]);
    let classes = logits.width();
    let mut outputs: Vec<(String, Tensor)> = vec![];
    for (index, loss) in losses.iter().enumerate() {
        let kind = loss.as_object().and_then(|loss| loss.keys().next()).map_or("", String::as_str);
        let key = || format!("losses[{index}].{kind}");
        let classes_of = |binary: bool| match (binary, classes) {
            (true, 1) | (false, 2..) => Ok(()),
            (true, _) => Err(ConfigError::new(key(), "a loss of several classes where `num_class` is not 1", classes)),
            (false, _) => Err(ConfigError::new(key(), "a loss of one logit where `num_class` is 1", classes)),
        };
        let new = match kind {
            "binary_cross_entropy" | "binary_focal_loss" => {
                classes_of(true)?;
                vec![("logits", flat()), ("probs", flat().sigmoid())]
            }
            "softmax_cross_entropy" | "jrc_loss" => {
                classes_of(false)?;
                let probs = logits.softmax(1);
                let second = (classes == 2).then(|| ("probs1", probs.slice(1, 1, 1).reshape(&[logits.dim(0)])));
                [("logits", logits.clone()), ("probs", probs)].into_iter().chain(second).collect()
            }
            "l2_loss" => {
                classes_of(true)?;
                vec![("y", flat())]
            }
            _ => return Err(ConfigError::new(key(), "a loss of ranking models", loss)),
        };
        for (name, tensor) in new {
            let name = format!("{name}{suffix}");
            if outputs.iter().all(|(known, _)| *known != name) {
                outputs.push((name, tensor));
            }
        }
    }
    Ok(outputs)
}
