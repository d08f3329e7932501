use super::Trie;
use super::trie::Node;
use std::cmp::Ordering;
use std::ops::Range;

/// A prefix of an item, or sampled tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Beam {
    pub codes: Vec<u32>,
    /// The sum of the log-probabilities of the codes.
    pub score: f64,
    /// The cache rows of its codes except the last.
    pub rows: Vec<u32>,
}

/// A beam search inside a trie.
#[derive(Debug)]
pub(super) struct Search<'a> {
    trie: &'a Trie,
    /// The beam width at each level, counting prefixes and complete items. The last width applies to later levels too.
    widths: Vec<usize>,
    level: usize,
    open: Vec<Open>,
    ended: Vec<Ended>,
}

/// A prefix that may be continued.
#[derive(Clone, Debug)]
struct Open {
    beam: Beam,
    children: Range<u32>,
}

/// A whole item.
#[derive(Clone, Debug)]
struct Ended {
    codes: Vec<u32>,
    score: f64,
    leaf: u32,
}

/// A candidate for the beams of a level.
enum Candidate<'a> {
    /// An item that was completed at an earlier level.
    Ended(&'a Ended),
    /// A prefix with another code, which is a complete item.
    Leaf(&'a Open, u32, f64, u32),
    /// A prefix with another code, which may be continued.
    Open(&'a Open, &'a Node, f64),
}

impl<'a> Search<'a> {
    pub fn new(trie: &'a Trie, widths: Vec<usize>) -> Self {
        let root = Open { beam: Beam::default(), children: trie.root() };
        Self { trie, widths, level: 0, open: if trie.ids() > 0 { vec![root] } else { vec![] }, ended: vec![] }
    }

    pub fn trie(&self) -> &'a Trie {
        self.trie
    }

    /// The maximum number of cache rows: the rows of the last level are never read.
    pub fn rows(&self) -> usize {
        let width = |level| self.width(level).min(self.trie.ids());
        (1..self.trie.levels()).map(|level| width(level - 1)).fold(0, usize::saturating_add)
    }

    /// The beam width at a level.
    pub fn width(&self, level: usize) -> usize {
        self.widths.get(level).or(self.widths.last()).copied().unwrap_or(usize::MAX)
    }

    /// The level of the next codes.
    pub fn level(&self) -> usize {
        self.level
    }

    /// The prefixes, each with the codes that may follow it.
    pub fn open(&mut self) -> impl Iterator<Item = (&mut Beam, Vec<u32>)> {
        let (trie, level) = (self.trie, self.level);
        self.open.iter_mut().map(move |open| {
            let codes = trie.nodes(level, &open.children).iter().map(|node| node.code).collect();
            (&mut open.beam, codes)
        })
    }

    pub fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// The codes of the best prefix or item.
    pub fn best(&self) -> &[u32] {
        let open = self.open.first().map(|open| (open.beam.score, &open.beam.codes));
        let ended = self.ended.first().map(|ended| (ended.score, &ended.codes));
        let best = open.into_iter().chain(ended).max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(&[], |(_, codes)| codes)
    }

    /// Extends all beams by a level, given the log-probabilities of the codes that may follow each prefix.
    pub fn extend(&mut self, answers: &[Vec<f32>]) {
        let mut candidates: Vec<Candidate<'_>> = self.ended.iter().map(Candidate::Ended).collect();
        for (open, answer) in self.open.iter().zip(answers) {
            for (node, &logarithm) in self.trie.nodes(self.level, &open.children).iter().zip(answer) {
                // In f32, as devices add them.
                let score = f64::from(open.beam.score as f32 + logarithm);
                candidates.extend(node.leaf.map(|leaf| Candidate::Leaf(open, node.code, score, leaf)));
                candidates.extend((!node.children.is_empty()).then_some(Candidate::Open(open, node, score)));
            }
        }
        let width = self.width(self.level);
        if width < candidates.len() {
            candidates.select_nth_unstable_by(width, Candidate::compare);
            candidates.truncate(width);
        }
        candidates.sort_unstable_by(Candidate::compare);
        let (mut open, mut ended) = (vec![], vec![]);
        for candidate in candidates {
            match candidate {
                Candidate::Ended(item) => ended.push(item.clone()),
                Candidate::Leaf(_, _, score, leaf) => ended.push(Ended { codes: candidate.codes(), score, leaf }),
                Candidate::Open(parent, node, score) => {
                    let beam = Beam { codes: candidate.codes(), score, rows: parent.beam.rows.clone() };
                    open.push(Open { beam, children: node.children.clone() });
                }
            }
        }
        (self.open, self.ended, self.level) = (open, ended, self.level + 1);
    }

    /// The codes, items and scores of complete items, best first.
    pub fn found(&self) -> impl Iterator<Item = (&[u32], &[i64], f64)> {
        self.ended.iter().map(|ended| (ended.codes.as_slice(), self.trie.items(ended.leaf), ended.score))
    }
}

impl Candidate<'_> {
    fn score(&self) -> f64 {
        match self {
            Self::Ended(item) => item.score,
            Self::Leaf(.., score, _) | Self::Open(.., score) => *score,
        }
    }

    fn codes(&self) -> Vec<u32> {
        match self {
            Self::Ended(item) => item.codes.clone(),
            Self::Leaf(parent, code, ..) => [&parent.beam.codes[..], &[*code]].concat(),
            Self::Open(parent, node, _) => [&parent.beam.codes[..], &[node.code]].concat(),
        }
    }

    /// Best first, then by smaller codes, then complete items before open ones.
    fn compare(&self, other: &Self) -> Ordering {
        let goes_on = |one: &Self| matches!(one, Self::Open(..));
        let by_score = other.score().total_cmp(&self.score());
        by_score.then_with(|| self.codes().cmp(&other.codes())).then_with(|| goes_on(self).cmp(&goes_on(other)))
    }
}
