use crate::check::{Check, Inputs, Values, random, tensor};
use rewire_graph::{DType, HostTensor, Scope, Tensor};
use rewire_losses as loss;

/// The negative logarithm of the share of one among exponentials.
fn surprise(logits: &[f64], label: usize) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - largest).exp()).sum();
    sum.ln() + largest - logits[label]
}

fn classes(len: usize, count: i64) -> HostTensor {
    HostTensor::vector(&(0..len as i64).map(|at| at * 5 % 7 % count).collect::<Vec<i64>>())
}

#[test]
fn smoothed_labels_spread_over_all_classes() {
    for (len, count, smoothing) in [(1, 2, 0.0), (9, 3, 0.1), (13, 5, 0.4)] {
        let logits = tensor(&[len, count], &random(len * count, len as u64));
        Check {
            inputs: vec![("x", logits), ("x.y", classes(len, count as i64))],
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let losses = loss::cross_entropy(scope, &given["x"], &given["x.y"], smoothing);
                loss::mean(scope, &losses, None)
            },
            reference: &|values: &Values<'_>| {
                let rows = values["x"].chunks(count).zip(&values["x.y"]);
                let losses = rows.map(|(row, label)| {
                    let of = |class: usize| surprise(row, class);
                    let all: f64 = (0..count).map(of).sum();
                    (1.0 - smoothing) * of(*label as usize) + smoothing / count as f64 * all
                });
                losses.sum::<f64>() / len as f64
            },
        }
        .run();
    }
}

#[test]
fn binary_labels_move_towards_one_half() {
    Check {
        inputs: vec![("x", tensor(&[4], &random(4, 3))), ("x.y", tensor(&[4], &[1.0, 0.0, 1.0, 0.0]))],
        wanted: &["x"],
        trace: &|scope: &Scope, given: &Inputs<'_>| {
            let labels = loss::smooth_labels(&given["x.y"], 0.2);
            loss::mean(scope, &loss::binary_cross_entropy(&given["x"], &labels), None)
        },
        reference: &|values: &Values<'_>| {
            let of = |(x, y): (&f64, &f64)| {
                let y = if *y == 1.0 { 0.9 } else { 0.1 };
                x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
            };
            values["x"].iter().zip(&values["x.y"]).map(of).sum::<f64>() / 4.0
        },
    }
    .run();
}

/// Ranks every example among those of the other class in its session; the largest logit of all is in another session.
#[test]
fn examples_compete_with_the_other_class_of_their_session() {
    const LEN: usize = 11;
    let mut logits = random(2 * LEN, 8);
    logits[20] = 90.0;
    logits[21] = 80.0;
    let sessions: Vec<u32> = vec![3, 1, 3, 3, 1, 3, 7, 1, 3, 3, 9];
    let inputs =
        vec![("x", tensor(&[LEN, 2], &logits)), ("x.y", classes(LEN, 2)), ("x.session", HostTensor::vector(&sessions))];
    for alpha in [0.0, 0.3, 1.0] {
        Check {
            inputs: inputs.clone(),
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let [x, y, session] = ["x", "x.y", "x.session"].map(|name| &given[name] as &Tensor);
                loss::mean(scope, &loss::joint_ranking_calibration(scope, x, y, session, alpha), None)
            },
            reference: &|values: &Values<'_>| {
                let (x, y, session) = (&values["x"], &values["x.y"], &values["x.session"]);
                let of = |i: usize| {
                    let class = y[i] as usize;
                    let others = (0..LEN).filter(|&j| session[j] == session[i] && y[j] != y[i]);
                    let competing: Vec<f64> = std::iter::once(i).chain(others).map(|j| x[2 * j + class]).collect();
                    alpha * surprise(&x[2 * i..2 * i + 2], class) + (1.0 - alpha) * surprise(&competing, 0)
                };
                (0..LEN).map(of).sum::<f64>() / LEN as f64
            },
        }
        .run();
    }
}

#[test]
fn wrong_operands_are_errors() {
    let error = |trace: &dyn Fn(&Scope, &Tensor, &Tensor) -> Tensor| {
        let scope = Scope::new();
        let rows = scope.size("rows");
        let [x, y] = [(DType::F32, 3), (DType::I64, 1)]
            .map(|(dtype, width)| scope.input(if width == 3 { "x" } else { "y" }, dtype, (&rows, width)));
        let y = y.reshape([rows]);
        let out = trace(&scope, &x, &y);
        scope.finish(&[("loss", out)]).unwrap_err().to_string()
    };
    let jrc = error(&|scope, x, y| loss::joint_ranking_calibration(scope, x, y, y, 0.5));
    assert!(jrc.contains("joint_ranking_calibration") && jrc.contains("logits"), "{jrc}");
    let smoothing = error(&|scope, x, y| loss::cross_entropy(scope, x, y, 1.5));
    assert!(smoothing.contains("smoothing") && smoothing.contains("1.5"), "{smoothing}");
}
