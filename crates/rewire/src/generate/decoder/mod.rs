//! Language models of Hugging Face checkpoints: logits, items by beam search inside a trie, and tokens that are drawn.

#[cfg(feature = "files")]
mod files;
mod sample;
mod search;
mod weights;

#[cfg(feature = "files")]
pub use files::{Prompt, is_decoder, read_items, read_prompts};
pub use rewire_decoders::{Config, ConfigError};
pub use sample::Sampling;

use super::GenerateError;
use crate::weights::Weights;
use rewire_graph::{HostTensor, TensorSizeError};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, Report, Session, block_on};
use weights::Stored;

/// A language model, ready to generate.
///
/// A prompt is computed once. Beams read its keys and values where they are, and those of their own tokens, by index.
#[derive(Debug)]
pub struct Decoder {
    config: Config,
    session: Session,
}

/// What a run computes of a sequence.
#[derive(Clone, Debug, Default)]
struct Sequence {
    tokens: Vec<u32>,
    /// The cache rows for the keys and values of the tokens.
    kept: Vec<u32>,
    /// The cache rows of the tokens before.
    before: Vec<u32>,
    /// The cache rows of the encoder's tokens.
    memory: Vec<u32>,
}

/// Rows of a cache that are not taken yet.
#[derive(Debug, Default)]
struct Free(u32);

impl Free {
    fn take(&mut self, count: usize) -> Vec<u32> {
        let first = self.0;
        self.0 = first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        (first..self.0).collect()
    }
}

impl Decoder {
    /// Takes a configuration and its checkpoint. Weights stay in the type that they are stored in; where there are several, they become
    /// f32.
    ///
    /// # Errors
    /// [`GenerateError`] names the tensor that does not fit, or what a device lacks.
    pub fn load(config: &Config, weights: &Weights<'_>, options: ModelOptions) -> Result<Self, GenerateError> {
        let stored = Stored::new(weights);
        let plan = lower(&optimize(config.trace(stored.dtype)?)?.0)?;
        let options = ModelOptions { clamp_ids: false, ..options };
        Ok(Self { config: config.clone(), session: Model::load(plan, stored, options)?.session() })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where its kernels run.
    pub fn report(&self) -> Report {
        self.session.report()
    }

    /// The logits `[tokens, vocabulary]` after every token of a prompt and its continuation. With an encoder, the prompt is the encoder's, and the
    /// logits are those after the start token and every token of the continuation.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, or what failed while it ran.
    pub async fn logits_async(&mut self, prompt: &[u32], continuation: &[u32]) -> Result<HostTensor, GenerateError> {
        let (mut sequences, first) = self.begin(&[prompt], prompt.len() + continuation.len() + 1).await?;
        let mut free = Free(first);
        for sequence in &mut sequences {
            sequence.tokens.extend(continuation);
            sequence.kept.extend(free.take(continuation.len()));
        }
        let rows = sequences.iter().map(|sequence| sequence.tokens.len()).sum::<usize>() as u32;
        let logits = self.run(&sequences, &(0..rows).collect::<Vec<_>>()).await?;
        Ok(HostTensor::f32(vec![rows as usize, self.config.vocabulary()], &logits)?)
    }

    /// [`Decoder::logits_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::logits_async`].
    pub fn logits(&mut self, prompt: &[u32], continuation: &[u32]) -> Result<HostTensor, GenerateError> {
        block_on(self.logits_async(prompt, continuation))
    }

    /// The first sequences of prompts, and the first cache row that none of them takes. There is room for `rows` rows.
    async fn begin(&mut self, prompts: &[&[u32]], rows: usize) -> Result<(Vec<Sequence>, u32), GenerateError> {
        if let Some(prompt) = prompts.iter().position(|prompt| prompt.is_empty()) {
            return Err(GenerateError::Prompt { prompt });
        }
        self.session.reserve_states_async(rows.max(1).next_power_of_two()).await?;
        let mut free = Free::default();
        let Some(start) = self.config.start() else {
            let of = |prompt: &&[u32]| Sequence {
                tokens: prompt.to_vec(),
                kept: free.take(prompt.len()),
                ..Sequence::default()
            };
            let sequences = prompts.iter().map(of).collect();
            return Ok((sequences, free.0));
        };
        let mut memory_rows = Free::default();
        let memories: Vec<Vec<u32>> = prompts.iter().map(|prompt| memory_rows.take(prompt.len())).collect();
        self.encode(prompts, &memories).await?;
        let of = |memory| Sequence { tokens: vec![start], kept: free.take(1), memory, ..Sequence::default() };
        let sequences = memories.into_iter().map(of).collect();
        Ok((sequences, free.0))
    }

    /// Writes the keys and values of prompts for the decoder's cross attention.
    async fn encode(&mut self, prompts: &[&[u32]], memories: &[Vec<u32>]) -> Result<(), GenerateError> {
        let inputs = self.inputs(&[Sequence::default()], &[])?;
        let inputs = encoder_inputs(inputs, &prompts.concat(), memories);
        self.session.run_async(&inputs).await?;
        Ok(())
    }

    /// The logits of the rows that are wanted of all tokens, `[wanted, vocabulary]`.
    async fn run(&mut self, sequences: &[Sequence], wanted: &[u32]) -> Result<Vec<f32>, GenerateError> {
        let mut inputs = self.inputs(sequences, wanted)?;
        if self.config.start().is_some() {
            inputs = encoder_inputs(inputs, &[], &[vec![]]);
        }
        let outputs = self.session.run_async(&inputs).await?;
        let logits = outputs.get("logits").map(HostTensor::to_f32).unwrap_or_default();
        let expected = wanted.len() * self.config.vocabulary();
        match logits.len() == expected {
            true => Ok(logits),
            false => Err(GenerateError::Output { reason: format!("has {} values: expected {expected}", logits.len()) }),
        }
    }

    fn inputs(&self, sequences: &[Sequence], wanted: &[u32]) -> Result<Inputs, TensorSizeError> {
        let all = |part: fn(&Sequence) -> &Vec<u32>| {
            HostTensor::vector(
                &sequences.iter().flat_map(|sequence| part(sequence).iter().copied()).collect::<Vec<_>>(),
            )
        };
        let before = |sequence: &Sequence| sequence.before.len() as u32;
        let inputs = Inputs::new()
            .with("lengths", lengths(sequences.iter().map(|sequence| &sequence.tokens)))
            .with("tokens", all(|sequence| &sequence.tokens))
            .with("kept", all(|sequence| &sequence.kept))
            .with("before.lengths", lengths(sequences.iter().map(|sequence| &sequence.before)))
            .with("before", all(|sequence| &sequence.before))
            .with("wanted", HostTensor::vector(wanted));
        let Some(rope) = self.config.rope() else {
            let inputs = inputs.with("memory.lengths", lengths(sequences.iter().map(|sequence| &sequence.memory)));
            return Ok(inputs.with("memory", all(|sequence| &sequence.memory)));
        };
        let positions = sequences.iter().flat_map(|sequence| {
            let first = before(sequence);
            first..first + sequence.tokens.len() as u32
        });
        let [cos, sin] = rope.tables(&positions.collect::<Vec<_>>())?;
        Ok(inputs.with("cos", cos).with("sin", sin))
    }
}

fn encoder_inputs(inputs: Inputs, tokens: &[u32], memories: &[Vec<u32>]) -> Inputs {
    inputs
        .with("encoder.kept.lengths", lengths(memories.iter()))
        .with("encoder.tokens", HostTensor::vector(tokens))
        .with("encoder.kept", HostTensor::vector(&memories.concat()))
}

fn lengths<'a>(rows: impl Iterator<Item = &'a Vec<u32>>) -> HostTensor {
    HostTensor::lengths(&rows.map(|rows| rows.len() as i64).collect::<Vec<_>>())
}
