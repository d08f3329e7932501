use crate::trial::{Trial, table_optimizer};

const WIDTH: usize = 50;

fn trial(config: &str, rows: usize, seed: u64) -> Trial {
    Trial { optimizer: table_optimizer(config).build().unwrap(), shape: vec![rows, WIDTH], steps: 6, seed }
}

/// The clipping limit of elements, and the keys that set it.
const LIMITS: [(f64, &str); 3] = [
    (f64::INFINITY, ""),
    (f64::INFINITY, r#", "gradient_clipping": false, "max_gradient": 0.001"#),
    (0.25, r#", "gradient_clipping": true, "max_gradient": 0.25"#),
];

#[test]
fn sgd() {
    for (seed, (limit, keys)) in (1..).zip(LIMITS) {
        let config = format!(r#"{{ "sgd_optimizer": {{ "lr": 0.1{keys} }} }}"#);
        trial(&config, 3, seed).compare(|w, g, rate, _, _| {
            w.iter_mut().zip(g).for_each(|(w, g)| *w -= rate * g.clamp(-limit, limit));
        });
    }
}

#[test]
fn adagrad_by_element_and_by_row() {
    for (seed, (limit, keys)) in (10..).zip(LIMITS) {
        for (by_row, initial) in [(false, 0.0), (false, 0.2), (true, 0.0), (true, 0.1)] {
            let name = if by_row { "rowwise_adagrad" } else { "adagrad" };
            let config =
                format!(r#"{{ "{name}_optimizer": {{ "lr": 0.1, "initial_accumulator_value": {initial}{keys} }} }}"#);
            trial(&config, 4, seed).compare(|w, g, rate, t, kept| {
                if t == 1 {
                    *kept = vec![vec![initial; w.len()]];
                }
                let squares = squares(g, limit, by_row);
                for i in 0..w.len() {
                    kept[0][i] += squares[i];
                    w[i] -= rate * g[i].clamp(-limit, limit) / (kept[0][i].sqrt() + 1e-8);
                }
            });
        }
    }
}

#[test]
fn adam_by_element_and_by_row() {
    for (seed, (limit, keys)) in (20..).zip(LIMITS) {
        for (by_row, b1, b2, decay) in
            [(false, 0.9, 0.999, 0.0), (true, 0.9, 0.999, 0.0), (false, 0.6, 0.8, 0.2), (true, 0.5, 0.7, 0.1)]
        {
            let name = if by_row { "partial_rowwise_adam" } else { "adam" };
            let config = format!(
                r#"{{ "{name}_optimizer": {{ "lr": 0.1, "beta1": {b1}, "beta2": {b2}, "weight_decay": {decay}{keys} }} }}"#
            );
            trial(&config, 5, seed).compare(|w, g, rate, t, kept| {
                if t == 1 {
                    *kept = vec![vec![0.0; w.len()]; 2];
                }
                let squares = squares(g, limit, by_row);
                for i in 0..w.len() {
                    kept[0][i] = b1 * kept[0][i] + (1.0 - b1) * g[i].clamp(-limit, limit);
                    kept[1][i] = b2 * kept[1][i] + (1.0 - b2) * squares[i];
                    let [m, v] = [kept[0][i] / (1.0 - f64::powi(b1, t)), kept[1][i] / (1.0 - f64::powi(b2, t))];
                    w[i] -= rate * (m / (v.sqrt() + 1e-8) + decay * w[i]);
                }
            });
        }
    }
}

/// Squares of the clipped elements; with `by_row`, each element has the mean of its row.
fn squares(g: &[f64], limit: f64, by_row: bool) -> Vec<f64> {
    let squares: Vec<f64> = g.iter().map(|g| g.clamp(-limit, limit).powi(2)).collect();
    if !by_row {
        return squares;
    }
    let means = squares.chunks(WIDTH).map(|row| row.iter().sum::<f64>() / WIDTH as f64);
    means.flat_map(|mean| [mean; WIDTH]).collect()
}

#[test]
fn steps_that_look_up_nothing_or_one_row() {
    for name in ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"] {
        for rows in [0, 1] {
            let held = trial(&format!(r#"{{ "{name}_optimizer": {{ "lr": 0.1 }} }}"#), rows, 7).run();
            assert_eq!(held["w"].shape(), [rows, WIDTH]);
            assert!(held.values().all(|tensor| tensor.first_non_finite().is_none()));
        }
    }
}

#[test]
fn moments_by_row_are_one_a_row() {
    let held = trial(r#"{ "partial_rowwise_adam_optimizer": { "lr": 0.1 } }"#, 3, 8).run();
    assert_eq!(held["moment.exp_avg"].shape(), [3, WIDTH]);
    assert_eq!(held["moment.exp_avg_sq"].shape(), [3]);
}
