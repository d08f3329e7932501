//! Compares learning rates with the reference's numbers and with their definitions.
#![allow(clippy::unwrap_used)]

use rewire_train::Schedule;

fn schedule(config: &str) -> Schedule {
    serde_json::from_str(config).unwrap()
}

fn rates(config: &str, base: f64, steps: u64) -> Vec<f64> {
    let schedule = schedule(config);
    (0..steps).map(|step| schedule.rate(base, step)).collect()
}

fn assert_near(actual: &[f64], expected: &[f64]) {
    assert_within(1e-12, actual, expected);
}

fn assert_within(most: f64, actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (step, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!((actual - expected).abs() <= most, "step {step}: expected {expected}, got {actual}");
    }
}

#[test]
fn constant() {
    assert_eq!(rates(r#"{ "constant_learning_rate": {} }"#, 0.002, 3), [0.002; 3]);
}

#[test]
fn exponential_decay_of_a_run_of_the_reference() {
    let config = r#"{ "exponential_decay_learning_rate": { "decay_size": 5, "decay_factor": 0.8, "staircase": true,
        "warmup_learning_rate": 0.0005, "warmup_size": 6, "min_learning_rate": 0.0008 } }"#;
    let expected = [
        0.0005,
        0.0009166667,
        0.0013333333,
        0.00175,
        0.0021666667,
        0.0025833333,
        0.003,
        0.003,
        0.003,
        0.003,
        0.003,
        0.0024,
        0.0024,
        0.0024,
        0.0024,
        0.0024,
        0.00192,
        0.00192,
        0.00192,
        0.00192,
        0.00192,
        0.001536,
        0.001536,
        0.001536,
    ];
    // The reference writes ten digits after the point.
    assert_within(5.1e-11, &rates(config, 0.003, expected.len() as u64), &expected);
}

#[test]
fn exponential_decay_without_stairs() {
    let config =
        r#"{ "exponential_decay_learning_rate": { "decay_size": 4, "decay_factor": 0.5, "staircase": false } }"#;
    let expected: Vec<f64> = (0..9).map(|s| 0.3 * 0.5f64.powf(f64::from(s) / 4.0)).collect();
    assert_near(&rates(config, 0.3, 9), &expected);
    let stairs = r#"{ "exponential_decay_learning_rate": { "decay_size": 2 } }"#;
    assert_near(&rates(stairs, 1.0, 5), &[1.0, 1.0, 0.95, 0.95, 0.9025]);
}

#[test]
fn manual_steps() {
    let config = r#"{ "manual_step_learning_rate": { "schedule_sizes": [2, 4], "learning_rates": [0.5, 0.1] } }"#;
    assert_eq!(rates(config, 1.0, 7), [1.0, 1.0, 1.0, 0.5, 0.5, 0.1, 0.1]);
    let warm = r#"{ "manual_step_learning_rate":
        { "schedule_sizes": [4, 6], "learning_rates": [3.0, 0.5], "warmup": true } }"#;
    assert_near(&rates(warm, 1.0, 9), &[1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0, 0.5, 0.5]);
    assert_eq!(
        rates(r#"{ "manual_step_learning_rate": { "schedule_sizes": [], "learning_rates": [] } }"#, 1.0, 2),
        [1.0; 2]
    );
}

#[test]
fn cosine_annealing() {
    let config = r#"{ "cosine_annealing_learning_rate":
        { "T_max": 4, "min_learning_rate": 0.2, "warmup_size": 2, "warmup_learning_rate": 0.5 } }"#;
    let half = 0.5f64.sqrt();
    let down = [1.0, 0.2 + 0.4 * (1.0 + half), 0.6, 0.2 + 0.4 * (1.0 - half), 0.2, 0.2, 0.2];
    assert_near(&rates(config, 1.0, 9), &[&[0.5, 0.75], &down[..]].concat());
}

#[test]
fn cosine_annealing_with_restarts() {
    let equal = r#"{ "cosine_annealing_warm_restarts_learning_rate": { "T_0": 2 } }"#;
    assert_near(&rates(equal, 1.0, 6), &[1.0, 0.5, 1.0, 0.5, 1.0, 0.5]);
    let growing = r#"{ "cosine_annealing_warm_restarts_learning_rate":
        { "T_0": 2, "T_mult": 2, "min_learning_rate": 0.5, "warmup_size": 1 } }"#;
    let half = 0.5f64.sqrt();
    let period = |x: f64| 0.5 + 0.25 * (1.0 + x);
    // A warm-up, periods of 2 and 4, and the start of one of 8.
    let expected =
        [0.0, 1.0, 0.75, 1.0, period(half), 0.75, period(-half), 1.0, period((std::f64::consts::PI / 8.0).cos())];
    assert_near(&rates(growing, 1.0, 9), &expected);
}

#[test]
fn steps_far_away_have_rates() {
    for config in [
        r#"{ "exponential_decay_learning_rate": { "decay_size": 1 } }"#,
        r#"{ "cosine_annealing_learning_rate": { "T_max": 3 } }"#,
        r#"{ "cosine_annealing_warm_restarts_learning_rate": { "T_0": 3, "T_mult": 7 } }"#,
        r#"{ "cosine_annealing_warm_restarts_learning_rate": { "T_0": 3 } }"#,
    ] {
        let rate = schedule(config).rate(0.1, u64::MAX);
        assert!((0.0..=0.1).contains(&rate), "{config}: {rate}");
    }
}
