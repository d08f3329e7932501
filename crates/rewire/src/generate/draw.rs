use super::beam::Beam;
use super::random::SplitMix;
use super::{GenerateError, log_sum};

/// Options of sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// The maximum number of new tokens per prompt.
    pub tokens: usize,
    /// Logits are divided by it; 0 selects the most likely token.
    pub temperature: f64,
    /// Sample only from the `top_k` most likely tokens; from all if `None`.
    pub top_k: Option<usize>,
    /// Sample only from the smallest set of most likely tokens whose probabilities add up to `top_p`; at least one
    /// token.
    pub top_p: f64,
    /// Seed of the random numbers, the same for every prompt.
    pub seed: u64,
    /// Tokens that end a sequence and are its last token, in addition to those of the model's configuration.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { tokens: 32, temperature: 0.0, top_k: None, top_p: 1.0, seed: 0, stop: vec![] }
    }
}

/// A sequence that is being sampled.
#[derive(Debug)]
pub(super) struct Draw {
    pub beam: Beam,
    sampling: Sampling,
    random: SplitMix,
}

impl Draw {
    pub fn new(sampling: Sampling) -> Result<Self, GenerateError> {
        sampling.check()?;
        let random = SplitMix(sampling.seed);
        Ok(Self { beam: Beam::default(), sampling, random })
    }

    /// The maximum number of cache rows: the row of the last token is never read.
    pub fn rows(&self) -> usize {
        self.sampling.tokens.saturating_sub(1)
    }

    pub fn is_done(&self) -> bool {
        let codes = &self.beam.codes;
        codes.len() >= self.sampling.tokens || codes.last().is_some_and(|last| self.sampling.stop.contains(last))
    }

    /// Appends a token.
    pub fn extend(&mut self, logits: &[f32]) -> Result<(), GenerateError> {
        let logarithm = log_sum(logits)?;
        let (token, logit) = self.sampling.draw(logits, &mut self.random);
        self.beam.codes.push(token);
        self.beam.score += f64::from(logit) - logarithm;
        Ok(())
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

    /// A token with its logit. Ties are ordered by the smaller token.
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
