use crate::check::{Check, Inputs, Values, assert_near, random, tensor};
use rewire_graph::Scope;
use rewire_losses as loss;

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn cross_entropy(x: f64, y: f64) -> f64 {
    x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Logits of all sizes, 0 among them, with labels between.
fn examples(len: usize, seed: u64) -> [Vec<f64>; 2] {
    let logits = random(len, seed).into_iter().enumerate();
    let logits = logits.map(|(at, x)| if at % 5 == 2 { 0.0 } else { f64::from((x * [0.5, 4.0, 20.0][at % 3]) as f32) });
    [logits.collect(), (0..len).map(|at| [1.0, 0.0, 0.0, 0.75, 0.0, 1.0, 0.125][at % 7]).collect()]
}

#[test]
fn cross_entropy_of_logits() {
    for len in [1, 2, 37] {
        let [logits, labels] = examples(len, len as u64);
        Check {
            inputs: vec![("x", tensor(&[len], &logits)), ("x.y", tensor(&[len], &labels))],
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                loss::mean(scope, &loss::binary_cross_entropy(&given["x"], &given["x.y"]), None)
            },
            reference: &|values: &Values<'_>| {
                let losses = values["x"].iter().zip(&values["x.y"]).map(|(&x, &y)| cross_entropy(x, y));
                losses.sum::<f64>() / values["x"].len() as f64
            },
        }
        .run();
    }
}

#[test]
fn no_logit_is_too_large_and_small_losses_keep_their_digits() {
    let (logits, labels) = ([1e4, -1e4, 1e4, -1e4, 30.0, -30.0], [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    let outputs = |at: usize| {
        Check {
            inputs: vec![("x", tensor(&[1], &logits[at..=at])), ("x.y", tensor(&[1], &labels[at..=at]))],
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                loss::mean(scope, &loss::binary_cross_entropy(&given["x"], &given["x.y"]), None)
            },
            reference: &|_: &Values<'_>| 0.0,
        }
        .outputs()
    };
    for at in 0..logits.len() {
        let outputs = outputs(at);
        let (loss, gradient) = (outputs["loss"].to_f64()[0], outputs["grad.x"].to_f64()[0]);
        let expected = [0.0, 0.0, 1e4, 1e4, softplus(-30.0), softplus(-30.0)][at];
        assert!((loss - expected).abs() <= 1e-6 * expected, "{at}: {loss}");
        assert!((gradient - (sigmoid(logits[at]) - labels[at])).abs() < 1e-6, "{at}: {gradient}");
    }
}

#[test]
fn weights_of_examples() {
    let [logits, labels] = examples(11, 5);
    for (rows, weights) in [(11, random(11, 9).into_iter().map(f64::abs).collect()), (11, vec![0.0; 11])] {
        let weights: Vec<f64> = weights;
        let total: f64 = weights.iter().sum();
        Check {
            inputs: vec![
                ("x", tensor(&[rows], &logits)),
                ("x.y", tensor(&[rows], &labels)),
                ("x.weights", tensor(&[rows], &weights)),
            ],
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                let losses = loss::binary_cross_entropy(&given["x"], &given["x.y"]);
                loss::mean(scope, &losses, Some(&given["x.weights"]))
            },
            reference: &|values: &Values<'_>| {
                let losses = values["x"].iter().zip(&values["x.y"]).map(|(&x, &y)| cross_entropy(x, y));
                let weighted: f64 = losses.zip(&weights).map(|(loss, weight)| loss * weight).sum();
                if total == 0.0 { 0.0 } else { weighted / total }
            },
        }
        .run();
    }
}

#[test]
fn a_mean_by_task_and_one_of_nothing() {
    let (rows, tasks) = (5, 3);
    let x = random(rows * tasks, 2);
    let weights = [0.5, 2.0, 0.0, 1.0, 0.25];
    for weighted in [false, true] {
        for rows in [rows, 0] {
            let outputs = Check {
                inputs: vec![
                    ("x", tensor(&[rows, tasks], &x[..rows * tasks])),
                    ("x.weights", tensor(&[rows], &weights[..rows])),
                ],
                wanted: &["x"],
                trace: &|scope: &Scope, given: &Inputs<'_>| {
                    let weights = weighted.then(|| &given["x.weights"]);
                    loss::mean(scope, &given["x"], weights)
                },
                reference: &|_: &Values<'_>| 0.0,
            }
            .outputs();
            assert_eq!(outputs["loss"].shape(), [tasks]);
            for (task, mean) in outputs["loss"].to_f64().into_iter().enumerate() {
                let weight = |row: usize| if weighted { weights[row] } else { 1.0 };
                let sum: f64 = (0..rows).map(|row| weight(row) * x[row * tasks + task]).sum();
                let total: f64 = (0..rows).map(weight).sum();
                assert_near("a mean", mean, if rows == 0 { 0.0 } else { sum / total });
            }
        }
    }
}

#[test]
fn focal_loss_has_a_fixed_weight() {
    for (gamma, alpha) in [(2.0, 0.5), (0.0, 0.25), (1.5, 0.75)] {
        let [logits, labels] = examples(19, 7);
        let labels: Vec<f64> = labels.into_iter().map(f64::round).collect();
        let weights: Vec<f64> = logits.iter().zip(&labels).map(|(&x, &y)| focal_weight(x, y, gamma, alpha)).collect();
        Check {
            inputs: vec![("x", tensor(&[19], &logits)), ("x.y", tensor(&[19], &labels))],
            wanted: &["x"],
            trace: &|scope: &Scope, given: &Inputs<'_>| {
                loss::mean(scope, &loss::binary_focal(&given["x"], &given["x.y"], gamma, alpha), None)
            },
            reference: &|values: &Values<'_>| {
                let losses = values["x"].iter().zip(&values["x.y"]).map(|(&x, &y)| cross_entropy(x, y));
                losses.zip(&weights).map(|(loss, weight)| loss * weight).sum::<f64>() / 19.0
            },
        }
        .run();
    }
}

fn focal_weight(x: f64, y: f64, gamma: f64, alpha: f64) -> f64 {
    let p = sigmoid(x);
    alpha * y * (1.0 - p).powf(gamma) + (1.0 - alpha) * (1.0 - y) * p.powf(gamma)
}

#[test]
fn options_of_the_focal_loss_have_bounds() {
    for (gamma, alpha, part) in [(-1.0, 0.5, "gamma"), (2.0, 1.0, "alpha"), (2.0, f64::NAN, "alpha")] {
        let scope = Scope::new();
        let x = scope.input("x", rewire_graph::DType::F32, [3]);
        let loss = loss::binary_focal(&x, &x, gamma, alpha);
        assert!(scope.finish(&[("loss", loss)]).unwrap_err().to_string().contains(part));
    }
}

#[test]
fn squared_errors() {
    let (x, y) = (random(25, 3), random(25, 4));
    Check {
        inputs: vec![("x", tensor(&[25], &x)), ("x.y", tensor(&[25], &y))],
        wanted: &["x"],
        trace: &|scope: &Scope, given: &Inputs<'_>| {
            loss::mean(scope, &loss::squared_error(&given["x"], &given["x.y"]), None)
        },
        reference: &|values: &Values<'_>| {
            values["x"].iter().zip(&values["x.y"]).map(|(x, y)| (x - y).powi(2)).sum::<f64>() / 25.0
        },
    }
    .run();
}
