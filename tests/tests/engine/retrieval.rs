//! The best items of a table, against a sort.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_hstu::modules::{RetrievalConfig, Similarity};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, plan, run, session};
use rewire_tests::compare::Results;
use rewire_tests::noise::Noise;

const WIDTH: usize = 7;

fn retrieval(similarity: Similarity, top_k: usize, items: usize) -> Graph {
    let scope = Scope::new();
    let users = scope.input("users", DType::F32, &[scope.size("batch"), WIDTH.into()]);
    let table = scope.parameter("items", DType::F32, &[items.into(), WIDTH.into()]);
    let found = RetrievalConfig { similarity, top_k }.forward(&scope, &users, &table);
    scope.finish(&[("scores", found.scores), ("items", found.items)]).unwrap()
}

/// Items with repeats, so that similarities tie.
fn table(noise: &mut Noise, items: usize) -> HostTensor {
    let mut values = noise.floats(DType::F32, &[items, WIDTH], 1.0).to_f32();
    for item in (5..items).step_by(3) {
        values.copy_within((item - 5) * WIDTH..(item - 4) * WIDTH, item * WIDTH);
    }
    HostTensor::f32(vec![items, WIDTH], &values).unwrap()
}

/// Scores by a sort, largest first, and for equal vectors the smaller item.
fn best(similarity: Similarity, user: &[f32], table: &[f32], top_k: usize) -> Vec<(i64, f64)> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let score = |item: &[f32]| match similarity {
        Similarity::InnerProduct => dot(user, item),
        Similarity::Cosine => dot(user, item) / (dot(user, user) * dot(item, item)).sqrt(),
    };
    let mut scored: Vec<(i64, f64)> = (0..).zip(table.chunks(WIDTH).map(score)).collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.resize(top_k.max(scored.len()), (-1, f64::from(f32::MIN)));
    scored.truncate(top_k);
    scored
}

fn check(similarity: Similarity, found: &Results, users: &HostTensor, table: &HostTensor, top_k: usize) {
    let (users, table) = (users.to_f32(), table.to_f32());
    let (scores, items) = (found["scores"].to_f32(), found["items"].to_i64());
    for (at, user) in users.chunks(WIDTH).enumerate() {
        let expected = best(similarity, user, &table, top_k);
        for (n, &(item, score)) in expected.iter().enumerate() {
            let (actual, got) = (items[at * top_k + n], f64::from(scores[at * top_k + n]));
            assert!(
                (got - score).abs() <= 1e-5 * score.abs().max(1.0),
                "user {at}, place {n}: {got}, expected {score}"
            );
            assert_eq!(actual, item, "user {at}, place {n}");
        }
    }
}

#[test]
fn the_best_items_are_those_of_a_sort() {
    for (similarity, top_k, items, batch) in [
        (Similarity::InnerProduct, 10, 203, 5),
        (Similarity::Cosine, 7, 64, 3),
        (Similarity::Cosine, 6, 4, 2),
        (Similarity::InnerProduct, 1, 1, 1),
        (Similarity::InnerProduct, 3, 50, 0),
    ] {
        let graph = retrieval(similarity, top_k, items);
        let mut noise = Noise::new(items as u64, "retrieval");
        let (users, table) = (noise.floats(DType::F32, &[batch, WIDTH], 1.0), table(&mut noise, items));
        let inputs = Tensors::from([("users".to_owned(), users.clone())]);
        let parameters = Tensors::from([("items".to_owned(), table.clone())]);
        check(similarity, &oracle(&graph, &inputs, &parameters).unwrap(), &users, &table, top_k);
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
            check(similarity, &run(&mut session, &inputs).unwrap(), &users, &table, top_k);
        }
    }
}

/// The best items that are not among those seen, of random scores with ties.
#[test]
fn seen_items_are_left_out() {
    // Users without a history, with repeated, unknown and all items; one user, and none.
    let histories: [&[&[i64]]; 3] =
        [&[&[], &[3, 3, 11], &[-1, 13, i64::MAX, 12], &(0..13).collect::<Vec<_>>()], &[&[5]], &[]];
    for (number, histories) in histories.into_iter().enumerate() {
        let (items, k) = (13, 4);
        let scope = Scope::new();
        let rows = scope.lengths("lengths", scope.size("users"));
        let ids = scope.input("ids", DType::I64, [&rows.total]);
        let scores = scope.input("scores", DType::F32, (&rows.batch, items));
        let (best, found) = scope.top_k_unseen(scores, k, ids, rows);
        let graph = scope.finish(&[("best", best), ("items", found)]).unwrap();

        let mut noise = Noise::new(number as u64, "unseen");
        let scores: Vec<f32> = noise.floats(DType::F32, &[histories.len(), items], 1.0).to_f32();
        let scores: Vec<f32> = scores.iter().map(|score| (score * 4.0).round()).collect();
        let lengths: Vec<i64> = histories.iter().map(|history| history.len() as i64).collect();
        let inputs = Tensors::from([
            ("lengths".to_owned(), HostTensor::lengths(&lengths)),
            ("ids".to_owned(), HostTensor::vector(&histories.concat())),
            ("scores".to_owned(), HostTensor::f32([histories.len(), items], &scores).unwrap()),
        ]);
        let expected: Vec<i64> = histories
            .iter()
            .zip(scores.chunks(items))
            .flat_map(|(history, scores)| {
                let mut unseen: Vec<i64> = (0..items as i64).filter(|item| !history.contains(item)).collect();
                unseen.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
                unseen.resize(unseen.len().max(k), -1);
                unseen.into_iter().take(k)
            })
            .collect();
        assert_eq!(oracle(&graph, &inputs, &Tensors::new()).unwrap()["items"].to_i64(), expected);
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(mut session) = session(&graph, &Tensors::new(), kernel).unwrap() else { continue };
            assert_eq!(run(&mut session, &inputs).unwrap()["items"].to_i64(), expected, "{kernel:?}");
        }
    }
}

#[test]
fn a_kernel_an_item_reads_the_similarities() {
    let plan = plan(&retrieval(Similarity::InnerProduct, 4, 100)).unwrap();
    // The product, four rounds, and the columns joined.
    assert!(plan.steps.len() <= 7, "{:?}", plan.steps.iter().map(|step| &step.name).collect::<Vec<_>>());
}
