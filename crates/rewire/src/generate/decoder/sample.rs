use super::search::{last_rows, next};
use super::{Decoder, Free};
use crate::generate::{Found, GenerateError, log_sum};
use rewire_runtime::block_on;

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// New tokens of a prompt at most.
    pub tokens: usize,
    /// What logits are divided by; at 0 the largest one is taken.
    pub temperature: f64,
    /// Only so many tokens of the largest logits are drawn from; all if `None`.
    pub top_k: Option<usize>,
    /// Of these only the fewest whose probabilities reach this sum, at least one.
    pub top_p: f64,
    /// What random numbers are drawn from, those of every prompt alike.
    pub seed: u64,
    /// Tokens that end a sequence, of which they are the last.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { tokens: 32, temperature: 0.0, top_k: None, top_p: 1.0, seed: 0, stop: vec![] }
    }
}

/// A sequence that is being drawn.
struct Drawn {
    prompt: usize,
    tokens: Vec<u32>,
    score: f64,
    rows: Vec<u32>,
    random: SplitMix,
}

impl Decoder {
    /// Tokens that follow each prompt. A score is the sum of the logarithms of their probabilities, without temperature and limits. What is drawn
    /// for a prompt does not depend on the others.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, [`GenerateError::Sampling`] for an option out of range, or what failed while it ran.
    pub async fn sample_async(&mut self, prompts: &[&[u32]], sampling: &Sampling) -> Result<Vec<Found>, GenerateError> {
        sampling.check()?;
        let mut found = vec![Found { codes: vec![], items: vec![], score: 0.0 }; prompts.len()];
        if prompts.is_empty() || sampling.tokens == 0 {
            return Ok(found);
        }
        let rows = prompts.iter().map(|prompt| prompt.len().saturating_add(sampling.tokens));
        let (bases, first) = self.begin(prompts, rows.fold(0, usize::saturating_add)).await?;
        let mut free = Free(first);
        let begin =
            |prompt| Drawn { prompt, tokens: vec![], score: 0.0, rows: vec![], random: SplitMix(sampling.seed) };
        let mut drawn: Vec<Drawn> = (0..prompts.len()).map(begin).collect();
        let mut sequences = bases.clone();
        while !drawn.is_empty() {
            let logits = self.run(&sequences, &last_rows(&sequences)).await?;
            for (one, row) in drawn.iter_mut().zip(logits.chunks_exact(self.config.vocabulary())) {
                let logarithm = log_sum(row)?;
                let (token, logit) = sampling.draw(row, &mut one.random);
                one.tokens.push(token);
                one.score += f64::from(logit) - logarithm;
            }
            let is_done = |one: &Drawn| {
                one.tokens.len() >= sampling.tokens
                    || one.tokens.last().is_some_and(|last| sampling.stop.contains(last))
            };
            for one in drawn.extract_if(.., |one| is_done(one)) {
                let of_prompt = found.get_mut(one.prompt).into_iter();
                of_prompt.for_each(|found| (found.codes, found.score) = (one.tokens.clone(), one.score));
            }
            let following = drawn.iter_mut().filter_map(|one| {
                Some(next(one.tokens.last().copied()?, &mut one.rows, bases.get(one.prompt)?, &mut free))
            });
            sequences = following.collect();
        }
        Ok(found)
    }

    /// [`Decoder::sample_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::sample_async`].
    pub fn sample(&mut self, prompts: &[&[u32]], sampling: &Sampling) -> Result<Vec<Found>, GenerateError> {
        block_on(self.sample_async(prompts, sampling))
    }
}

impl Sampling {
    fn check(&self) -> Result<(), GenerateError> {
        let temperature = (self.temperature >= 0.0 && self.temperature.is_finite()).then_some(());
        let failed = |option: &'static str, expected: &'static str| GenerateError::Sampling { option, expected };
        temperature.ok_or_else(|| failed("temperature", "finite and at least 0"))?;
        (self.top_p > 0.0 && self.top_p <= 1.0)
            .then_some(())
            .ok_or_else(|| failed("top_p", "above 0 and at most 1"))?;
        (self.top_k != Some(0)).then_some(()).ok_or_else(|| failed("top_k", "at least 1"))
    }

    /// A token with its logit. Of equal logits the smaller token comes first.
    fn draw(&self, row: &[f32], random: &mut SplitMix) -> (u32, f32) {
        let mut order: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
        let best = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let largest = order.iter().copied().min_by(best).unwrap_or((0, f32::NEG_INFINITY));
        if self.temperature == 0.0 {
            return largest;
        }
        order.sort_unstable_by(best);
        order.truncate(self.top_k.unwrap_or(usize::MAX));
        let weight = |logit: f32| (f64::from(logit - largest.1) / self.temperature).exp();
        let total: f64 = order.iter().map(|&(_, logit)| weight(logit)).sum();
        let mut kept = 0.0;
        let count = order.iter().take_while(|&&(_, logit)| {
            let is_kept = kept < self.top_p * total;
            kept += weight(logit);
            is_kept
        });
        let count = count.count().max(1);
        order.truncate(count);
        let total: f64 = order.iter().map(|&(_, logit)| weight(logit)).sum();
        let mut left = random.unit() * total;
        let drawn = order.iter().find(|&&(_, logit)| {
            left -= weight(logit);
            left < 0.0
        });
        drawn.or(order.last()).copied().unwrap_or(largest)
    }
}

/// The generator of Steele, Lea and Flood (2014).
struct SplitMix(u64);

impl SplitMix {
    /// At least 0 and below 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
