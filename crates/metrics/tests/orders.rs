//! Figures against their definitions, over all orders of equal scores.
#![allow(clippy::unwrap_used)]

use rewire_metrics::{Auc, GroupedAuc, NormalizedEntropy, TopK};

/// Few scores, so that many are equal, and labels of which fewer are true.
fn examples(len: usize, seed: u64) -> Vec<(f32, bool)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    (0..len).map(|_| (next(5) as f32 - 1.5, next(3) == 0)).collect()
}

/// All orders in which scores do not rise.
fn orders(row: &[(f32, bool)]) -> Vec<Vec<(f32, bool)>> {
    if row.is_empty() {
        return vec![vec![]];
    }
    let largest = row.iter().map(|(score, _)| *score).fold(f32::NEG_INFINITY, f32::max);
    let mut all = vec![];
    for first in (0..row.len()).filter(|&at| row[at].0 == largest) {
        let mut rest = row.to_vec();
        let item = rest.remove(first);
        all.extend(orders(&rest).into_iter().map(|order| [&[item], &order[..]].concat()));
    }
    all
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn gain(order: &[(f32, bool)], k: usize) -> f64 {
    let ranked = (1..).zip(order.iter().take(k));
    ranked.filter(|(_, (_, label))| *label).map(|(rank, _)| 1.0 / (1.0 + f64::from(rank)).log2()).sum()
}

/// Pairs of a positive and a negative in order, ties counting half.
fn pairs(examples: &[(f32, bool)]) -> Option<f64> {
    let of = |label: bool| examples.iter().filter(move |(_, own)| *own == label).map(|(score, _)| *score);
    let pairs: Vec<f64> = of(true)
        .flat_map(|p| of(false).map(move |n| f64::from(u8::from(p > n)) + 0.5 * f64::from(u8::from(p == n))))
        .collect();
    (!pairs.is_empty()).then(|| mean(pairs.into_iter()))
}

#[test]
fn the_first_of_rows() {
    for k in [1, 2, 3, 5, 9] {
        let mut best = TopK::new(k);
        let (mut found, mut positives, mut hits, mut gains, mut rows) = (0.0, 0, 0.0, 0.0, 0);
        for seed in 0..60 {
            let row = examples(1 + seed as usize % 6, seed);
            best.add(row.iter().copied());
            let count = row.iter().filter(|(_, label)| *label).count();
            if count == 0 {
                continue;
            }
            let orders = orders(&row);
            let among = |order: &[(f32, bool)]| order.iter().take(k).filter(|(_, label)| *label).count();
            found += mean(orders.iter().map(|order| among(order) as f64));
            hits += mean(orders.iter().map(|order| f64::from(u8::from(among(order) > 0))));
            let mut ideal = row.clone();
            ideal.sort_by_key(|(_, label)| !label);
            gains += mean(orders.iter().map(|order| gain(order, k))) / gain(&ideal, k);
            positives += count;
            rows += 1;
        }
        assert!(rows > 20 && positives > rows);
        let near = |actual: Option<f64>, expected: f64| (actual.unwrap() - expected).abs() < 1e-12;
        assert!(near(best.recall(), found / positives as f64), "recall at {k}");
        assert!(near(best.hit_rate(), hits / rows as f64), "hit rate at {k}");
        assert!(near(best.ndcg(), gains / rows as f64), "gain at {k}");
    }
}

#[test]
fn rows_without_a_positive_count_nowhere() {
    let mut best = TopK::new(3);
    best.add([]);
    best.add([(1.0, false), (2.0, false)]);
    assert_eq!((best.recall(), best.hit_rate(), best.ndcg()), (None, None, None));
    best.add([(1.0, true)]);
    assert_eq!((best.recall(), best.hit_rate(), best.ndcg()), (Some(1.0), Some(1.0), Some(1.0)));
}

#[test]
fn what_is_no_number_is_last() {
    let mut best = TopK::new(1);
    best.add([(f32::NAN, true), (-3.0, false)]);
    assert_eq!(best.hit_rate(), Some(0.0));
}

#[test]
fn areas_are_shares_of_pairs() {
    for seed in 0..40 {
        let examples = examples(seed as usize % 23, seed);
        let mut auc = Auc::default();
        examples.iter().for_each(|&(score, label)| auc.add(score, label));
        match (auc.value(), pairs(&examples)) {
            (Some(actual), Some(expected)) => assert!((actual - expected).abs() < 1e-12, "{seed}"),
            (actual, expected) => assert_eq!(actual, expected, "{seed}"),
        }
    }
}

#[test]
fn groups_count_once_whatever_their_order() {
    let groups: Vec<Vec<(f32, bool)>> = (0..9).map(|seed| examples(1 + 3 * (seed as usize % 4), seed + 70)).collect();
    let areas: Vec<f64> = groups.iter().filter_map(|group| pairs(group)).collect();
    assert!(areas.len() < groups.len() && areas.len() > 2);
    let mut auc = GroupedAuc::default();
    for at in 0..10 {
        for (group, examples) in groups.iter().enumerate().rev() {
            examples.get(at).into_iter().for_each(|&(score, label)| auc.add(group, score, label));
        }
    }
    assert!((auc.value().unwrap() - mean(areas.into_iter())).abs() < 1e-12);
    assert_eq!(GroupedAuc::<u32>::default().value(), None);
}

#[test]
fn entropy_is_compared_with_that_of_the_mean_label() {
    let examples = examples(31, 3);
    let mut entropy = NormalizedEntropy::default();
    let mut cross = 0.0;
    for &(logit, label) in &examples {
        entropy.add(logit.into(), label);
        let p = 1.0 / (1.0 + f64::from(-logit).exp());
        cross -= if label { p.ln() } else { (1.0 - p).ln() };
    }
    let rate = examples.iter().filter(|(_, label)| *label).count() as f64 / examples.len() as f64;
    let constant = -(rate * rate.ln() + (1.0 - rate) * (1.0 - rate).ln());
    assert!((entropy.value().unwrap() - cross / examples.len() as f64 / constant).abs() < 1e-12);

    let mut sure = NormalizedEntropy::default();
    assert_eq!(sure.value(), None);
    sure.add(800.0, true);
    assert_eq!(sure.value(), None);
    sure.add(-800.0, false);
    assert_eq!(sure.value(), Some(0.0));
    sure.add(800.0, false);
    assert!(sure.value().unwrap().is_finite());
}
