use super::Config;
use crate::generate::{GenerateError, joined, lengths};
use crate::train::{Objective, loss};
use rewire_graph::{DType, HostTensor, Mode, Scope};
use rewire_runtime::Inputs;

const TARGETS: &str = "targets";
const WEIGHTS: &str = "weights";

/// What makes a decoder continue sequences: the output `loss`, the mean over the tokens that count of the negative logarithm of their probability
/// among the whole vocabulary. [`examples`] makes its inputs.
///
/// # Errors
/// [`GenerateError::Encoder`] for a model with an encoder.
pub fn objective(config: &Config) -> Result<Objective, GenerateError> {
    let scope = Scope::new().with_mode(Mode::Train);
    let logits = config.logits(&scope).ok_or(GenerateError::Encoder)?;
    let rows = logits.dim(0);
    let targets = scope.input(TARGETS, DType::I64, [&rows]);
    let weights = scope.input(WEIGHTS, DType::F32, [&rows]);
    let losses = loss::softmax_cross_entropy(&scope, &logits, &targets, 0.0);
    let mean = loss::mean(&scope, &losses, Some(&weights));
    let graph = scope.finish(&[("loss", mean)]).map_err(super::ConfigError::from)?;
    Ok(Objective::new(graph, "loss"))
}

/// The inputs of a batch: sequences, each with the tokens that it begins with and are not learned.
///
/// # Errors
/// [`GenerateError::Prompt`] for a sequence of which no token is learned or that begins with none, [`GenerateError::Encoder`] for a model with an encoder.
pub fn examples(config: &Config, sequences: &[(&[u32], usize)]) -> Result<Inputs, GenerateError> {
    let rope = config.rope().ok_or(GenerateError::Encoder)?;
    let (mut tokens, mut targets, mut weights, mut positions) = (vec![], vec![], vec![], vec![]);
    for (prompt, &(sequence, given)) in sequences.iter().enumerate() {
        if given == 0 || given >= sequence.len() {
            return Err(GenerateError::Prompt { prompt });
        }
        let (own, next) = (sequence.get(..sequence.len() - 1).unwrap_or(&[]), sequence.get(1..).unwrap_or(&[]));
        tokens.push(own.to_vec());
        targets.extend(next.iter().map(|&token| i64::from(token)));
        weights.extend((1..sequence.len()).map(|place| if place < given { 0.0f32 } else { 1.0 }));
        positions.extend(0..own.len() as u32);
    }
    let [cos, sin] = rope.tables(&positions)?;
    let inputs = Inputs::new().with("lengths", lengths(tokens.iter())).with("tokens", joined(tokens.iter()));
    let inputs = inputs.with("cos", cos).with("sin", sin);
    Ok(inputs.with(TARGETS, HostTensor::vector(&targets)).with(WEIGHTS, HostTensor::vector(&weights)))
}
