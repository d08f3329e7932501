use crate::check::{Check, Inputs, Values, assert_near, random, tensor};
use rewire_graph::{HostTensor, Scope, Tensor};
use rewire_losses::{self as loss, HardNegatives, MatchLogits};

const WIDTH: usize = 5;

/// Rows, divided by their lengths for a cosine.
fn rows(x: &[f64], cosine: bool) -> Vec<Vec<f64>> {
    let unit = |row: &[f64]| {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        let by = if cosine { norm.max(1e-6) } else { 1.0 };
        row.iter().map(|x| x / by).collect()
    };
    x.chunks(WIDTH).map(unit).collect()
}

fn traced(x: &Tensor, cosine: bool) -> Tensor {
    if cosine { loss::unit_rows(x) } else { x.clone() }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The negative logarithm of the share of one among exponentials.
fn surprise(logits: &[f64], label: usize) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - largest).exp()).sum();
    sum.ln() + largest - logits[label]
}

#[test]
fn items_of_other_users_are_negatives() {
    for (batch, cosine, temperature) in [(1, true, 0.2), (4, false, 1.0), (4, true, 0.05), (7, false, 0.3)] {
        let inputs = [("users", 1), ("users.items", 2)]
            .map(|(name, seed)| (name, tensor(&[batch, WIDTH], &random(batch * WIDTH, seed + batch as u64))));
        Check {
            inputs: inputs.to_vec(),
            wanted: &["users", "users.items"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let [users, items] = ["users", "users.items"].map(|name| traced(&given[name], cosine));
                loss::mean(scope, &MatchLogits::in_batch(&users, &items, temperature).cross_entropy(), None)
            },
            reference: &|values: &Values<'_>| {
                let [users, items] = ["users", "users.items"].map(|name| rows(&values[name], cosine));
                let of = |(at, user): (usize, &Vec<f64>)| {
                    let logits: Vec<f64> = items.iter().map(|item| dot(user, item) / temperature).collect();
                    surprise(&logits, at)
                };
                users.iter().enumerate().map(of).sum::<f64>() / users.len() as f64
            },
        }
        .run();
    }
}

/// Items with their users and slots.
struct Hard {
    users: Vec<i64>,
    slots: Vec<i64>,
    slot_count: usize,
}

impl Hard {
    fn traced(&self, given: &Inputs<'_>, cosine: bool) -> HardNegatives {
        HardNegatives {
            items: traced(&given["hard"], cosine),
            users: given["hard.users"].clone(),
            slots: given["hard.slots"].clone(),
            slot_count: self.slot_count,
        }
    }

    fn row(&self, at: usize, user: &[f64], items: &[Vec<f64>], temperature: f64) -> Vec<f64> {
        let mut row = vec![-1e32; self.slot_count];
        for (item, (&of, &slot)) in items.iter().zip(self.users.iter().zip(&self.slots)) {
            if of == at as i64 {
                row[slot as usize] = dot(user, item) / temperature;
            }
        }
        row
    }
}

#[test]
fn sampled_and_hard_negatives() {
    let batch = 4;
    for (sampled, cosine, temperature, hard) in [
        (6, true, 0.1, None),
        (1, false, 1.0, None),
        (3, true, 0.2, Some(Hard { users: vec![2, 0, 2], slots: vec![1, 0, 0], slot_count: 3 })),
        (5, false, 0.5, Some(Hard { users: vec![3], slots: vec![0], slot_count: 1 })),
        (2, true, 0.5, Some(Hard { users: vec![], slots: vec![], slot_count: 2 })),
        (0, true, 0.5, Some(Hard { users: vec![1, 3, 0], slots: vec![0, 1, 1], slot_count: 2 })),
    ] {
        let count = hard.as_ref().map_or(0, |hard| hard.users.len());
        let random = |rows: usize, seed| tensor(&[rows, WIDTH], &random(rows * WIDTH, seed));
        let mut inputs =
            vec![("users", random(batch, 1)), ("users.positives", random(batch, 2)), ("negatives", random(sampled, 3))];
        let mut wanted = vec!["users", "users.positives", "negatives"];
        if let Some(hard) = &hard {
            inputs.push(("hard", random(count, 4)));
            inputs.push(("hard.users", HostTensor::vector(&hard.users)));
            inputs.push(("hard.slots", HostTensor::vector(&hard.slots)));
            wanted.push("hard");
        }
        Check {
            inputs,
            wanted: &wanted,
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let [users, positives, negatives] =
                    ["users", "users.positives", "negatives"].map(|name| traced(&given[name], cosine));
                let hard = hard.as_ref().map(|hard| hard.traced(given, cosine));
                let logits = MatchLogits::sampled(&users, &positives, &negatives, hard.as_ref(), temperature);
                loss::mean(scope, &logits.cross_entropy(), None)
            },
            reference: &|values: &Values<'_>| {
                let row_sets = ["users", "users.positives", "negatives"].map(|name| rows(&values[name], cosine));
                let [users, positives, negatives] = row_sets;
                let items = values.get("hard").map(|x| rows(x, cosine)).unwrap_or_default();
                let of = |(at, user): (usize, &Vec<f64>)| {
                    let shared = negatives.iter().map(|item| dot(user, item) / temperature);
                    let own = hard.as_ref().map(|hard| hard.row(at, user, &items, temperature)).unwrap_or_default();
                    let logits = [dot(user, &positives[at]) / temperature].into_iter().chain(shared).chain(own);
                    surprise(&logits.collect::<Vec<_>>(), 0)
                };
                users.iter().enumerate().map(of).sum::<f64>() / users.len() as f64
            },
        }
        .run();
    }
}

#[test]
fn columns_are_positive_then_sampled_then_hard() {
    let hard = Hard { users: vec![1, 1], slots: vec![2, 0], slot_count: 3 };
    let [users, positives, negatives, items] =
        [(2, 1), (2, 2), (1, 3), (2, 4)].map(|(rows, seed)| tensor(&[rows, WIDTH], &random(rows * WIDTH, seed)));
    let outputs = Check {
        inputs: vec![
            ("users", users.clone()),
            ("users.positives", positives.clone()),
            ("negatives", negatives.clone()),
            ("hard", items.clone()),
            ("hard.users", HostTensor::vector(&hard.users)),
            ("hard.slots", HostTensor::vector(&hard.slots)),
        ],
        wanted: &[],
        trace: &|scope: &Scope, given: &Inputs<'_>| {
            let hard = hard.traced(given, false);
            let [users, positives, negatives] = ["users", "users.positives", "negatives"].map(|name| &given[name]);
            MatchLogits::sampled(users, positives, negatives, Some(&hard), 0.5).columns(scope)
        },
        reference: &|_: &Values<'_>| 0.0,
    }
    .outputs();
    let [users, positives, negatives, items] = [users, positives, negatives, items].map(|x| rows(&x.to_f64(), false));
    let columns = outputs["loss"].to_f64();
    for (at, row) in columns.chunks(5).enumerate() {
        let similarity = |item: &[f64]| dot(&users[at], item) / 0.5;
        let own = hard.row(at, &users[at], &items, 0.5);
        let expected = [&[similarity(&positives[at]), similarity(&negatives[0])], &own[..]].concat();
        row.iter().zip(&expected).for_each(|(actual, expected)| assert_near("a column", *actual, *expected));
    }
    assert_eq!(outputs["loss"].shape(), [2, 5]);
}

#[test]
fn items_that_went_through_a_tower_together_are_parted() {
    let counts = [3, 0, 2, 4];
    let x = random(9 * WIDTH, 6);
    let weights = random(9 * WIDTH, 7);
    Check {
        inputs: vec![
            ("x", tensor(&[9, WIDTH], &x)),
            ("a", tensor(&[3, WIDTH], &weights[..3 * WIDTH])),
            ("b", tensor(&[0, WIDTH], &[])),
            ("c", tensor(&[2, WIDTH], &weights[3 * WIDTH..5 * WIDTH])),
            ("d", tensor(&[4, WIDTH], &weights[5 * WIDTH..])),
        ],
        wanted: &["x"],
        trace: &|scope: &Scope, given: &Inputs<'_>| {
            let others = ["a", "b", "c", "d"].map(|name| &given[name]);
            let parts = loss::split_rows(scope, &given["x"], &others.map(|other| other.dim(0)));
            assert_eq!(parts.len(), counts.len());
            let dots = parts.iter().zip(others).map(|(part, other)| (part * other).sum(1).sum(0).reshape(()));
            dots.reduce(|a, b| a + b).unwrap()
        },
        reference: &|values: &Values<'_>| dot(&values["x"], &weights),
    }
    .run();
}

#[test]
fn similarities_may_be_large_and_rows_short() {
    // Exponentials of these are beyond f32.
    let users = [300.0, 0.0, 0.0, 0.0, 0.0, 0.0, 400.0, 0.0, 0.0, 0.0];
    let zeros = [0.0; 2 * WIDTH];
    for (users, cosine, expected) in [(&users, false, 0.0), (&zeros, true, 2f64.ln())] {
        let outputs = Check {
            inputs: vec![("users", tensor(&[2, WIDTH], users)), ("users.items", tensor(&[2, WIDTH], users))],
            wanted: &["users", "users.items"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let [users, items] = ["users", "users.items"].map(|name| traced(&given[name], cosine));
                loss::mean(scope, &MatchLogits::in_batch(&users, &items, 0.1).cross_entropy(), None)
            },
            reference: &|_: &Values<'_>| 0.0,
        }
        .outputs();
        assert_near("the loss", outputs["loss"].to_f64()[0], expected);
        assert!(outputs.values().all(|tensor| tensor.first_non_finite().is_none()), "{outputs:?}");
    }
}
