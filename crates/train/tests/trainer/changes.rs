//! Changes of parameters, the contents of deltas.

use super::ranks::{OPTIONS, config, each, initial, inputs, objective};
use rewire_graph::HostTensor;
use rewire_train::{Changes, Trainer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

type Tensors = BTreeMap<String, HostTensor>;

fn apply(tensors: &mut Tensors, changes: Changes) {
    tensors.extend(changes.whole);
    for (name, (rows, values)) in changes.rows {
        assert!(rows.is_sorted(), "{rows:?}");
        let width = values.shape()[1];
        let mut all = tensors[&name].to_f32();
        for (row, values) in rows.iter().zip(values.to_f32().chunks(width)) {
            all[*row as usize * width..][..width].copy_from_slice(values);
        }
        let shape = tensors[&name].shape().to_vec();
        tensors.insert(name, HostTensor::f32(shape, &all).unwrap());
    }
}

/// Checks that the initial parameters with all changes applied equal the current ones.
fn check(trainer: &mut Trainer, rank: usize) {
    let mut own: Tensors = trainer.parameters().unwrap();
    trainer.record_changes();
    let mut preparer = trainer.preparer();
    for step in 0..6 {
        let rows = [step * 2 + rank, step * 3 + 1 + rank];
        trainer.step(preparer.prepare(vec![inputs(&rows), inputs(&rows[..1])]).unwrap()).unwrap();
        if step % 2 == 1 {
            let changes = trainer.changes().unwrap();
            assert!(changes.rows["user.weight"].0.len() < 11, "all rows changed");
            apply(&mut own, changes);
            assert!(own == trainer.parameters().unwrap(), "step {step}");
            assert!(trainer.changes().unwrap().rows.is_empty());
        }
    }
}

fn settings() -> [Value; 3] {
    let accumulated = json!({ "gradient_accumulation_steps": 2 });
    let sharded = json!({ "gradient_accumulation_steps": 2, "sharding": "row_wise",
        "sparse_optimizer": { "adam_optimizer": { "lr": 0.02 } } });
    [accumulated, sharded, json!({ "gradient_accumulation_steps": 2, "fused_tables": true })]
}

#[test]
fn changes_since_the_last_ones_are_all_that_differs() {
    for keys in settings() {
        check(&mut Trainer::new(&objective(), &config(keys), initial, OPTIONS()).unwrap(), 0);
    }
}

#[test]
fn changes_of_ranks_are_those_of_all() {
    for keys in settings() {
        each(2, Duration::from_secs(60), |group| {
            let rank = group.rank();
            check(
                &mut Trainer::of_rank(&objective(), &config(keys.clone()), &initial, OPTIONS(), group).unwrap(),
                rank,
            );
        });
    }
}
