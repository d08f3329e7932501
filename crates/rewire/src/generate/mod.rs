//! Generative retrieval: the next items of users as semantic ids, by beam search.

mod beam;
pub mod decoder;
mod draw;
mod error;
mod random;
mod requests;
mod resident;
mod rows;
#[cfg(feature = "train")]
mod rqvae;
mod sid;
mod tables;
mod trie;

pub use draw::Sampling;
pub use error::GenerateError;
pub use requests::{Progress, RequestId};
pub use rewire_hstu::models::semantic_ids::Config;
#[cfg(feature = "train")]
pub use rqvae::{RqVae, RqVaeOptions};
pub use sid::{Codebooks, SidOptions};
pub use trie::Trie;

use beam::Search;
use requests::{Answers, Asked, Autoregressive, Encoded, Sequence, Work, together};
use resident::Selection;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, Parameters, Session, block_on};
use std::ops::ControlFlow;

/// A semantic id found by the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The codes, one per level.
    pub codes: Vec<u32>,
    /// The items with this id.
    pub items: Vec<i64>,
    /// The log-probability of the id: the sum over its codes, each normalized over all codes of its level.
    pub score: f64,
}

/// A model of [semantic ids](rewire_hstu::models::semantic_ids), ready to generate.
///
/// A user's history is computed once. All beams read its keys and values, and those of their own codes, in place, by
/// index.
#[derive(Debug)]
pub struct Generator {
    config: Config,
    session: Session,
}

impl Generator {
    /// Loads a model from its configuration and weights.
    ///
    /// # Errors
    /// [`GenerateError`] names the invalid key or tensor, or the missing feature of a device.
    pub fn load(config: &Config, weights: impl Parameters, options: ModelOptions) -> Result<Self, GenerateError> {
        let plan = lower(&optimize(config.trace()?)?.0)?;
        Ok(Self { config: config.clone(), session: Model::load(plan, weights, options)?.session() })
    }

    /// The best semantic ids of a trie for each user, best first; ties are ordered by smaller codes. A user's history is a list of semantic ids,
    /// oldest first, of which the newest are used if it is too long.
    ///
    /// Level `n` keeps the `widths[n]` most likely prefixes, so the search is exact if the widths cover all prefixes.
    /// Probabilities are normalized over all codes of a level, valid or not.
    ///
    /// # Errors
    /// [`GenerateError::Widths`], [`GenerateError::Levels`] and [`GenerateError::Id`] for arguments that do not fit the
    /// model (in `Id`, `item` is an index into the history), or the error of a run.
    pub async fn search_async(
        &mut self,
        histories: &[Vec<Vec<u32>>],
        trie: &Trie,
        widths: &[usize],
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        let levels = self.config.codes.len();
        if widths.len() != levels || widths.contains(&0) {
            return Err(GenerateError::Widths { levels, widths: widths.to_vec() });
        }
        if trie.levels() != levels {
            return Err(GenerateError::Levels { expected: levels, actual: trie.levels() });
        }
        let tokens = histories.iter().map(|history| self.tokens(history)).collect::<Result<Vec<_>, _>>()?;
        let work = |tokens| (tokens, Work::Search(Search::new(trie, widths.to_vec())));
        together(self, async |_, _| ControlFlow::Continue(()), tokens.into_iter().map(work).collect()).await
    }

    /// [`Generator::search_async`], blocking.
    ///
    /// # Errors
    /// As [`Generator::search_async`].
    pub fn search(
        &mut self,
        histories: &[Vec<Vec<u32>>],
        trie: &Trie,
        widths: &[usize],
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        block_on(self.search_async(histories, trie, widths))
    }

    /// The tokens of a history, with room for another id.
    fn tokens(&self, history: &[Vec<u32>]) -> Result<Vec<u32>, GenerateError> {
        let codes = &self.config.codes;
        let most = self.config.max_seq_len.saturating_sub(codes.len()) / codes.len().max(1);
        let newest = history.len().saturating_sub(most);
        let mut tokens = Vec::new();
        for (place, id) in history.iter().enumerate() {
            let fits = id.len() == codes.len() && id.iter().zip(codes).all(|(&code, &codes)| (code as usize) < codes);
            if !fits {
                return Err(GenerateError::Id { item: place as i64, id: id.clone(), codes: codes.clone() });
            }
            if place >= newest {
                let firsts = (0..codes.len()).map(|level| self.config.first_token(level) as u32);
                tokens.extend(id.iter().zip(firsts).map(|(code, first)| first + code));
            }
        }
        Ok(tokens)
    }
}

impl Autoregressive for Generator {
    fn token(&self, level: usize, code: u32) -> u32 {
        self.config.first_token(level) as u32 + code
    }

    fn start(&self) -> Option<u32> {
        None
    }

    async fn reserve(&mut self, rows: usize) -> Result<(), GenerateError> {
        Ok(self.session.reserve_states_async(rows).await?)
    }

    async fn run(&mut self, sequences: &[Sequence], _: &[Encoded], _: &[Selection]) -> Result<Answers, GenerateError> {
        let inputs = Inputs::new()
            .with("lengths", lengths(sequences.iter().map(|sequence| &sequence.tokens)))
            .with("tokens", joined(sequences.iter().map(|sequence| &sequence.tokens)))
            .with("kept", joined(sequences.iter().map(|sequence| &sequence.kept)))
            .with("before.lengths", lengths(sequences.iter().map(|sequence| &sequence.before)))
            .with("before", joined(sequences.iter().map(|sequence| &sequence.before)));
        let outputs = self.session.run_async(&inputs).await?;
        let logits = floats(outputs.get("logits"), "logits", sequences.len() * self.config.tokens())?;
        let rows = logits.chunks_exact(self.config.tokens().max(1));
        let answers = sequences.iter().zip(rows).map(|(sequence, row)| self.answer(&sequence.asked, row));
        Ok(Answers { sequences: answers.collect::<Result<_, _>>()?, selections: vec![] })
    }
}

impl Generator {
    fn answer(&self, asked: &Asked, row: &[f32]) -> Result<Vec<f32>, GenerateError> {
        let Asked::Codes { level, codes } = asked else { return Ok(row.to_vec()) };
        let (first, count) = (self.config.first_token(*level), self.config.codes.get(*level).copied().unwrap_or(0));
        let row = row.get(first..first + count).unwrap_or(&[]);
        let logarithm = log_sum(row)?;
        let of = |&code: &u32| {
            row.get(code as usize).map_or(f32::NEG_INFINITY, |&logit| (f64::from(logit) - logarithm) as f32)
        };
        Ok(codes.iter().map(of).collect())
    }
}

/// Lengths of lists, read on the host.
fn lengths<'a>(lists: impl Iterator<Item = &'a Vec<u32>>) -> HostTensor {
    HostTensor::lengths(&lists.map(|list| list.len() as i64).collect::<Vec<_>>())
}

/// Concatenated lists.
fn joined<'a>(lists: impl Iterator<Item = &'a Vec<u32>>) -> HostTensor {
    HostTensor::vector(&lists.flatten().copied().collect::<Vec<u32>>())
}

/// The elements of an output, whose number must be as given.
fn floats(output: Option<&HostTensor>, name: &'static str, expected: usize) -> Result<Vec<f32>, GenerateError> {
    let values = output.map(HostTensor::to_f32).unwrap_or_default();
    match values.len() == expected {
        true => Ok(values),
        false => {
            Err(GenerateError::Output { name, reason: format!("has {} values: expected {expected}", values.len()) })
        }
    }
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> Result<f64, GenerateError> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    let logarithm = f64::from(most) + sum.ln();
    match logarithm.is_finite() {
        true => Ok(logarithm),
        false => Err(GenerateError::Output { name: "logits", reason: "has values that are not finite".to_owned() }),
    }
}
