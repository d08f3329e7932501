//! Compares steps of the beam search graph with the same search on plain lists.
#![allow(clippy::unwrap_used, missing_docs)]

use rewire_decoders::{BeamLimits, beam_step};
use rewire_graph::{DType, HostTensor, interpret};
use std::collections::HashMap;

/// The trie: entries of the root and of three more prefixes. States from [`ITEMS_FROM`] on are items.
const OFFSETS: [i32; 5] = [0, 2, 5, 8, 9];
const TOKENS: [i32; 9] = [5, 7, 1, 2, 3, 4, 4, 6, 9];
const STATES: [i32; 9] = [1, 2, 5, 6, 7, 8, 3, 9, 10];
const ITEMS_FROM: i32 = 4;

/// A request: the cache rows of its prompt, its beams `(score, state, earlier rows, latest row)`, and its number of next beams.
struct Request {
    prompt: Vec<u32>,
    beams: Vec<(f32, i32, Vec<i32>, i32)>,
    winners: usize,
}

fn entries(state: i32) -> Vec<(i32, i32)> {
    if state >= ITEMS_FROM {
        return vec![(0, state)];
    }
    let range = OFFSETS[state as usize] as usize..OFFSETS[state as usize + 1] as usize;
    range.map(|entry| (TOKENS[entry], STATES[entry])).collect()
}

fn lengths(of: impl Iterator<Item = usize>) -> HostTensor {
    HostTensor::lengths(&of.map(|length| length as i64).collect::<Vec<_>>())
}

/// Expected outputs: scores, states, tokens, cache rows, and `asked.tokens`.
type Expected = (Vec<f32>, Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>);

fn check(requests: &[Request], level: usize, [width, next]: [usize; 2]) {
    let levels = BeamLimits::ALL.levels;
    let beams = || requests.iter().flat_map(|request| &request.beams);
    let asked: Vec<f32> = (0..beams().count() * width).map(|n| -((n * 37 % 101) as f32) / 64.0).collect();
    let mut expected: Expected = Default::default();
    let mut first = 0;
    for request in requests {
        let mut candidates = vec![];
        for (score, state, rows, kept) in &request.beams {
            let own = &asked[first..first + width];
            first += width;
            for ((token, next), logarithm) in entries(*state).into_iter().zip(own) {
                let is_item = *state >= ITEMS_FROM;
                let mut rows = rows.clone();
                if level > 0 {
                    rows[level - 1] = *kept;
                }
                candidates.push((
                    score + if is_item { 0.0 } else { *logarithm },
                    next,
                    (!is_item).then_some(token),
                    rows,
                ));
            }
        }
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (score, state, token, rows) in &candidates[..request.winners] {
            expected.0.push(*score);
            expected.1.push((*state).into());
            expected.2.push(token.map_or(-1, i64::from));
            expected.3.extend(request.prompt.iter().map(|row| i64::from(*row)));
            expected.3.extend(rows[..level].iter().map(|row| i64::from(*row)));
            let tokens =
                entries(*state).into_iter().map(|(token, _)| if *state < ITEMS_FROM { token.into() } else { -1 });
            expected.4.extend(tokens.chain(std::iter::repeat(-1)).take(next));
        }
    }
    let winners = || requests.iter().flat_map(|request| std::iter::repeat_n(request, request.winners));
    let place: Vec<bool> = (0..levels).map(|column| column + 1 == level).collect();
    let rows: Vec<i32> = beams().flat_map(|(_, _, rows, _)| rows.clone()).collect();
    let inputs = [
        ("trie.offsets", HostTensor::vector(&OFFSETS)),
        ("trie.tokens", HostTensor::vector(&TOKENS)),
        ("trie.states", HostTensor::vector(&STATES)),
        ("entries", lengths(beams().map(|_| width))),
        ("candidates", lengths(requests.iter().map(|request| request.beams.len() * width))),
        ("asked", HostTensor::vector(&asked)),
        ("scores", HostTensor::vector(&beams().map(|beam| beam.0).collect::<Vec<f32>>())),
        ("states", HostTensor::vector(&beams().map(|beam| beam.1).collect::<Vec<i32>>())),
        ("kept", HostTensor::vector(&beams().map(|beam| beam.3).collect::<Vec<i32>>())),
        ("rows", HostTensor::new(vec![beams().count(), levels], &rows).unwrap()),
        ("place", HostTensor::vector(&place)),
        ("winners", lengths(requests.iter().map(|request| request.winners))),
        ("next.entries", lengths(winners().map(|_| next))),
        ("before.lengths", lengths(winners().map(|request| request.prompt.len() + level))),
        ("prompt.lengths", lengths(requests.iter().map(|request| request.prompt.len()))),
        (
            "prompt",
            HostTensor::vector(&requests.iter().flat_map(|request| request.prompt.clone()).collect::<Vec<u32>>()),
        ),
    ];
    let inputs: HashMap<String, HostTensor> = inputs.map(|(name, tensor)| (name.to_owned(), tensor)).into();
    let found = interpret(&beam_step().unwrap(), &inputs, &HashMap::new()).unwrap();
    let scores: Vec<f32> = found["scores"].to_f32();
    assert_eq!((scores, found["states"].to_i64()), (expected.0, expected.1));
    let same = |name: &str, expected: &[i64]| {
        let found = found[name].to_i64();
        assert_eq!(found.len(), expected.len());
        // Tokens of items and of absent candidates are unspecified.
        assert!(found.iter().zip(expected).all(|(a, b)| a == b || *b < 0), "{name}: {found:?} instead of {expected:?}");
    };
    same("tokens", &expected.2);
    same("before", &expected.3);
    same("asked.tokens", &expected.4);
    let rows: Vec<i64> = (0..winners().count() as i64).flat_map(|row| std::iter::repeat_n(row, next)).collect();
    assert_eq!((found["asked.rows"].to_i64(), found["tokens"].dtype()), (rows, DType::U32));
}

#[test]
fn the_best_candidates_of_every_request_continue() {
    let none = || vec![0; BeamLimits::ALL.levels];
    let root = |prompt: Vec<u32>, winners| Request { prompt, beams: vec![(0.0, 0, none(), 0)], winners };
    check(&[root(vec![4, 3], 2), root(vec![9], 1), root(vec![1, 0, 2], 2)], 0, [2, 3]);
    check(&[root(vec![4, 3], 1)], 0, [5, 4]);
    let first = [(-0.25, 2, none(), 11), (-1.0, 1, none(), 12)];
    let requests = [
        Request { prompt: vec![8, 7, 6], beams: first.to_vec(), winners: 5 },
        Request { prompt: vec![5], beams: first[1..].to_vec(), winners: 3 },
    ];
    check(&requests, 1, [3, 1]);
    let second = [
        (-0.5, 3, [vec![21], none()].concat()[..32].to_vec(), 22),
        (-0.75, 9, [vec![23], none()].concat()[..32].to_vec(), 24),
    ];
    check(&[Request { prompt: vec![2, 3], beams: second.to_vec(), winners: 2 }], 2, [1, 1]);
    // The last step: the next beams have no candidates.
    check(&[root(vec![4, 3], 2)], 0, [2, 0]);
}
