use super::{Decoder, Free, Sequence};
use crate::generate::{Found, GenerateError, Trie, log_sum};
use rewire_runtime::block_on;
use std::ops::Range;

/// A beginning of an item.
#[derive(Clone, Debug)]
struct Beam {
    prompt: usize,
    tokens: Vec<u32>,
    score: f64,
    /// What may follow in the trie.
    nodes: Range<u32>,
    /// The cache rows of its tokens but the last.
    rows: Vec<u32>,
}

impl Decoder {
    /// The best items of a trie for each prompt, best first; of equal ones those of smaller tokens first.
    ///
    /// At every level the `width` beginnings of the largest probability are kept, so the search is exact where these are all. A score is the sum of
    /// the logarithms of the tokens' probabilities among the whole vocabulary.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, [`GenerateError::Widths`] for a width of 0, or what failed while it ran.
    pub async fn search_async(
        &mut self,
        prompts: &[&[u32]],
        trie: &Trie,
        width: usize,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        let levels = trie.levels();
        if width == 0 {
            return Err(GenerateError::Widths { levels, widths: vec![width; levels] });
        }
        if prompts.is_empty() {
            return Ok(vec![]);
        }
        let most = width.min(trie.ids()).saturating_mul(levels).saturating_add(1);
        let rows = prompts.iter().map(|prompt| prompt.len().saturating_add(most)).fold(0, usize::saturating_add);
        let (bases, first) = self.begin(prompts, rows).await?;
        let mut free = Free(first);
        let begin = |prompt| Beam { prompt, tokens: vec![], score: 0.0, nodes: trie.root(), rows: vec![] };
        let mut beams: Vec<Beam> = (0..prompts.len()).map(begin).collect();
        for level in 0..levels {
            let sequences: Vec<Sequence> = match level {
                0 => bases.clone(),
                _ => {
                    let following = beams.iter_mut().filter_map(|beam| {
                        Some(next(beam.tokens.last().copied()?, &mut beam.rows, bases.get(beam.prompt)?, &mut free))
                    });
                    following.collect()
                }
            };
            let logits = match sequences.is_empty() {
                true => vec![],
                false => self.run(&sequences, &last_rows(&sequences)).await?,
            };
            beams = self.extend(trie, (level, width), &beams, &logits)?;
        }
        let mut found = vec![vec![]; prompts.len()];
        for Beam { prompt, tokens, score, nodes, .. } in beams.into_iter().filter(|beam| !beam.tokens.is_empty()) {
            let of_prompt = found.get_mut(prompt).into_iter();
            let items = trie.items(&nodes);
            of_prompt.for_each(|found| found.push(Found { codes: tokens.clone(), items: items.to_vec(), score }));
        }
        Ok(found)
    }

    /// [`Decoder::search_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::search_async`].
    pub fn search(&mut self, prompts: &[&[u32]], trie: &Trie, width: usize) -> Result<Vec<Vec<Found>>, GenerateError> {
        block_on(self.search_async(prompts, trie, width))
    }

    /// The best beginnings with another token, those of a prompt side by side.
    fn extend(
        &self,
        trie: &Trie,
        (level, width): (usize, usize),
        beams: &[Beam],
        logits: &[f32],
    ) -> Result<Vec<Beam>, GenerateError> {
        let mut rows = logits.chunks_exact(self.config.vocabulary());
        let mut longer: Vec<Beam> = vec![];
        for of_prompt in beams.chunk_by(|a, b| a.prompt == b.prompt) {
            let mut own = vec![];
            for (beam, row) in of_prompt.iter().zip(rows.by_ref()) {
                let logarithm = log_sum(row)?;
                for (token, nodes) in trie.follow(level, beam.nodes.clone()) {
                    let logit = row.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
                    let tokens = beam.tokens.iter().copied().chain([token]).collect();
                    let score = beam.score + f64::from(logit) - logarithm;
                    own.push(Beam { tokens, score, nodes, ..beam.clone() });
                }
            }
            own.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.tokens.cmp(&b.tokens)));
            own.truncate(width);
            longer.extend(own);
        }
        Ok(longer)
    }
}

/// The run of a sequence's last token; `rows` are the cache rows of the tokens before it, and then its own as well.
pub(super) fn next(token: u32, rows: &mut Vec<u32>, base: &Sequence, free: &mut Free) -> Sequence {
    let (before, kept) = ([base.kept.as_slice(), rows].concat(), free.take(1));
    rows.extend(&kept);
    Sequence { tokens: vec![token], kept, before, memory: base.memory.clone() }
}

/// The last row of every sequence.
pub(super) fn last_rows(sequences: &[Sequence]) -> Vec<u32> {
    let ends = sequences.iter().scan(0, |end, sequence| {
        *end += sequence.tokens.len() as u32;
        Some(*end - 1)
    });
    ends.collect()
}
