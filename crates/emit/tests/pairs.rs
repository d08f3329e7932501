//! The kernel for the gradients of keys and values together.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_emit::{candidates, emit, emit_with_windows};
use rewire_graph::{DType, Scope};
use rewire_graph_rewrite::device::{BindingChunks, PairReductionTile, SubgroupSizes, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::Computation;
use rewire_graph_rewrite::{lower, optimize};

fn kernel(dtype: DType) -> Computation {
    let scope = Scope::new();
    let batch = scope.size("batch");
    let (rows, keys) = (scope.lengths("rows", &batch), scope.lengths("keys", &batch));
    let input = |name, total, width: usize| scope.input(name, dtype, &[total, 2.into(), width.into()]);
    let [q, dout] = [("q", 8), ("dout", 40)].map(|(name, width)| input(name, rows.total.clone(), width));
    let [k, v] = [("k", 8), ("v", 40)].map(|(name, width)| input(name, keys.total.clone(), width));
    let causal = rows.row_index(&keys, 2).ge(&rows.key_index(&keys, 2));
    let kept = |x| causal.select(&x, &scope.scalar(dtype, 0.0));
    let weights = q.scores(&k, &rows, &keys);
    let slopes = dout.scores(&v, &rows, &keys);
    let dk = kept(&slopes * &weights).weighted_sum_by_key(&q, &rows, &keys);
    let dv = kept(weights.silu()).weighted_sum_by_key(&dout, &rows, &keys);
    let graph = scope.finish(&[("dk", dk), ("dv", dv)]).unwrap();
    let plan = lower(&optimize(graph).unwrap().0).unwrap();
    assert_eq!(plan.steps.len(), 1);
    plan.steps[0].computation.clone()
}

#[test]
fn emitted_shader() {
    let emitted = emit(&kernel(DType::F32), &Target::BASELINE, &Tuning::default()).unwrap();
    let interface = format!(
        "// params: {:?}\n// slots: {:?}\n// tile lists: {:?}\n// grid: {:?}\n",
        emitted.params, emitted.slots, emitted.tile_lists, emitted.grid
    );
    insta::assert_snapshot!(interface + &emitted.wgsl);
}

#[test]
fn tunings_are_owners_of_a_thread() {
    let candidates = candidates(&Tuning::default(), &kernel(DType::F32), &Target::BASELINE);
    let tiles: Vec<Option<Tile>> = candidates.iter().map(|tuning| tuning.tile).collect();
    let [two, four] = [2, 4].map(|rows_per_thread| Some(Tile::PairReduction(PairReductionTile { rows_per_thread })));
    assert_eq!(tiles, [None, two, four]);
}

#[test]
fn gradients_in_f16_take_cooperative_matrices() {
    let kernel = kernel(DType::F16);
    for (min, max) in [(32, 32), (32, 64), (16, 32)] {
        let subgroup_size = SubgroupSizes { min, max };
        let target = Target { f16: true, subgroups: true, subgroup_size, matrix: 16, ..Target::BASELINE };
        let windows = BindingChunks::of_constants(&kernel, &target);
        let emitted = |tuning: &Tuning| emit_with_windows(&kernel, &target, tuning, &windows).unwrap();
        let suited = emitted(&Tuning::default()).kernel.wgsl;
        assert!(suited.contains("coopMultiplyAdd"), "{min} to {max}");
        // The rows that dot products and sums both read are staged once.
        assert_eq!(suited.matches("fn other").count(), 2, "{min} to {max}");
        for tuning in candidates(&Tuning { matrices: Some(true), ..Tuning::default() }, &kernel, &target) {
            let spirv = emitted(&tuning).spirv(&target, true);
            assert!(spirv.is_ok(), "{tuning}, subgroups of {min} to {max}: {spirv:?}");
        }
    }
}
