//! Beam searches whose prefixes a device selects.

use super::beam::Beam;
use super::requests::Asked;
use super::tables::TrieTables;
use super::{Found, Trie};
use rewire_runtime::DeviceTensor;
use std::sync::Arc;

/// A trie in the memory of a device.
#[derive(Clone, Debug)]
pub(super) struct ResidentTrie {
    pub identity: Arc<()>,
    pub tables: Arc<TrieTables>,
    pub tensors: Vec<(&'static str, DeviceTensor)>,
}

/// Beams of a request, of which a device selects the best continuations.
#[derive(Debug)]
pub(super) struct Selection {
    pub trie: ResidentTrie,
    pub beams: Vec<Candidate>,
    /// The number of continuations.
    pub winners: usize,
}

/// A beam of a selection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub score: f32,
    pub state: u32,
    /// Its sequence in the run; any for an item.
    pub sequence: usize,
}

/// A selected continuation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winner {
    pub score: f64,
    pub state: u32,
}

/// A beam search inside a trie on a device.
#[derive(Debug)]
pub(super) struct ResidentSearch<'a> {
    trie: &'a Trie,
    resident: ResidentTrie,
    width: usize,
    /// The maximum number of cache rows.
    rows: usize,
    /// Prefixes and complete items, best first.
    beams: Vec<Member>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    beam: Beam,
    state: u32,
}

impl ResidentTrie {
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }
}

impl<'a> ResidentSearch<'a> {
    pub fn new(trie: &'a Trie, resident: ResidentTrie, width: usize, rows: usize) -> Self {
        Self { trie, resident, width, rows, beams: vec![Member::default()] }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The prefixes.
    pub fn open(&mut self) -> impl Iterator<Item = (&mut Beam, Asked)> {
        let tables = &self.resident.tables;
        let open = self.beams.iter_mut().filter(|member| tables.leaf(member.state).is_none());
        open.map(|member| (&mut member.beam, Asked::Selection))
    }

    pub fn is_done(&self) -> bool {
        self.beams.iter().all(|member| self.resident.tables.leaf(member.state).is_some())
    }

    /// The codes of the best prefix or item.
    pub fn best(&self) -> &[u32] {
        self.beams.first().map_or(&[], |member| &member.beam.codes)
    }

    /// The next selection, given the first of its sequences in the run.
    pub fn selection(&self, first: usize) -> Selection {
        let tables = &self.resident.tables;
        let mut open = first..;
        let of = |member: &Member| {
            let sequence = if tables.leaf(member.state).is_none() { open.next() } else { None };
            Candidate { score: member.beam.score as f32, state: member.state, sequence: sequence.unwrap_or(first) }
        };
        let beams: Vec<Candidate> = self.beams.iter().map(of).collect();
        let candidates = beams.iter().map(|beam| tables.tokens_after(beam.state).len()).sum();
        Selection { trie: self.resident.clone(), beams, winners: self.width.min(candidates) }
    }

    /// Continues with the selected prefixes and items.
    pub fn extend(&mut self, winners: &[Winner]) {
        let before = std::mem::take(&mut self.beams);
        self.beams = winners.iter().filter_map(|winner| self.member(&before, winner)).collect();
    }

    fn member(&self, before: &[Member], winner: &Winner) -> Option<Member> {
        let with = |state| before.iter().find(|member| member.state == state);
        if let Some(item) = with(winner.state) {
            return Some(item.clone());
        }
        let (parent, token) = self.resident.tables.before(winner.state)?;
        let Beam { codes, rows, .. } = &with(parent)?.beam;
        let codes = [codes, &[token][..]].concat();
        Some(Member { beam: Beam { codes, score: winner.score, rows: rows.clone() }, state: winner.state })
    }

    /// The complete items, best first.
    pub fn found(&self) -> Vec<Found> {
        let item = |Member { beam, state }: &Member| {
            let leaf = self.resident.tables.leaf(*state).filter(|_| beam.score > f64::NEG_INFINITY)?;
            Some(Found { codes: beam.codes.clone(), items: self.trie.items(leaf).to_vec(), score: beam.score })
        };
        let mut found: Vec<Found> = self.beams.iter().filter_map(item).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.codes.cmp(&b.codes)));
        found
    }
}
