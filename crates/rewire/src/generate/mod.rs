//! Generative retrieval: the next items of users as semantic ids, by beam search.

pub mod decoder;
mod error;
mod trie;

pub use error::GenerateError;
pub use rewire_hstu::models::semantic_ids::Config;
pub use trie::Trie;

use rewire_graph::HostTensor;
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, Parameters, Session, block_on};
use std::ops::Range;

/// A semantic id that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The codes, one a level.
    pub codes: Vec<u32>,
    /// The items that have them.
    pub items: Vec<i64>,
    /// The logarithm of the id's probability, that of each code among all of its level.
    pub score: f64,
}

/// A model of [semantic ids](rewire_hstu::models::semantic_ids), ready to generate.
///
/// A user's history is computed once; all beams read its keys and values where they are, and those of their own codes, by index.
#[derive(Debug)]
pub struct Generator {
    config: Config,
    session: Session,
}

/// A beginning of a semantic id.
#[derive(Clone, Debug)]
struct Beam {
    user: usize,
    codes: Vec<u32>,
    score: f64,
    /// What may follow in the trie.
    nodes: Range<u32>,
    /// The rows of the cache of its codes but the last.
    rows: Vec<u32>,
}

impl Generator {
    /// Takes a configuration and the weights of its parameters.
    ///
    /// # Errors
    /// [`GenerateError`] names the key or tensor that is not good, or what is missing for a device.
    pub fn load(config: &Config, weights: impl Parameters, options: ModelOptions) -> Result<Self, GenerateError> {
        let plan = lower(&optimize(config.trace()?)?.0)?;
        Ok(Self { config: config.clone(), session: Model::load(plan, weights, options)?.session() })
    }

    /// The best semantic ids of a trie for each user, best first; of equal ones that of smaller codes first. A user's history is semantic ids,
    /// oldest first; one too long keeps its newest.
    ///
    /// At every level as many beginnings are kept as `widths` says, those of the largest probability. So the search is exact where all
    /// beginnings of a level are kept. The codes of a level are weighed against all of its codes, valid or not.
    ///
    /// # Errors
    /// [`GenerateError::Widths`], [`GenerateError::Levels`] and [`GenerateError::Id`] for what does not fit the model, whose `item` is the
    /// place in the history; or what failed while it ran.
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
        let mut next = 0;
        let mut take = |count: usize| {
            let rows: Vec<u32> = (next..next + count as u32).collect();
            next += count as u32;
            rows
        };
        let histories: Vec<Vec<u32>> = tokens.iter().map(|tokens| take(tokens.len())).collect();
        let most = widths.iter().take(levels - 1).fold(0usize, |all, &width| all.saturating_add(width.min(trie.ids())));
        let rows = histories.iter().map(Vec::len).sum::<usize>() + most.saturating_mul(tokens.len());
        self.session.reserve_states_async(rows.max(1).next_power_of_two()).await?;
        let nothing = vec![vec![]; tokens.len()];
        let mut logits = self.run(&tokens, &histories, &nothing).await?;
        let begin = |user| Beam { user, codes: vec![], score: 0.0, nodes: trie.root(), rows: vec![] };
        let mut beams: Vec<Beam> = (0..tokens.len()).map(begin).collect();
        for (level, &width) in widths.iter().enumerate() {
            beams = self.extend(trie, (level, width), &beams, &logits)?;
            if level + 1 < levels {
                let kept: Vec<Vec<u32>> = beams.iter().map(|_| take(1)).collect();
                let before = |beam: &Beam| {
                    let history = histories.get(beam.user).map(Vec::as_slice).unwrap_or_default();
                    [history, &beam.rows].concat()
                };
                let before: Vec<Vec<u32>> = beams.iter().map(before).collect();
                let first = self.config.first_token(level) as u32;
                let tokens: Vec<Vec<u32>> =
                    beams.iter().map(|beam| beam.codes.last().map(|code| first + code).into_iter().collect()).collect();
                logits = self.run(&tokens, &kept, &before).await?;
                beams.iter_mut().zip(kept).for_each(|(beam, kept)| beam.rows.extend(kept));
            }
        }
        let mut found = vec![vec![]; tokens.len()];
        for Beam { user, codes, score, nodes, .. } in beams {
            let of_user = found.get_mut(user).into_iter();
            of_user.for_each(|found| {
                found.push(Found { codes: codes.clone(), items: trie.items(&nodes).to_vec(), score });
            });
        }
        Ok(found)
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

    /// The best beginnings one level on, those of a user side by side.
    fn extend(
        &self,
        trie: &Trie,
        (level, width): (usize, usize),
        beams: &[Beam],
        logits: &[f32],
    ) -> Result<Vec<Beam>, GenerateError> {
        let first = self.config.first_token(level);
        let codes = self.config.codes.get(level).copied().unwrap_or_default();
        let mut rows = logits.chunks_exact(self.config.tokens().max(1));
        let mut next: Vec<Beam> = vec![];
        for of_user in beams.chunk_by(|a, b| a.user == b.user) {
            let begun = next.len();
            for (beam, row) in of_user.iter().zip(rows.by_ref()) {
                let row = row.get(first..first + codes).unwrap_or_default();
                let logarithm = log_sum(row)?;
                for (code, nodes) in trie.follow(level, beam.nodes.clone()) {
                    let logit = row.get(code as usize).copied().unwrap_or(f32::NEG_INFINITY);
                    let codes = beam.codes.iter().copied().chain([code]).collect();
                    let score = beam.score + f64::from(logit) - logarithm;
                    next.push(Beam { codes, score, nodes, ..beam.clone() });
                }
            }
            let own = next.get_mut(begun..).unwrap_or_default();
            own.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.codes.cmp(&b.codes)));
            next.truncate(begun.saturating_add(width));
        }
        Ok(next)
    }

    /// The logits of what follows each sequence, `[sequences, tokens]`, whose tokens before are in rows of the cache.
    async fn run(
        &mut self,
        tokens: &[Vec<u32>],
        kept: &[Vec<u32>],
        before: &[Vec<u32>],
    ) -> Result<Vec<f32>, GenerateError> {
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let lengths =
            |rows: &[Vec<u32>]| HostTensor::lengths(&rows.iter().map(|rows| rows.len() as i64).collect::<Vec<_>>());
        let inputs = Inputs::new()
            .with("lengths", lengths(tokens))
            .with("tokens", HostTensor::vector(&tokens.concat()))
            .with("kept", HostTensor::vector(&kept.concat()))
            .with("before.lengths", lengths(before))
            .with("before", HostTensor::vector(&before.concat()));
        let outputs = self.session.run_async(&inputs).await?;
        let logits = outputs.get("logits").map(HostTensor::to_f32).unwrap_or_default();
        let expected = tokens.len() * self.config.tokens();
        match logits.len() == expected {
            true => Ok(logits),
            false => Err(GenerateError::Output { reason: format!("has {} values: expected {expected}", logits.len()) }),
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
        false => Err(GenerateError::Output { reason: "has values that are not finite".to_owned() }),
    }
}
