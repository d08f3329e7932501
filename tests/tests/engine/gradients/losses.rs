//! Losses and their gradients on every kernel, against the interpreter.

use rewire_graph::{DType, HostTensor, Scope, Seed, Tensor, differentiate};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, run, session};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use rewire_train::loss::{self, HardNegatives, MatchLogits};

const F32: DType = DType::F32;
const WIDTH: usize = 25;

/// A loss, and the inputs whose gradients it has.
struct Objective {
    loss: Tensor,
    wanted: &'static [&'static str],
}

fn binary(scope: &Scope) -> Objective {
    let candidates = scope.size("candidates");
    let [logits, labels] = ["logits", "labels"].map(|name| scope.input(name, F32, (&candidates, 3)));
    let weights = scope.input("weights", F32, [candidates]);
    let plain = loss::mean(scope, &loss::binary_cross_entropy(&logits, &labels), None);
    let weighted = loss::mean(scope, &loss::binary_cross_entropy(&logits, &labels), Some(&weights));
    let focal = loss::mean(scope, &loss::binary_focal(&logits, &labels, 2.0, 0.25), None);
    let squared = loss::mean(scope, &loss::squared_error(&logits, &labels), Some(&weights));
    let loss = (plain * 0.5 + weighted + focal * 2.0 + squared).sum(0).reshape(());
    Objective { loss, wanted: &["logits"] }
}

fn classes(scope: &Scope) -> Objective {
    let candidates = scope.size("candidates");
    let logits = scope.input("logits", F32, (&candidates, 3));
    let [classes, clicks] = ["classes", "clicks"].map(|name| scope.input(name, DType::I64, [&candidates]));
    let sessions = scope.input("sessions", DType::U32, [&candidates]);
    let softmax = loss::cross_entropy(scope, &logits, &classes, 0.1);
    let ranking = loss::joint_ranking_calibration(scope, &logits.slice(1, 1, 2), &clicks, &sessions, 0.25);
    let loss = loss::mean(scope, &softmax, None) + loss::mean(scope, &ranking, None) * 2.0;
    Objective { loss, wanted: &["logits"] }
}

fn in_batch(scope: &Scope) -> Objective {
    let users = scope.size("candidates");
    let [users, items] = ["users", "items"].map(|name| loss::unit_rows(&scope.input(name, F32, (&users, WIDTH))));
    let loss = loss::mean(scope, &MatchLogits::in_batch(&users, &items, 0.1).cross_entropy(), None);
    Objective { loss, wanted: &["users", "items"] }
}

fn sampled(scope: &Scope) -> Objective {
    let [users, negatives, hard] = ["candidates", "negatives", "hard"].map(|name| scope.size(name));
    let items = users.clone() + negatives.clone() + hard.clone();
    let items = loss::unit_rows(&scope.input("items", F32, (items, WIDTH)));
    let parts = loss::split_rows(scope, &items, &[users.clone(), negatives.clone(), hard.clone()]);
    // Sizes are extents of inputs.
    let samples = scope.input("samples", F32, [negatives]);
    let [hard_users, slots] = ["hard users", "hard slots"].map(|name| scope.input(name, DType::I32, [&hard]));
    let hard = HardNegatives { items: parts[2].clone(), users: hard_users, slots, slot_count: 3 };
    let users = loss::unit_rows(&scope.input("users", F32, (&users, WIDTH)));
    let logits = MatchLogits::sampled(&users, &parts[0], &parts[1], Some(&hard), 0.2);
    let loss = loss::mean(scope, &logits.cross_entropy(), None) + samples.sum(0).reshape(()) * 0.0;
    Objective { loss, wanted: &["users", "items"] }
}

/// Inputs for a number of candidates, or users.
fn inputs(rows: usize) -> Tensors {
    let floats = |name: &str, shape: &[usize]| Noise::new(rows as u64, name).floats(F32, shape, 2.0);
    let shares = |name: &str, shape: &[usize]| {
        let values: Vec<f64> = floats(name, shape).to_f64().into_iter().map(|x| f64::from(u8::from(x > 0.9))).collect();
        HostTensor::from_f64(F32, shape.to_vec(), &values).unwrap()
    };
    let (negatives, hard) = (rows / 2 + 1, rows + rows / 3);
    // Three slots a user.
    let places: Vec<usize> = (0..hard).map(|at| (at * 2) % (3 * rows)).collect();
    let of =
        |value: fn(usize) -> usize| HostTensor::vector(&places.iter().map(|&x| value(x) as i32).collect::<Vec<_>>());
    let classes: Vec<i64> = (0..rows as i64).map(|row| row * 7 % 3).collect();
    let clicks: Vec<i64> = (0..rows as i64).map(|row| i64::from(row * 5 % 7 > 3)).collect();
    let sessions: Vec<u32> = (0..rows as u32).map(|row| row * row % 5).collect();
    [
        ("classes", HostTensor::vector(&classes)),
        ("clicks", HostTensor::vector(&clicks)),
        ("sessions", HostTensor::vector(&sessions)),
        ("logits", floats("logits", &[rows, 3])),
        ("labels", shares("labels", &[rows, 3])),
        ("weights", shares("weights", &[rows])),
        ("users", floats("users", &[rows, WIDTH])),
        ("samples", floats("samples", &[negatives])),
        ("hard users", of(|place| place / 3)),
        ("hard slots", of(|place| place % 3)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into()
}

fn hold(trace: fn(&Scope) -> Objective, items: impl Fn(usize) -> usize, rows: &[usize]) {
    let scope = Scope::new();
    let Objective { loss, wanted } = trace(&scope);
    let graph = scope.finish(&[("loss", loss)]).unwrap();
    let graph = differentiate(&graph, &[("loss", Seed::One)], wanted).unwrap();
    for &rows in rows {
        let mut given = inputs(rows);
        given.insert("items".to_owned(), Noise::new(7, "items").floats(F32, &[items(rows), WIDTH], 2.0));
        given.retain(|name, _| graph.ids().any(|id| graph.role(id).and_then(|role| role.name()) == Some(name)));
        let expected = oracle(&graph, &given, &Tensors::new()).unwrap();
        assert!(expected.values().all(|tensor| tensor.first_non_finite().is_none()));
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = session(&graph, &Tensors::new(), kernel).unwrap() else { continue };
            let found = differences(&run(&mut session, &given).unwrap(), &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{rows} rows, {kernel}: {found:?}");
        }
    }
}

#[test]
fn of_candidates() {
    hold(binary, |rows| rows, &[0, 1, 37, 300]);
}

#[test]
fn of_classes_and_sessions() {
    hold(classes, |rows| rows, &[0, 1, 37, 300]);
}

#[test]
fn with_items_of_other_users() {
    hold(in_batch, |rows| rows, &[1, 5, 33]);
}

#[test]
fn with_sampled_and_hard_negatives() {
    hold(sampled, |rows| rows + (rows / 2 + 1) + (rows + rows / 3), &[1, 4, 31]);
}
