use super::Config;
use crate::generate::{GenerateError, Trie, joined, lengths};
use crate::train::{Objective, loss};
use rewire_graph::{DType, HostTensor, Mode, Scope, Tensor};
use rewire_runtime::Inputs;

const TARGETS: &str = "targets";
const WEIGHTS: &str = "weights";
const ALLOWED: &str = "allowed";

/// The logit of a token that the trie does not allow: its probability is 0.
const ABSENT: f64 = -1e9;

/// The objective that trains a decoder to continue sequences: the output `loss` is the mean cross entropy over the whole vocabulary of the tokens
/// after each prompt. [`examples`] makes its inputs.
///
/// A T5 model reads a prompt in its encoder, and pads sequences to the longest for its biases of distances.
///
/// # Errors
/// [`GenerateError::Config`] names the operator that rejected its operands.
pub fn objective(config: &Config) -> Result<Objective, GenerateError> {
    let scope = Scope::new().without_places().with_mode(Mode::Train);
    let logits = config.logits(&scope);
    of_logits(scope, &logits)
}

/// [`objective`] inside a trie: cross entropy over the tokens that may continue an item, so other tokens have no gradient. [`examples_in_trie`]
/// makes its inputs.
///
/// # Errors
/// As [`objective`].
pub fn objective_in_trie(config: &Config) -> Result<Objective, GenerateError> {
    let scope = Scope::new().without_places().with_mode(Mode::Train);
    let logits = config.logits(&scope);
    let allowed = scope.input(ALLOWED, DType::Bool, [logits.dim(0), logits.dim(1)]);
    let absent = scope.constant(HostTensor::vector(&[ABSENT as f32]));
    of_logits(scope, &allowed.select(&logits, &absent))
}

fn of_logits(scope: Scope, logits: &Tensor) -> Result<Objective, GenerateError> {
    let rows = logits.dim(0);
    let targets = scope.input(TARGETS, DType::I64, [&rows]);
    let weights = scope.input(WEIGHTS, DType::F32, [&rows]);
    let losses = loss::cross_entropy(&scope, logits, &targets, 0.0);
    let mean = loss::mean(&scope, &losses, Some(&weights));
    let graph = scope.finish(&[("loss", mean)]).map_err(super::ConfigError::from)?;
    Ok(Objective::new(graph, "loss"))
}

/// The inputs of a batch of sequences, each with the length of its prompt, whose tokens do not count in the loss.
///
/// # Errors
/// [`GenerateError::Prompt`] for a sequence without a prompt or without tokens after it.
pub fn examples(config: &Config, sequences: &[(&[u32], usize)]) -> Result<Inputs, GenerateError> {
    let (mut prompts, mut tokens, mut targets, mut weights, mut positions) = (vec![], vec![], vec![], vec![], vec![]);
    for (prompt, &(sequence, given)) in sequences.iter().enumerate() {
        if given == 0 || given >= sequence.len() {
            return Err(GenerateError::Prompt { prompt });
        }
        let (prompted, learned) = sequence.split_at(given);
        let (begin, next) = match config.start() {
            Some(start) => (&[start][..], learned),
            None => (prompted, sequence.get(1..).unwrap_or(&[])),
        };
        let mut own = [begin, learned].concat();
        own.pop();
        weights.extend((0..own.len()).map(|place| if place + 1 < begin.len() { 0.0f32 } else { 1.0 }));
        targets.extend(next.iter().map(|&token| i64::from(token)));
        positions.extend(0..own.len() as u32);
        prompts.push(prompted.to_vec());
        tokens.push(own);
    }
    let inputs = Inputs::new().with("lengths", lengths(tokens.iter())).with("tokens", joined(tokens.iter()));
    let inputs = match config.rope() {
        Some(rope) => {
            let [cos, sin] = rope.tables(&positions)?;
            inputs.with("cos", cos).with("sin", sin)
        }
        None => inputs.with("encoder.lengths", lengths(prompts.iter())).with("encoder.tokens", joined(prompts.iter())),
    };
    Ok(inputs.with(TARGETS, HostTensor::vector(&targets)).with(WEIGHTS, HostTensor::vector(&weights)))
}

/// [`examples`] for [`objective_in_trie`]: the tokens after a prompt are concatenated whole items.
///
/// # Errors
/// As [`examples`], and [`GenerateError::Outside`] for a token that does not continue an item.
pub fn examples_in_trie(config: &Config, sequences: &[(&[u32], usize)], trie: &Trie) -> Result<Inputs, GenerateError> {
    let inputs = examples(config, sequences)?;
    let vocabulary = config.vocabulary();
    let (mut allowed, mut rows) = (vec![], 0);
    for (place, (sequence, given)) in sequences.iter().enumerate() {
        let (given, learned) = sequence.split_at(*given);
        // Rows before the last given token have no loss.
        let free = if config.start().is_some() { 0 } else { given.len() - 1 };
        allowed.resize(allowed.len() + free * vocabulary, true);
        for (tokens, token) in trie.walk(learned).zip(given.len()..) {
            let tokens = tokens.ok_or(GenerateError::Outside { sequence: place, place: token })?;
            let first = allowed.len();
            allowed.resize(first + vocabulary, false);
            for token in tokens {
                let allowed = allowed.get_mut(first + token as usize);
                *allowed.ok_or(GenerateError::Token { token, vocabulary })? = true;
            }
        }
        rows += free + learned.len();
    }
    Ok(inputs.with(ALLOWED, HostTensor::new(vec![rows, vocabulary], &allowed)?))
}
