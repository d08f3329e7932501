//! A step of beam search in a trie, as a graph: beams and trie stay in device memory.

use crate::ConfigError;
use rewire_graph::op::{MergeRuns, SortRuns};
use rewire_graph::{DType, Dim, Graph, Ragged, Scope, Tensor};

/// Number of passes that merge sorted runs of candidates.
const MERGES: u32 = 2;

/// Sizes that [`beam_step`] supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeamLimits {
    /// Maximum number of candidates of a request.
    pub candidates: usize,
    /// Maximum number of levels of the trie.
    pub levels: usize,
}

impl BeamLimits {
    /// The limits of all requests.
    pub const ALL: Self = Self { candidates: SortRuns::LENGTH * MergeRuns::WAYS.pow(MERGES), levels: 32 };
}

/// The graph of a beam search step between two runs of a decoder. Its inputs are `S` beams of `R` requests with the probabilities of their
/// candidates, the next tokens that the trie allows. It selects the best `T` candidates as beams of the next run, and computes its inputs.
///
/// States below the number of prefixes are prefixes; 0 is the root. Higher states are complete items. The only candidate of an item is the
/// item itself. Candidates beyond the entries of a state have a score of negative infinity.
///
/// | input | type | contents |
/// |---|---|---|
/// | `trie.offsets` | I32 `[prefixes + 1]` | the index of the first entry of every prefix, then the number of entries |
/// | `trie.tokens`, `trie.states` | I32 `[entries]` | the token of each entry, and the state after it |
/// | `entries` | integers `[S]`, read on the host | number of candidates of each beam, at least the entries of its state |
/// | `candidates` | integers `[R]`, read on the host | sums of `entries` per request |
/// | `asked` | F32 `[sum of entries]` | log probabilities of the candidates |
/// | `scores`, `states` | F32, I32 `[S]` | scores and states of the beams |
/// | `kept` | I32 `[S]` | the cache row of each beam's latest token |
/// | `rows` | I32 `[S, levels]` | the cache rows of each beam's earlier tokens |
/// | `place` | Bool `[levels]` | true for the column of `rows` to set to `kept` |
/// | `winners` | integers `[R]`, read on the host | next beams of each request, at most its candidates; `T` in total |
/// | `next.entries` | integers `[T]`, read on the host | number of candidates of each next beam |
/// | `before.lengths` | integers `[T]`, read on the host | number of cache rows that each next beam reads |
/// | `prompt.lengths`, `prompt` | integers `[R]`, read on the host; U32 | the cache rows of the prompts |
///
/// The outputs `scores`, `states` and `rows` describe the next beams, best first. Ties are ordered by beam, then by entry. The outputs
/// `tokens`, `before`, `asked.rows` and `asked.tokens` are inputs of the next [run](crate#inputs).
///
/// # Errors
/// [`ConfigError::Graph`] names the operator that rejected its operands.
pub fn beam_step() -> Result<Graph, ConfigError> {
    let scope = Scope::new().without_places();
    let trie = Trie::input(&scope);
    let (requests, beams) = (scope.size("requests"), scope.size("beams"));
    let entries = scope.lengths("entries", &beams);
    let candidates = scope.lengths("candidates", &requests).of_total(&entries.total);
    let asked = scope.input("asked", DType::F32, [&entries.total]);
    let scores = scope.input("scores", DType::F32, [&beams]);
    let states = scope.input("states", DType::I32, [&beams]);

    let beam = numbers(&scope, &beams).jagged_broadcast(&entries);
    let entry = trie.entry(&states.gather(&beam), &entries.position());
    let logarithm = entry.is_item.select(scope.scalar(DType::F32, 0.0), &asked);
    let absent = scope.scalar(DType::F32, f64::NEG_INFINITY);
    let score = entry.exists.select(scores.gather(&beam) + logarithm, absent);

    let winners = scope.lengths("winners", &requests);
    let request = numbers(&scope, &requests).jagged_broadcast(&winners);
    let order = order(&scope, &score, &candidates).padded_to_jagged(&winners);
    let winner = order + candidates.offsets.cast(DType::I32).gather(&request);
    let parent = beam.gather(&winner);
    let states = entry.state.gather(&winner);
    let rows = rows(&scope, &beams, &parent);

    let next = scope.lengths("next.entries", &winners.total);
    let asked_rows = numbers(&scope, &winners.total).jagged_broadcast(&next);
    let asked_tokens = trie.entry(&states.gather(&asked_rows), &next.position()).token;
    let before = before(&scope, &rows, (&request, &requests));
    Ok(scope.finish(&[
        ("scores", score.gather(&winner)),
        ("states", states),
        ("tokens", entry.token.gather(&winner).cast(DType::U32)),
        ("before", before),
        ("rows", rows),
        ("asked.rows", asked_rows.cast(DType::U32)),
        ("asked.tokens", asked_tokens.cast(DType::U32)),
    ])?)
}

/// A trie in device memory.
struct Trie {
    offsets: Tensor,
    tokens: Tensor,
    states: Tensor,
    /// Number of prefixes.
    prefixes: Tensor,
}

/// Entries of states. Tokens and states of absent entries are unspecified.
struct Entry {
    exists: Tensor,
    is_item: Tensor,
    token: Tensor,
    state: Tensor,
}

impl Trie {
    fn input(scope: &Scope) -> Self {
        let (offsets, entries) = (scope.size("trie offsets"), scope.size("trie entries"));
        let input = |name, count: &Dim| scope.input(name, DType::I32, [count]);
        Self {
            offsets: input("trie.offsets", &offsets),
            tokens: input("trie.tokens", &entries),
            states: input("trie.states", &entries),
            prefixes: (scope.host_size(&offsets) - 1i64).cast(DType::I32),
        }
    }

    fn entry(&self, state: &Tensor, place: &Tensor) -> Entry {
        let is_item = state.ge(&self.prefixes);
        let first = self.offsets.gather(state);
        let count = self.offsets.gather(state + 1i64) - &first;
        let at = first + place;
        Entry {
            exists: place.lt(is_item.cast(DType::I32).maximum(count)),
            token: self.tokens.gather(&at),
            state: is_item.select(state, self.states.gather(&at)),
            is_item,
        }
    }
}

/// `0, 1, 2, ..`
fn numbers(scope: &Scope, count: &Dim) -> Tensor {
    Ragged::dense(scope, 1, scope.host_size(count)).position().reshape([count])
}

/// The positions of every request's candidates, best first, `[R, most]`.
fn order(scope: &Scope, score: &Tensor, candidates: &Ragged) -> Tensor {
    let keys = score.jagged_to_padded(candidates, &candidates.max().as_dim(), f64::NEG_INFINITY);
    let runs = scope.apply(SortRuns { is_descending: true }, &[&keys]);
    (0..MERGES).fold(runs, |order, merge| {
        let run = SortRuns::LENGTH * MergeRuns::WAYS.pow(merge);
        scope.apply(MergeRuns { is_descending: true, run }, &[&keys, &order])
    })
}

/// The cache rows of the tokens of the next beams, except for the new ones.
fn rows(scope: &Scope, beams: &Dim, parent: &Tensor) -> Tensor {
    let levels = BeamLimits::ALL.levels;
    let kept = scope.input("kept", DType::I32, [beams]);
    let rows = scope.input("rows", DType::I32, (beams, levels));
    let place = scope.input("place", DType::Bool, [levels]);
    place.select(kept.gather(parent).reshape((parent.dim(0), 1)), rows.gather(parent))
}

/// For each next beam, the cache rows of its prompt, followed by the rows of its tokens.
fn before(scope: &Scope, rows: &Tensor, (request, requests): (&Tensor, &Dim)) -> Tensor {
    let prompts = scope.lengths("prompt.lengths", requests);
    let prompt = scope.input("prompt", DType::U32, [&prompts.total]).cast(DType::I32);
    let before = scope.lengths("before.lengths", rows.dim(0));
    let (beam, place) = (numbers(scope, &rows.dim(0)).jagged_broadcast(&before), before.position());
    let request = request.gather(&beam);
    let first = prompts.offsets.cast(DType::I32).gather(&request);
    let own = &place - prompts.lengths.cast(DType::I32).gather(&request);
    let levels = rows.width();
    let of_beam = rows.reshape([rows.dim(0) * levels as i64]).gather(beam * levels as i64 + &own);
    own.lt(0i64).select(prompt.gather(first + place), of_beam).cast(DType::U32)
}
