//! Metrics by the messages of configurations, against their definitions by loops.
#![allow(clippy::unwrap_used)]

use rewire_metrics::{Batch, BinnedAuc, MetricConfig, Read, xauc};
use serde_json::{Value, json};

fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len).map(|_| next()).collect()
}

/// The value after two batches of equal size.
fn value(message: &Value, classes: usize, predictions: &[f32], labels: &[f64], groups: &[u32]) -> Option<f64> {
    let mut metric = MetricConfig::parse(message).unwrap().metric(classes);
    let [half, scores] = [labels.len() / 2, predictions.len() / 2];
    let groups = |from: usize, to: usize| groups.get(from..to).unwrap_or_default();
    metric.add(&Batch { predictions: &predictions[..scores], labels: &labels[..half], groups: groups(0, half) });
    let rest = groups(half, labels.len());
    metric.add(&Batch { predictions: &predictions[scores..], labels: &labels[half..], groups: rest });
    metric.value()
}

/// The area by the definition: points of thresholds from 1 to 0, and straight lines between them.
fn area(examples: &[(f32, bool)], thresholds: usize) -> f64 {
    let share = |label: bool, threshold: f64| {
        let own = examples.iter().filter(|example| example.1 == label);
        let reaching = own.clone().filter(|example| f64::from(example.0) >= threshold).count();
        reaching as f64 / own.count() as f64
    };
    let steps = (thresholds - 1) as f64;
    let points: Vec<(f64, f64)> = (0..thresholds)
        .rev()
        .map(|at| f64::from((at as f64 / steps) as f32))
        .map(|threshold| (share(false, threshold), share(true, threshold)))
        .collect();
    points.windows(2).map(|ends| (ends[1].0 - ends[0].0) * (ends[0].1 + ends[1].1) / 2.0).sum()
}

#[test]
fn areas_lie_between_the_points_of_thresholds() {
    for (len, thresholds) in [(7, 2), (40, 5), (300, 200)] {
        let scores = random(len, len as u64);
        let examples: Vec<(f32, bool)> = scores.iter().enumerate().map(|(at, &s)| (s, at % 3 == 1)).collect();
        let mut auc = BinnedAuc::new(thresholds);
        examples.iter().for_each(|&(score, label)| auc.add(score, label));
        assert!((auc.value() - area(&examples, thresholds)).abs() < 1e-12, "{len}, {thresholds}");
    }
    // The first point is that of the threshold 1, which both of these reach.
    let mut auc = BinnedAuc::new(200);
    auc.add(1.0, true);
    auc.add(1.0, false);
    assert_eq!(auc.value(), 0.0);
    auc.add(0.0, true);
    assert_eq!(auc.positives(), 2);
}

#[test]
fn classes_are_averaged_as_the_message_says() {
    let (len, classes) = (30, 4);
    let probabilities = random(len * classes, 5);
    // No example is of the last class, whose area is 0.
    let labels: Vec<f64> = (0..len).map(|at| [0.0, 1.0, 0.0, 2.0, 0.0][at % 5]).collect();
    let of = |class: usize| {
        let examples = (0..len).map(|at| (probabilities[at * classes + class], labels[at] == class as f64));
        area(&examples.collect::<Vec<_>>(), 200)
    };
    let count = |class: usize| labels.iter().filter(|label| **label == class as f64).count() as f64;
    let macro_mean = (0..3).map(of).sum::<f64>() / classes as f64;
    let weighted = (0..3).map(|class| of(class) * count(class)).sum::<f64>() / len as f64;
    for (message, expected) in [(json!({}), macro_mean), (json!({ "average": "weighted" }), weighted)] {
        let actual = value(&json!({ "multiclass_auc": message }), classes, &probabilities, &labels, &[]).unwrap();
        assert!((actual - expected).abs() < 1e-12, "{message}: {actual} {expected}");
    }
}

#[test]
fn classes_among_the_largest_are_right() {
    let accuracy = |message: Value, classes, predictions: &[f32], labels: &[f64]| {
        value(&json!({ "accuracy": message }), classes, predictions, labels, &[])
    };
    let probabilities = [0.5, 0.3, 0.2, 0.1, 0.8, 0.1, 0.4, 0.4, 0.2, 0.2, 0.5, 0.3];
    let labels = [0.0, 2.0, 1.0, 2.0];
    assert_eq!(accuracy(json!({}), 3, &probabilities, &labels), Some(0.25));
    assert_eq!(accuracy(json!({ "top_k": 2 }), 3, &probabilities, &labels), Some(0.75));
    let binary = [0.5, 0.51, 0.2, 0.7];
    assert_eq!(accuracy(json!({}), 1, &binary, &[1.0, 1.0, 0.0, 0.0]), Some(0.5));
    assert_eq!(accuracy(json!({ "threshold": 0.75 }), 1, &binary, &[1.0, 1.0, 0.0, 0.0]), Some(0.5));
    assert_eq!(accuracy(json!({ "threshold": 0.6 }), 1, &binary, &[1.0, 0.0, 0.0, 1.0]), Some(0.75));
}

#[test]
fn own_items_are_recalled_before_equal_ones_that_follow() {
    let recall = |k: usize, labels: &[f64]| {
        let rows = [0.5, 0.5, 0.1, 0.9, 0.2, 0.9, 0.3, 0.4, f32::NAN, 0.7, 0.7, 0.7];
        value(&json!({ "recall_at_k": { "top_k": k } }), 1, &rows, labels, &[])
    };
    assert_eq!((recall(1, &[0.0; 4]), recall(2, &[0.0; 4])), (Some(0.75), Some(1.0)));
    assert_eq!((recall(1, &[1.0, 2.0, 2.0, 2.0]), recall(2, &[1.0, 2.0, 2.0, 2.0])), (Some(0.0), Some(0.5)));
    assert_eq!(value(&json!({ "recall_at_k": {} }), 1, &[0.5, 0.5], &[0.0, 0.0], &[]), Some(1.0));
}

#[test]
fn pairs_are_counted_or_drawn() {
    let predictions = random(60, 2);
    let labels: Vec<f64> = random(60, 3).into_iter().map(|label| f64::from((label * 5.0).floor())).collect();
    let examples: Vec<(f32, f64)> = predictions.iter().copied().zip(labels.iter().copied()).collect();
    let exact = |examples: &[(f32, f64)]| {
        let ordered = |a: &(f32, f64), b: &(f32, f64)| (a.0 < b.0 && a.1 < b.1) || (a.0 > b.0 && a.1 > b.1);
        let all = (0..examples.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let (right, count) = all.fold((0, 0), |(right, count), (i, j)| {
            (right + usize::from(ordered(&examples[i], &examples[j])), count + 1)
        });
        right as f64 / f64::from(count)
    };
    let of = |message: Value| value(&json!({ "xauc": message }), 1, &predictions, &labels, &[]).unwrap();
    assert_eq!(of(json!({ "sample_ratio": 1.0 })), exact(&examples));
    let mean = (exact(&examples[..30]) + exact(&examples[30..])) / 2.0;
    assert!((of(json!({ "in_batch": true })) - mean).abs() < 1e-12);
    // Three standard deviations of a share of 1500 pairs; the same pairs are drawn again.
    let drawn = of(json!({ "max_pairs": 1500 }));
    assert!((drawn - exact(&examples)).abs() < 0.04 && drawn == of(json!({ "max_pairs": 1500 })));
    assert_eq!((xauc(&examples[..1], 5), xauc(&[], 5), xauc(&examples, 0)), (None, None, None));

    let groups: Vec<u32> = (0..60).map(|at| [4, 4, 9, 4, 2][at % 5] * u32::from(at < 59)).collect();
    let grouped = json!({ "grouped_xauc": { "grouping_key": "user" } });
    let own = |group: u32| {
        let own = examples.iter().zip(&groups).filter(|(_, own)| **own == group);
        own.map(|(example, _)| *example).collect::<Vec<_>>()
    };
    // The groups of 9 and 2 have fewer than 100 pairs, that of 4 has more; the group of one example counts nowhere.
    let value = value(&grouped, 1, &predictions, &labels, &groups).unwrap();
    let parts = [2, 4, 9].map(|group| (xauc(&own(group), 100).unwrap(), own(group).len() as f64));
    assert_eq!(parts[0].0, exact(&own(2)));
    let expected = parts.iter().map(|(value, size)| value * size).sum::<f64>() / 59.0;
    assert!((value - expected).abs() < 1e-12);
}

#[test]
fn entropy_has_a_least_share() {
    let of = |message: Value, labels: &[f64]| {
        value(&json!({ "normalized_entropy": message }), 1, &[0.25, 0.5, 0.5, 0.75], labels, &[])
    };
    let cross = -(0.75f64.ln() + 0.5f64.ln() + 0.5f64.ln() + 0.75f64.ln());
    let half = of(json!({}), &[0.0, 1.0, 0.0, 1.0]).unwrap();
    assert!((half - cross / (4.0 * 2f64.ln())).abs() < 1e-12);
    let none = of(json!({ "eta": 0.1 }), &[0.0; 4]).unwrap();
    let cross = -(0.75f64.ln() + 0.5f64.ln() + 0.5f64.ln() + 0.25f64.ln());
    assert!((none - cross / (-4.0 * 0.9f64.ln())).abs() < 1e-12);
    assert_eq!(value(&json!({ "normalized_entropy": {} }), 1, &[], &[], &[]), None);
}

#[test]
fn messages_have_names_and_limits() {
    let parse = |message: Value| MetricConfig::parse(&message);
    let recall = parse(json!({ "recall_at_k": {} })).unwrap();
    assert_eq!((recall.name(""), recall.reads()), ("recall@5".to_owned(), Read::Similarity));
    let grouped = parse(json!({ "grouped_auc": { "grouping_key": "user" } })).unwrap();
    assert_eq!((grouped.name("_ctr").as_str(), grouped.grouping_key()), ("grouped_auc_ctr", Some("user")));
    for (message, part) in [
        (json!({ "auc": { "thresholds": 1 } }), "/auc/thresholds"),
        (json!({ "accuracy": { "top_k": 0 } }), "/accuracy/top_k"),
        (json!({ "xauc": { "sample_ratio": 0.0 } }), "/xauc/sample_ratio"),
        (json!({ "normalized_entropy": { "eta": 0.5 } }), "/normalized_entropy/eta"),
        (json!({ "auc": { "threshold": 9 } }), "threshold"),
        (json!({ "gini": {} }), "gini"),
        (json!(3), "invalid type"),
    ] {
        let error = parse(message).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}
