//! Attention, layers and models.

use super::*;
use rewire_emit::emit;
use rewire_graph::Ragged;
use rewire_graph::pointwise::Expr;
use rewire_graph_rewrite::plan::Step;
use rewire_graph_rewrite::schedule::Schedule;
use rewire_hstu::modules::MlpConfig;
use rewire_hstu::modules::ranking::{
    CrossConfig, CrossV2Config, DeepFmConfig, dlrm_interaction, factorization_machine,
};
use rewire_tests::golden::{cases, hold, stored};

#[test]
fn a_product_belongs_to_one_softmax_attention() {
    let plan = plan_of(16, |scope, x| {
        let step = |x: &Tensor, name: &str| x.softmax(1).matmul(&weight(scope, name, &[16, 16]));
        let first = x.matmul(&weight(scope, "a", &[16, 16]));
        vec![step(&step(&step(&first, "b"), "c"), "d")]
    });
    assert_eq!(names(&plan), ["softmax_attention", "softmax", "softmax_attention"]);
}

/// A layer of sequential transduction units with a causal mask.
fn stu_layer(scope: &Scope, x: &Tensor, rows: &Ragged, heads: usize, width: usize) -> Tensor {
    let inner = heads * width;
    let vector = |name: &str, n: usize| weight(scope, name, &[n]);
    let normed = x.layer_norm(&vector("in_w", x.width()), &vector("in_b", x.width()), 1e-6);
    let uvqk = &normed.matmul(&weight(scope, "uvqk", &[x.width(), 4 * inner])) + &vector("beta", 4 * inner);
    let parts = uvqk.split_columns(&[inner; 4]);
    let u = parts[0].silu();
    let split = |t: &Tensor| t.reshape(&[rows.total.clone(), heads.into(), width.into()]);
    let weights = &(&split(&parts[2]).scores(&split(&parts[3]), rows, rows) * 0.4).silu() * 0.1;
    let mask = rows.row_index(rows, heads).ge(&rows.key_index(rows, heads));
    let attended = mask.select(&weights, &scope.scalar(F32, 0.0)).weighted_sum(&split(&parts[1]), rows, rows);
    let attended = attended.reshape(&[rows.total.clone(), inner.into()]);
    let y = &u * &attended.layer_norm(&vector("out_w", inner), &vector("out_b", inner), 1e-6);
    let joined = scope.concat(&[&u, &attended, &y], 1);
    x + &joined.matmul(&weight(scope, "out", &[3 * inner, x.width()]))
}

#[test]
fn an_stu_layer_takes_at_most_five_dispatches() {
    for heads in [1, 2, 4] {
        for layers in [1, 3] {
            let scope = Scope::new();
            let rows = scope.offsets("offsets");
            let mut x = scope.input("x", F32, &[rows.total.clone(), 32.into()]);
            for layer in 0..layers {
                x = scope.module(&format!("layers.{layer}"), |scope| stu_layer(scope, &x, &rows, heads, 8));
            }
            let plan = finish(scope, vec![x]);
            assert!(plan.steps.len() <= 5 * layers, "{heads} heads: {:?}", names(&plan));
            assert!(!names(&plan).contains(&"pointwise"), "{heads} heads: {:?}", names(&plan));
        }
    }
}

#[test]
fn two_sums_may_share_their_scores() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let tensor = |name: &str| scope.input(name, F32, &[rows.total.clone(), 2.into(), 4.into()]);
    let (q, k, v, w) = (tensor("q"), tensor("k"), tensor("v"), tensor("w"));
    let weights = q.scores(&k, &rows, &rows).silu();
    let outputs = vec![weights.weighted_sum(&v, &rows, &rows), weights.weighted_sum(&w, &rows, &rows)];
    assert_eq!(names(&finish(scope, outputs)), ["attention", "attention"]);
}

#[test]
fn two_sums_may_share_a_part_of_their_scores() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("batch"));
    let tensor = |name: &str| scope.input(name, F32, &[rows.total.clone(), 2.into(), 4.into()]);
    let (q, k, v, w) = (tensor("q"), tensor("k"), tensor("v"), tensor("w"));
    let scores = &q.scores(&k, &rows, &rows) * 0.5;
    let outputs = [(scores.silu(), v), (&scores * 0.1, w)].map(|(weights, v)| weights.weighted_sum(&v, &rows, &rows));
    assert_eq!(names(&finish(scope, outputs.to_vec())), ["attention", "attention"]);
}

/// Experts of `layers` layers, a softmax gate and a tower of two layers a task.
fn mmoe(experts: usize, layers: usize, tasks: usize) -> Plan {
    plan_of(20, |scope, x| {
        let outputs: Vec<Tensor> = (0..experts)
            .map(|expert| {
                (0..layers).fold(x.clone(), |x, layer| linear(scope, &format!("expert{expert}.{layer}"), &x, 12).relu())
            })
            .collect();
        (0..tasks)
            .map(|task| {
                let gate = linear(scope, &format!("gate{task}"), x, experts).softmax(1);
                let weighted = outputs.iter().enumerate().map(|(n, output)| &gate.slice(1, n, 1) * output);
                let mixed = weighted.reduce(|a, b| &a + &b).unwrap();
                let hidden = linear(scope, &format!("tower{task}.0"), &mixed, 8).relu();
                linear(scope, &format!("tower{task}.1"), &hidden, 1).sigmoid()
            })
            .collect()
    })
}

#[test]
fn experts_and_gates_are_one_product_a_layer() {
    for (experts, layers, tasks, most) in [(3, 1, 2, 6), (8, 1, 2, 6), (8, 2, 2, 7), (8, 2, 3, 9), (4, 3, 1, 6)] {
        let plan = mmoe(experts, layers, tasks);
        assert!(plan.steps.len() <= most, "{experts} experts of {layers} layers, {tasks} tasks: {:?}", names(&plan));
    }
}

#[test]
fn cross_layers_are_one_kernel_or_take_their_products() {
    for layers in 1..=5 {
        let plan = plan_of(25, |scope, x| vec![CrossConfig { cross_num: layers }.forward(scope, x)]);
        assert_eq!(names(&plan), ["reduce"], "{layers} layers");
        let plan = plan_of(25, |scope, x| {
            vec![linear(scope, "head", &CrossConfig { cross_num: layers }.forward(scope, x), 1).sigmoid()]
        });
        assert_eq!(names(&plan), ["reduce_addmm"], "{layers} layers");
        let full = CrossV2Config { cross_num: layers, low_rank: None };
        assert_eq!(names(&plan_of(25, |scope, x| vec![full.forward(scope, x)])), vec!["addmm"; layers]);
        let low_rank = CrossV2Config { cross_num: layers, low_rank: Some(3) };
        let plan = plan_of(25, |scope, x| vec![low_rank.forward(scope, x)]);
        assert_eq!(plan.steps.len(), 2 * layers, "{layers} layers: {:?}", names(&plan));
        assert!(!names(&plan).contains(&"pointwise"), "{:?}", names(&plan));
    }
}

/// The plan of a model of `fields` fields of 6 numbers.
fn plan_of_fields(fields: usize, model: impl Fn(&Scope, &Tensor) -> Tensor) -> Plan {
    plan_of(6 * fields, |scope, x| vec![model(scope, &x.reshape(&[x.dim(0), fields.into(), 6.into()]))])
}

#[test]
fn a_factorization_machine_is_one_kernel() {
    for fields in [1, 2, 7] {
        let plan = plan_of_fields(fields, |_, x| factorization_machine(x));
        assert_eq!(plan.steps.len(), 1, "{fields} fields: {:?}", names(&plan));
    }
}

#[test]
fn a_factorization_machine_beside_an_mlp_has_no_pointwise_kernel() {
    let deep: MlpConfig = serde_json::from_value(serde_json::json!({ "hidden_units": [5, 4] })).unwrap();
    let model = DeepFmConfig { deep };
    let plan = plan_of_fields(7, |scope, x| model.forward(scope, &scope.input("wide", F32, &[x.dim(0), 7.into()]), x));
    assert_eq!(plan.steps.len(), 6, "{:?}", names(&plan));
    assert!(!names(&plan).contains(&"pointwise"), "{:?}", names(&plan));
}

#[test]
fn the_interaction_of_features_is_a_product_and_a_choice_of_its_pairs() {
    for sparse in [1, 3, 8] {
        let plan = plan_of_fields(sparse, |scope, x| {
            dlrm_interaction(scope, &scope.input("dense", F32, &[x.dim(0), 6.into()]), x)
        });
        assert_eq!(plan.steps.len(), 2, "{sparse} features: {:?}", names(&plan));
    }
}

/// Kernels of the stored fusion graphs, by the start of their names.
const STORED: [(&str, usize); 13] = [
    ("fusion_attention/", 1),
    ("fusion_conv_bn/", 1),
    ("fusion_conv_bn_relu/f16", 1),
    ("fusion_conv_bn_relu/mobile_block", 3),
    ("fusion_conv_bn_relu/two_blocks", 2),
    ("fusion_elementwise/", 1),
    ("fusion_linear_relu/", 1),
    ("fusion_matmul_add_relu/", 1),
    ("fusion_mlp/", 3),
    ("fusion_mmoe/e2_t1", 2),
    ("fusion_mmoe/e3_t2", 4),
    ("fusion_mmoe/e4_t3", 5),
    ("fusion_siblings/", 1),
];

#[test]
fn stored_fusion_graphs_take_as_many_kernels_as_by_hand() {
    assert!(cases().iter().any(|path| path.to_string_lossy().contains("fusion_")));
    hold(&cases(), |golden| {
        let Some(kernels) = STORED.iter().find(|(start, _)| golden.name.starts_with(start)).map(|(_, n)| *n) else {
            return if golden.op.starts_with("fusion_") { Err("no count".to_owned()) } else { Ok(()) };
        };
        let plan = plan(&golden.trace()?.graph)?;
        let names = names(&plan);
        if names.len() == kernels { Ok(()) } else { Err(format!("{names:?} instead of {kernels}")) }
    });
}

/// Queries, keys and values of attention are found by the sample of the tile, those of a cache too.
#[test]
fn attention_with_a_cache_does_not_search_for_samples() {
    let cached = stored().into_iter().filter(|path| {
        let path = path.to_string_lossy();
        ["delta_hstu_mha", "STULayer_cached", "STUStack_cached"].iter().any(|op| path.contains(op))
    });
    let cached: Vec<_> = cached.collect();
    assert!(cached.len() > 3);
    hold(&cached, |golden| {
        let plan = plan(&golden.trace()?.graph)?;
        let attention = |step: &&Step| matches!(step.computation.schedule(), Some(Schedule::PairReduction(_)));
        let steps: Vec<&Step> = plan.steps.iter().filter(attention).collect();
        if steps.is_empty() {
            return Err(format!("no attention: {:?}", names(&plan)));
        }
        for step in steps {
            let dag = &step.computation.body().dag;
            let searches = dag.ids().filter(|id| matches!(dag.expr(*id), Expr::Sample { .. })).count();
            let wgsl =
                emit(&step.computation, &Target::BASELINE, &Tuning::default()).map_err(|error| error.to_string())?.wgsl;
            if searches > 0 || wgsl.contains("fn sample_") {
                return Err(format!("{} searches: {wgsl}", step.path));
            }
        }
        Ok(())
    });
}
