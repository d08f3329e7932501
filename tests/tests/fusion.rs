//! What fuses: steps of plans by name and number.

use rewire_graph::{DType, Dim, Graph, Ragged, Scope, Tensor};
use rewire_graph_rewrite::emit::{Target, Tuning, emit};
use rewire_graph_rewrite::mapping::map;
use rewire_graph_rewrite::plan::{Kernel, Place, Plan, Source};
use rewire_hstu::modules::MlpConfig;
use rewire_hstu::modules::ranking::{
    CrossConfig, CrossV2Config, DeepFmConfig, dlrm_interaction, factorization_machine,
};
use rewire_hstu::ops::{NormMulDropout, norm_mul_dropout};
use rewire_tests::backend::plan;
use rewire_tests::golden::{cases, hold};

const F32: DType = DType::F32;

/// The plan of a model of `x` `[rows, width]`.
fn plan_of(width: usize, model: impl Fn(&Scope, &Tensor) -> Vec<Tensor>) -> Plan {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), width.into()]);
    let outputs = model(&scope, &x);
    finish(scope, outputs)
}

fn finish(scope: Scope, outputs: Vec<Tensor>) -> Plan {
    let names: Vec<String> = (0..outputs.len()).map(|n| format!("out{n}")).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    let graph: Graph = scope.finish(&named).unwrap();
    plan(&graph).unwrap()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.name.as_str()).collect()
}

fn weight(scope: &Scope, name: &str, shape: &[usize]) -> Tensor {
    scope.parameter(name, F32, &shape.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>())
}

fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    let bias = weight(scope, &format!("{name}.bias"), &[out]);
    x.linear(&weight(scope, &format!("{name}.weight"), &[out, x.width()]), Some(&bias))
}

#[test]
fn thirty_pointwise_operators_over_broadcast_shapes_are_one_kernel() {
    let plan = plan_of(24, |scope, x| {
        let (row, column) = (weight(scope, "row", &[24]), scope.input("column", F32, &[x.dim(0), 1.into()]));
        let mut y = x.clone();
        for n in 0..10 {
            y = match n % 5 {
                0 => (&y + &row).tanh(),
                1 => (&y * &column).silu(),
                2 => &(&y - &(&row * &column)).abs() + 0.5,
                3 => (&y * x).maximum(&row),
                _ => (&y / &(&column.abs() + 1.0)).sigmoid(),
            };
            y = &y * 1.25;
        }
        vec![y]
    });
    assert_eq!(names(&plan), ["pointwise"]);
}

#[test]
fn a_linear_layer_takes_its_activation() {
    for activation in [Tensor::relu, Tensor::silu, Tensor::sigmoid, Tensor::gelu_erf, Tensor::gelu_tanh] {
        let plan = plan_of(16, |scope, x| vec![activation(&linear(scope, "a", x, 8))]);
        assert_eq!(names(&plan), ["addmm"]);
    }
}

#[test]
fn a_layer_of_one_column_takes_its_bias_and_activation() {
    let plan = plan_of(16, |scope, x| vec![linear(scope, "a", x, 1).sigmoid()]);
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn a_product_belongs_to_one_softmax_attention() {
    let plan = plan_of(16, |scope, x| {
        let step = |x: &Tensor, name: &str| x.softmax(1).matmul(&weight(scope, name, &[16, 16]));
        let first = x.matmul(&weight(scope, "a", &[16, 16]));
        vec![step(&step(&step(&first, "b"), "c"), "d")]
    });
    assert_eq!(names(&plan), ["softmax_attention", "softmax", "softmax_attention"]);
}

#[test]
fn small_parameters_share_one_binding() {
    let plan = plan_of(16, |scope, x| {
        let normed = x.layer_norm(&weight(scope, "w", &[16]), &weight(scope, "b", &[16]), 1e-5);
        let y = linear(scope, "a", &normed, 20);
        (0..5).map(|n| y.slice(1, n * 4, 4)).collect()
    });
    // The input, five results, and the norm's and the product's four parameters in one.
    assert_eq!(names(&plan), ["layer_norm_addmm"]);
    let places = plan.steps[0].kernel.body().operands.iter().map(|operand| operand.place);
    assert_eq!(places.filter(|&place| place == Place::Packed).count(), 4);
}

#[test]
fn large_parameters_keep_a_buffer_of_their_own() {
    let plan = plan_of(256, |scope, x| vec![linear(scope, "a", x, 512)]);
    let places: Vec<Place> = plan.steps[0].kernel.body().operands.iter().map(|operand| operand.place).collect();
    assert_eq!(places, [Place::Device, Place::Device, Place::Packed]);
}

#[test]
fn an_mlp_takes_a_kernel_a_layer() {
    let plan = plan_of(16, |scope, x| {
        let a = linear(scope, "a", x, 32).relu();
        let b = linear(scope, "b", &a, 32).relu();
        vec![linear(scope, "c", &b, 1)]
    });
    assert_eq!(names(&plan), ["addmm", "addmm", "addmm"]);
}

#[test]
fn a_residual_is_added_by_the_product() {
    let plan = plan_of(16, |scope, x| vec![x + &linear(scope, "a", x, 16).silu()]);
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn softmax_is_one_kernel_with_what_surrounds_it() {
    let plan = plan_of(16, |_, x| vec![&(&(x * 0.5) + 1.0).softmax(1) * 2.0]);
    assert_eq!(names(&plan), ["softmax"]);
}

type Norm = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

/// Layer norm, written in the ways that models write it.
fn layer_norms() -> Vec<(&'static str, Norm)> {
    vec![
        ("normalize", |x, w, b| x.layer_norm(w, b, 1e-5)),
        ("division", |x, w, b| {
            let centered = x - &x.mean(1);
            let deviation = (&centered.square().mean(1) + 1e-5).sqrt();
            &(&(&centered / &deviation) * w) + b
        }),
        ("separate subtractions", |x, w, b| {
            let variance = (x - &x.mean(1)).square().sum(1);
            let scale = (&(&variance / 16.0) + 1e-5).rsqrt();
            &(&(&(x - &x.mean(1)) * &scale) * w) + b
        }),
        ("raw moments", |x, w, b| {
            let variance = &x.square().mean(1) - &x.mean(1).square();
            &(&(&(x - &x.mean(1)) * &(&variance + 1e-5).rsqrt()) * w) + b
        }),
    ]
}

#[test]
fn layer_norm_is_one_kernel_however_it_is_written() {
    for (name, norm) in layer_norms() {
        let plan = plan_of(16, |scope, x| {
            vec![norm(&x.silu(), &weight(scope, "w", &[16]), &weight(scope, "b", &[16])).tanh()]
        });
        assert_eq!(plan.steps.len(), 1, "{name}: {:?}", names(&plan));
        assert!(matches!(plan.steps[0].kernel, Kernel::Reduce(_)), "{name}");
    }
}

#[test]
fn norms_with_a_residual_or_a_gate_are_one_kernel() {
    let plan = plan_of(16, |scope, x| {
        let (w, b) = (weight(scope, "w", &[16]), weight(scope, "b", &[16]));
        vec![x + &x.swish_layer_norm(&w, &b, 1e-6), x.rms_norm(&w, 1e-6)]
    });
    assert!(plan.steps.len() <= 2, "{:?}", names(&plan));
}

type RowFunction = fn(&Scope, &Tensor) -> Tensor;

/// Functions of a row whose reductions read one another, with the name of their kernel.
const ROW_FUNCTIONS: [(&str, RowFunction); 8] = [
    ("rms_norm", |scope, x| x.rms_norm(&weight(scope, "w", &[25]), 1e-6)),
    // The logarithm of a sum of exponentials, and the log softmax.
    ("softmax", |_, x| &(x - &x.max(1)).exp().sum(1).log() + &x.max(1)),
    ("softmax", |_, x| {
        let shifted = x - &x.max(1);
        &shifted - &shifted.exp().sum(1).log()
    }),
    // Softmax pooling.
    ("softmax", |scope, x| (&x.softmax(1) * &scope.input("values", F32, x.shape())).sum(1)),
    // A norm of a norm, the softmax of a norm, the product of a norm with a vector.
    ("layer_norm", |scope, x| normed(scope, x).rms_norm(&weight(scope, "v", &[25]), 1e-6)),
    ("softmax", |scope, x| normed(scope, x).softmax(1)),
    ("layer_norm", |scope, x| (&normed(scope, x) * &weight(scope, "v", &[25])).sum(1)),
    // The cosine of two rows.
    ("reduce", |scope, x| {
        let unit = |x: &Tensor| x / &x.square().sum(1).sqrt().clamp(Some(1e-6), None);
        (&unit(x) * &unit(&scope.input("y", F32, x.shape()))).sum(1)
    }),
];

fn normed(scope: &Scope, x: &Tensor) -> Tensor {
    x.layer_norm(&weight(scope, "w", &[25]), &weight(scope, "b", &[25]), 1e-6)
}

#[test]
fn reductions_of_a_row_that_read_one_another_are_one_kernel() {
    for (number, (name, function)) in ROW_FUNCTIONS.iter().enumerate() {
        let plan = plan_of(25, |scope, x| vec![function(scope, x)]);
        assert_eq!(names(&plan), [*name], "function {number}");
    }
}

#[test]
fn a_gate_of_one_column_is_a_reduction_of_the_row_it_scales() {
    let plan = plan_of(25, |scope, x| vec![x * &linear(scope, "gate", x, 1).sigmoid()]);
    assert_eq!(names(&plan), ["reduce"]);
}

/// Every kernel has a shader for the limits of the baseline.
fn emits_for_the_baseline(plan: &Plan) {
    for mapped in map(plan, &Target::BASELINE, &Tuning::default()) {
        assert_eq!(mapped.as_ref().err(), None);
    }
}

#[test]
fn a_table_larger_than_a_binding_counts_as_several() {
    for large in 0..6 {
        let scope = Scope::new();
        let rows = scope.size("rows");
        let lookups = (0..6).map(|n| {
            let ids = scope.input(&format!("ids{n}"), DType::U32, std::slice::from_ref(&rows));
            // A million rows of 64 take two bindings of the baseline.
            let count = if n < large { 1_000_000 } else { 1000 };
            weight(&scope, &format!("table{n}"), &[count, 64]).gather(&ids)
        });
        let sum = lookups.reduce(|a, b| &a + &b).unwrap();
        emits_for_the_baseline(&finish(scope, vec![sum]));
    }
}

#[test]
fn parts_of_a_product_get_their_own_epilogues() {
    let plan = plan_of(16, |scope, x| {
        let parts = linear(scope, "a", x, 48).split_columns(&[16, 16, 16]);
        vec![parts[0].silu(), parts[1].clone(), parts[2].reshape(&[x.dim(0), 4.into(), 4.into()])]
    });
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn siblings_of_one_input_do_not_repeat_its_computation() {
    let plan = plan_of(16, |scope, x| {
        let shared = x.gelu_erf().tanh();
        vec![linear(scope, "a", &shared, 8), linear(scope, "b", &shared, 8)]
    });
    let pointwise = names(&plan).iter().filter(|name| **name == "pointwise").count();
    assert!(plan.steps.len() <= 3 && pointwise <= 1, "{:?}", names(&plan));
}

#[test]
fn pointwise_results_of_one_shape_share_a_kernel() {
    let plan = plan_of(16, |_, x| vec![x.silu(), x.tanh(), &x.exp() + 1.0]);
    assert_eq!(names(&plan), ["pointwise"]);
}

#[test]
fn a_lookup_is_the_prologue_of_its_reader() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let rows = weight(&scope, "table", &[100, 16]).gather(&ids);
    let y = linear(&scope, "a", &rows, 8).relu();
    assert_eq!(names(&finish(scope, vec![y])), ["addmm"]);
}

#[test]
fn a_sum_of_lookups_is_one_kernel() {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let sum = (0..3)
        .map(|n| {
            let ids = scope.input(&format!("ids{n}"), DType::U32, std::slice::from_ref(&rows));
            weight(&scope, &format!("table{n}"), &[100, 16]).gather(&ids)
        })
        .reduce(|a, b| &a + &b)
        .unwrap();
    assert_eq!(names(&finish(scope, vec![sum])), ["pointwise"]);
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

#[test]
fn no_step_takes_more_than_eight_bindings() {
    let plan = plan_of(4, |scope, x| {
        let inputs: Vec<Tensor> = (0..12).map(|n| scope.input(&format!("x{n}"), F32, x.shape())).collect();
        let sum = inputs.iter().fold(x.clone(), |sum, x| &sum + &x.tanh());
        vec![scope.concat(&inputs.iter().collect::<Vec<_>>(), 1), sum]
    });
    for step in &plan.steps {
        assert!(step.reads.len() + step.writes.len() <= 8, "{}: {:?}", step.name, step.reads);
    }
}

#[test]
fn no_step_computes_what_its_only_neighbour_could() {
    let plan = plan_of(8, |scope, x| {
        let a = linear(scope, "a", &x.tanh(), 8).relu();
        let b = a.layer_norm(&weight(scope, "w", &[8]), &weight(scope, "b", &[8]), 1e-5);
        let c = (&b * &a).softmax(1);
        vec![linear(scope, "c", &(&c + x), 8).sigmoid()]
    });
    assert!(!names(&plan).contains(&"pointwise"), "{:?}", names(&plan));
}

#[test]
fn parameters_without_readers_are_not_part_of_a_plan() {
    let plan = plan_of(8, |scope, x| {
        let unused = linear(scope, "unused", x, 8);
        let _ = unused.relu();
        vec![x.silu()]
    });
    assert!(plan.buffers.iter().all(|buffer| !matches!(buffer.source, Source::Parameter(_))));
}

#[test]
fn linear_layers_of_one_input_are_one_product() {
    let plan = plan_of(16, |scope, x| {
        let widths = [8, 3, 25, 1];
        widths.iter().enumerate().map(|(n, &width)| linear(scope, &n.to_string(), x, width).silu()).collect()
    });
    assert_eq!(names(&plan), ["addmm"]);
    // The biases and the weights of all layers are joined once.
    assert!(plan.load.len() <= 2, "{:?}", plan.load.iter().map(|step| &step.name).collect::<Vec<_>>());
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
fn the_norm_of_the_output_is_the_prologue_of_its_projection() {
    // More heads have more statistics than the workgroup memory of the baseline holds.
    let one = &["layer_norm_addmm"][..];
    for (heads, expected) in
        [(None, one), (Some(1), one), (Some(4), one), (Some(8), one), (Some(12), &["layer_norm", "addmm"])]
    {
        for concat_ux in [false, true] {
            let plan = plan_of(24, |scope, x| {
                let u = scope.input("u", F32, x.shape());
                let affine = ["w", "b"].map(|name| weight(scope, name, &[heads.unwrap_or(24)]));
                let options = NormMulDropout { eps: 1e-6, group_norm: heads, concat_ux, dropout_ratio: 0.0 };
                let gated = norm_mul_dropout(scope, x, &u, [&affine[0], &affine[1]], &options);
                vec![x + &gated.matmul(&weight(scope, "out", &[gated.width(), 24]))]
            });
            assert_eq!(names(&plan), expected, "{heads:?} heads, {concat_ux}");
            emits_for_the_baseline(&plan);
        }
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

/// A table of three bindings and as many others as make eight with it counted once, or with all of it counted.
#[test]
fn windows_of_large_tables_count_as_bindings() {
    let steps = |others: usize| {
        let plan = plan_of(8, |scope, x| {
            let ids = scope.input("ids", DType::I64, &[x.dim(0)]);
            let mut y = weight(scope, "table", &[9 << 20, 8]).gather(&ids);
            for n in 0..others {
                y = &y * &scope.input(&format!("x{n}"), F32, &[x.dim(0), 8.into()]).sigmoid();
            }
            vec![&y + x]
        });
        for step in &plan.steps {
            emit(&step.kernel, &Target::BASELINE, &Tuning::default()).unwrap();
        }
        plan.steps.len()
    };
    // The table, ids, x and the result are six bindings.
    assert_eq!(steps(2), 1);
    assert!(steps(4) > 1);
}
