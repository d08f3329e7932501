use crate::trial::{Trial, dense_optimizer};

fn trial(config: &str, seed: u64) -> Trial {
    Trial { optimizer: dense_optimizer(config).build().unwrap(), shape: vec![3, 25], steps: 7, seed }
}

#[test]
fn sgd() {
    for (seed, (momentum, dampening, nesterov, decay)) in (1..).zip([
        (0.0, 0.0, false, 0.0),
        (0.0, 0.3, false, 0.2),
        (0.9, 0.0, false, 0.0),
        (0.8, 0.4, false, 0.1),
        (0.7, -0.5, false, 0.0),
        (0.6, 0.0, true, 0.05),
    ]) {
        let config = format!(
            r#"{{ "sgd_optimizer": {{ "lr": 0.1, "momentum": {momentum}, "dampening": {dampening}, "nesterov": {nesterov},
                "weight_decay": {decay} }} }}"#
        );
        trial(&config, seed).compare(|w, g, rate, t, kept| {
            if t == 1 {
                *kept = vec![vec![0.0; w.len()]];
            }
            for i in 0..w.len() {
                let mut g = g[i] + decay * w[i];
                if momentum != 0.0 {
                    let b = &mut kept[0][i];
                    *b = if t == 1 { g } else { momentum * *b + (1.0 - dampening) * g };
                    g = if nesterov { g + momentum * *b } else { *b };
                }
                w[i] -= rate * g;
            }
        });
    }
}

#[test]
fn adagrad() {
    for (seed, (initial, eps, decay)) in (10..).zip([(0.0, 1e-10, 0.0), (0.1, 1e-3, 0.2)]) {
        let config = format!(
            r#"{{ "adagrad_optimizer": {{ "lr": 0.1, "initial_accumulator_value": {initial}, "eps": {eps},
                "weight_decay": {decay} }} }}"#
        );
        trial(&config, seed).compare(|w, g, rate, t, kept| {
            if t == 1 {
                *kept = vec![vec![initial; w.len()]];
            }
            for i in 0..w.len() {
                let g = g[i] + decay * w[i];
                kept[0][i] += g * g;
                w[i] -= rate * g / (kept[0][i].sqrt() + eps);
            }
        });
    }
}

#[test]
fn adam_and_adamw() {
    for (seed, (b1, b2, eps, decay)) in
        (20..).zip([(0.9, 0.999, 1e-8, 0.0), (0.5, 0.9, 1e-2, 0.3), (0.0, 0.99, 1e-8, 0.0), (0.9, 0.0, 1e-4, 0.1)])
    {
        for decoupled in [false, true] {
            let name = if decoupled { "adamw" } else { "adam" };
            let config = format!(
                r#"{{ "{name}_optimizer": {{ "lr": 0.1, "beta1": {b1}, "beta2": {b2}, "eps": {eps},
                    "weight_decay": {decay} }} }}"#
            );
            trial(&config, seed).compare(|w, g, rate, t, kept| {
                if t == 1 {
                    *kept = vec![vec![0.0; w.len()]; 2];
                }
                for i in 0..w.len() {
                    let mut g = g[i];
                    if decoupled {
                        w[i] *= 1.0 - rate * decay;
                    } else {
                        g += decay * w[i];
                    }
                    kept[0][i] = b1 * kept[0][i] + (1.0 - b1) * g;
                    kept[1][i] = b2 * kept[1][i] + (1.0 - b2) * g * g;
                    let corrected = (kept[1][i] / (1.0 - f64::powi(b2, t))).sqrt();
                    w[i] -= rate * (kept[0][i] / (1.0 - f64::powi(b1, t))) / (corrected + eps);
                }
            });
        }
    }
}

#[test]
fn adadelta() {
    for (seed, (rho, eps, decay)) in (30..).zip([(0.9, 1e-6, 0.0), (0.6, 1e-2, 0.25)]) {
        let config = format!(
            r#"{{ "adadelta_optimizer": {{ "lr": 1.0, "rho": {rho}, "eps": {eps}, "weight_decay": {decay} }} }}"#
        );
        trial(&config, seed).compare(|w, g, rate, t, kept| {
            if t == 1 {
                *kept = vec![vec![0.0; w.len()]; 2];
            }
            for i in 0..w.len() {
                let g = g[i] + decay * w[i];
                kept[0][i] = rho * kept[0][i] + (1.0 - rho) * g * g;
                let delta = (kept[1][i] + eps).sqrt() / (kept[0][i] + eps).sqrt() * g;
                kept[1][i] = rho * kept[1][i] + (1.0 - rho) * delta * delta;
                w[i] -= rate * delta;
            }
        });
    }
}

#[test]
fn rmsprop() {
    for (seed, (alpha, eps, momentum, centered, decay)) in (40..).zip([
        (0.99, 1e-8, 0.0, false, 0.0),
        (0.9, 1e-2, 0.7, false, 0.2),
        (0.8, 1e-3, 0.0, true, 0.0),
        (0.7, 1e-3, 0.5, true, 0.1),
    ]) {
        let config = format!(
            r#"{{ "rmsprop_optimizer": {{ "lr": 0.1, "alpha": {alpha}, "eps": {eps}, "momentum": {momentum},
                "centered": {centered}, "weight_decay": {decay} }} }}"#
        );
        trial(&config, seed).compare(|w, g, rate, t, kept| {
            if t == 1 {
                *kept = vec![vec![0.0; w.len()]; 3];
            }
            for i in 0..w.len() {
                let g = g[i] + decay * w[i];
                kept[0][i] = alpha * kept[0][i] + (1.0 - alpha) * g * g;
                kept[1][i] = alpha * kept[1][i] + (1.0 - alpha) * g;
                let mean = if centered { kept[1][i] } else { 0.0 };
                let scaled = g / ((kept[0][i] - mean * mean).sqrt() + eps);
                kept[2][i] = momentum * kept[2][i] + scaled;
                w[i] -= rate * kept[2][i];
            }
        });
    }
}

#[test]
fn defaults_are_those_of_torch() {
    for (short, long) in [
        (
            r#"{ "sgd_optimizer": { "lr": 0.1 } }"#,
            r#"{ "sgd_optimizer": { "lr": 0.1, "momentum": 0, "dampening": 0, "nesterov": false, "weight_decay": 0 } }"#,
        ),
        (
            r#"{ "adagrad_optimizer": { "lr": 0.1 } }"#,
            r#"{ "adagrad_optimizer": { "lr": 0.1, "initial_accumulator_value": 0, "eps": 1e-10, "weight_decay": 0 } }"#,
        ),
        (
            r#"{ "adam_optimizer": { "lr": 0.1 } }"#,
            r#"{ "adam_optimizer": { "lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0 } }"#,
        ),
        (
            r#"{ "adamw_optimizer": { "lr": 0.1 } }"#,
            r#"{ "adamw_optimizer": { "lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01 } }"#,
        ),
        (
            r#"{ "adadelta_optimizer": { "lr": 0.1 } }"#,
            r#"{ "adadelta_optimizer": { "lr": 0.1, "rho": 0.9, "eps": 1e-6, "weight_decay": 0 } }"#,
        ),
        (
            r#"{ "rmsprop_optimizer": { "lr": 0.1 } }"#,
            r#"{ "rmsprop_optimizer": { "lr": 0.1, "alpha": 0.99, "eps": 1e-8, "momentum": 0, "centered": false, "weight_decay": 0 } }"#,
        ),
    ] {
        assert_eq!(dense_optimizer(short), dense_optimizer(long));
    }
}
