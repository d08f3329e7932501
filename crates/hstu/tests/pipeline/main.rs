//! HSTU models from TorchEasyRec messages.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

use fixture::*;
use rewire_graph::{DType, HostTensor, Mode, Scope, Seed, differentiate, interpret};
use rewire_hstu::modules::{Activation, MlpConfig, Padding};
use rewire_hstu::ops::{Positions, TimeBucketFn, TimeBuckets, add_timestamp_positional_embeddings};
use rewire_hstu::pipeline::HstuModel;
use serde_json::{Value, json};

#[test]
fn outputs_have_the_references_names_and_shapes() {
    let graph = whole(&ultra());
    let outputs = interpret(&graph, &of_users(&[0, 1, 2]), &weights(&graph)).unwrap();
    let mut shapes: Vec<_> = outputs.iter().map(|(name, tensor)| (name.as_str(), tensor.shape().to_vec())).collect();
    shapes.sort();
    let expected = [
        ("logits_click", vec![6]),
        ("logits_like", vec![6, 2]),
        ("probs1_like", vec![6]),
        ("probs_click", vec![6]),
        ("probs_like", vec![6, 2]),
        ("y_time", vec![6]),
    ];
    assert_eq!(shapes, expected);
    let names: Vec<String> = graph.parameters().into_iter().map(|parameter| parameter.name).collect();
    for name in [
        "_hstu_transducer._transducers.1._stu_module._stu_layers.2._uvqk_weight",
        "_multitask_module.tower_mlp.mlp.0.perceptron.2.weight",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
}

fn close(actual: &HostTensor, expected: &HostTensor, what: &str) {
    assert_eq!(actual.shape(), expected.shape(), "{what}");
    for (a, b) in actual.to_f64().iter().zip(expected.to_f64()) {
        assert!((a - b).abs() < 1e-5, "{what}: {a} is not {b}");
    }
}

/// Reverses the steps of every user.
fn reversed(tensor: &HostTensor, lengths: &[usize]) -> HostTensor {
    let width: usize = tensor.shape()[1..].iter().product();
    let mut rows: Vec<Vec<f32>> = tensor.to_f32().chunks(width.max(1)).map(<[f32]>::to_vec).collect();
    let mut first = 0;
    for length in lengths {
        rows[first..first + length].reverse();
        first += length;
    }
    HostTensor::f32(tensor.shape().to_vec(), &rows.concat()).unwrap()
}

#[test]
fn descending_sequences_give_what_ascending_ones_give() {
    let mut message = ultra();
    let graph = whole(&message);
    message["sequence_timestamp_is_ascending"] = json!(false);
    let descending = whole(&message);
    let (weights, inputs) = (weights(&graph), of_users(&[0, 1, 2]));
    let expected = interpret(&graph, &inputs, &weights).unwrap();
    let of_latest_first = inputs.iter().map(|(name, tensor)| {
        let is_sequence = !name.ends_with(".lengths") && name != "contextual";
        (name.clone(), if is_sequence { reversed(tensor, &lengths(name)) } else { tensor.clone() })
    });
    let actual = interpret(&descending, &of_latest_first.collect(), &weights).unwrap();
    for (name, tensor) in &actual {
        close(&reversed(tensor, &lengths("candidate")), &expected[name], name);
    }
}

#[test]
fn histories_of_every_channel_are_kept() {
    let message = ultra();
    let (graph, parts) = (whole(&message), cached(&message));
    let weights = weights(&graph);
    let expected = interpret(&graph, &of_users(&[0, 1, 2]), &weights).unwrap();
    let states = stale(&parts);
    assert_eq!(states.len(), 2 * 2 * 3);
    let run = |histories: &[usize], users: &[usize], states: &Tensors| {
        let mut inputs = of_parts(histories, users);
        inputs.extend(states.clone());
        interpret(&parts, &inputs, &weights).unwrap()
    };
    let after = run(&[0, 1, 2], &[], &states).into_iter().filter(|(name, _)| states.contains_key(name)).collect();
    let actual = run(&[], &[0, 1, 2], &after);
    for (name, tensor) in &expected {
        close(&actual[name], tensor, name);
    }
}

#[test]
fn what_cannot_be_is_named_by_its_key() {
    let error = |pointer: &str, key: &str, value: Value| {
        let mut message = ultra();
        message.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
        let scope = Scope::new();
        let (histories, requests) = (histories(), &REQUESTS[1..]);
        let all: Vec<(&str, usize)> = named(&histories).into_iter().chain(requests.iter().copied()).collect();
        let groups = groups(&scope, "", &all);
        let traced = HstuModel::parse("ultra_hstu", &message).and_then(|m| m.unwrap().forward(&scope, &groups));
        traced.unwrap_err().to_string()
    };
    for (pointer, key, value, expected) in [
        ("/hstu/1/stu", "num_headz", json!(2), "configuration: `ultra_hstu.hstu[1].stu.num_headz`: unknown field"),
        (
            "/hstu/0",
            "attn_truncation_split_layer",
            json!(3),
            "configuration: `hstu[0].attn_truncation_split_layer` must be",
        ),
        (
            "/hstu/0",
            "name",
            json!("buy"),
            "configuration: `feature_groups.buy` must be a JAGGED_SEQUENCE group, got no group",
        ),
        (
            "/fusion_mtl_tower/mlp",
            "activation",
            json!("nn.Cubic"),
            "configuration: `ultra_hstu.fusion_mtl_tower.mlp.activation`: `nn.Cubic` is no",
        ),
        (
            "/fusion_mtl_tower/task_configs/1",
            "num_class",
            json!(1),
            "configuration: `fusion_mtl_tower.task_configs[1].losses[0].jrc_loss` must be a loss of one logit",
        ),
    ] {
        let text = error(pointer, key, value);
        assert!(text.starts_with(expected), "{text}");
    }
}

#[test]
fn activations_have_the_values_of_torch() {
    let at = [-2.5f32, -0.5, 0.0, 0.75, 7.0];
    for (name, expected) in [
        ("", at),
        ("nn.ReLU6", [0.0, 0.0, 0.0, 0.75, 6.0]),
        ("nn.LeakyReLU", [-0.025, -0.005, 0.0, 0.75, 7.0]),
        ("nn.LeakyReLU(negative_slope=0.2, inplace=True)", [-0.5, -0.1, 0.0, 0.75, 7.0]),
        ("nn.LeakyReLU(negative_slope=.2)", [-0.5, -0.1, 0.0, 0.75, 7.0]),
        ("nn.LeakyReLU(negative_slope=-02E-1)", [0.5, 0.1, 0.0, 0.75, 7.0]),
        ("nn.ELU(alpha=2.0)", [-1.835_83, -0.786_939, 0.0, 0.75, 7.0]),
        ("nn.ELU(alpha=+2.)", [-1.835_83, -0.786_939, 0.0, 0.75, 7.0]),
        ("nn.CELU(alpha=2.0)", [-1.426_99, -0.442_398, 0.0, 0.75, 7.0]),
        ("nn.SELU", [-1.613_786, -0.691_758, 0.0, 0.788_026, 7.354_907]),
        ("nn.GELU", [-0.015_524_2, -0.154_269, 0.0, 0.580_029, 7.0]),
        ("nn.GELU(approximate='tanh')", [-0.015_084_3, -0.154_286, 0.0, 0.579_961, 7.0]),
        ("nn.Mish", [-0.196_816, -0.220_744, 0.0, 0.610_018, 6.999_988]),
        ("nn.LogSigmoid", [-2.578_889, -0.974_077, -std::f32::consts::LN_2, -0.386_871, -0.000_911_5]),
        ("nn.Tanhshrink", [-1.513_386, -0.037_883, 0.0, 0.114_851, 6.000_002]),
        ("nn.Softplus(beta=2)", [0.003_357_7, 0.156_631, 0.346_574, 0.850_707, 7.0]),
        ("nn.Softsign", [-0.714_286, -0.333_333, 0.0, 0.428_571, 0.875]),
        ("nn.Hardtanh(min_val=-1.5)", [-1.5, -0.5, 0.0, 0.75, 1.0]),
        ("nn.Hardsigmoid", [0.083_333, 0.416_667, 0.5, 0.625, 1.0]),
        ("nn.Hardswish", [-0.208_333, -0.208_333, 0.0, 0.468_75, 7.0]),
    ] {
        let activation: Activation = serde_json::from_value(json!(name)).unwrap();
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[5.into()]);
        let y = activation.forward(&scope, &x);
        let graph = scope.finish(&[("y", y)]).unwrap();
        let inputs = [("x".to_owned(), HostTensor::vector(&at))].into();
        let values = interpret(&graph, &inputs, &Tensors::new()).unwrap()["y"].to_f64();
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - f64::from(expected)).abs() < 2e-5, "{name}: {values:?}");
        }
    }
    for wrong in ["nn.ReLU(", "nn.ELU(alpha=x)", "nn.SiLU(beta=2)", "relu"] {
        assert!(serde_json::from_value::<Activation>(json!(wrong)).is_err(), "{wrong}");
    }
    for wrong in [".", "", "-", "1_0", "1e", "1.2.3", "0x1", "nan", "inf", "1e99"] {
        let wrong = format!("nn.ELU(alpha={wrong})");
        assert!(serde_json::from_value::<Activation>(json!(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn batch_norms_learn_from_steps_and_their_padding_as_those_of_torch() {
    // Two rows with 1 and 3 steps: torch pads the first one with two steps.
    let config = json!({ "hidden_units": [2], "use_bn": true, "activation": "Dice" });
    let config: MlpConfig = serde_json::from_value(config).unwrap();
    let scope = Scope::new().with_mode(Mode::Train);
    let x = scope.input("x", DType::F32, (scope.size("steps"), 3));
    let rows = scope.input("rows", DType::F32, (2, 3));
    let counts = scope.input("counts", DType::F32, [2]);
    let y = config.forward_steps(&scope, &x, || Some(Padding { rows, counts }));
    let loss = (&y * scope.input("c", DType::F32, y.shape())).sum(1).sum(0);
    let graph = scope.finish(&[("y", y), ("loss", loss)]).unwrap();
    let place = |name: &str| format!("mlp.0.perceptron.{name}");
    let [weight, scale, alpha] = ["0.weight", "2.weight", "4.alpha"].map(place);
    let graph = differentiate(&graph, &[("loss", Seed::One)], &[&weight, &scale, &alpha, "x"]).unwrap();
    let tensor = |shape: &[usize], values: &[f32]| HostTensor::f32(shape.to_vec(), values).unwrap();
    let inputs = [
        ("x".to_owned(), tensor(&[4, 3], &[0.5, -1.0, 2.0, 1.5, 0.25, -0.75, -2.0, 1.0, 0.5, 0.0, 3.0, -1.0])),
        ("rows".to_owned(), tensor(&[2, 3], &[0.25, -0.5, 1.0, 1.0, 2.0, -3.0])),
        ("counts".to_owned(), tensor(&[2], &[2.0, 0.0])),
        ("c".to_owned(), tensor(&[4, 2], &[1.0, -2.0, 0.5, 1.0, 3.0, 0.25, -1.0, 2.0])),
        (place("2.running_mean"), tensor(&[2], &[1.0, -1.0])),
        (place("2.running_var"), tensor(&[2], &[2.0, 0.5])),
        (place("4.bn.running_mean"), tensor(&[2], &[0.0, 0.0])),
        (place("4.bn.running_var"), tensor(&[2], &[1.0, 1.0])),
    ];
    let weights = [
        (weight.clone(), tensor(&[2, 3], &[0.5, -0.25, 1.0, -1.0, 0.75, 0.125])),
        (scale.clone(), tensor(&[2], &[1.5, 0.5])),
        (place("2.bias"), tensor(&[2], &[0.25, -0.5])),
        (alpha.clone(), tensor(&[2], &[0.25, -0.5])),
    ];
    let outputs = interpret(&graph, &inputs.into(), &weights.into()).unwrap();
    let dx = [
        -0.093_497, 0.130_842, 0.527_799, 0.206_102, -0.161_431, -0.084_028, 0.650_935, -0.371_26, 0.912_633,
        -0.413_245, 0.260_272, -0.370_475,
    ];
    for (name, expected) in [
        (
            "y".to_owned(),
            &[2.125_959, 0.025_571, -0.139_116, 0.108_095, -0.468_116, 0.220_232, -0.782_079, 0.052_34][..],
        ),
        (place("2.running_mean"), &[0.940_625, -0.874_479]),
        (place("2.running_var"), &[2.040_273, 0.760_251]),
        (place("4.bn.running_mean"), &[0.025, -0.05]),
        (place("4.bn.running_var"), &[1.169_999, 0.93]),
        (format!("grad.{weight}"), &[-1.952_726, -0.271_258, 0.908_553, 0.150_677, 0.133_002, 0.407_428]),
        (format!("grad.{scale}"), &[0.589_792, 1.856_539]),
        (format!("grad.{alpha}"), &[0.027_446, 0.522_642]),
        ("grad.x".to_owned(), &dx),
    ] {
        let values = outputs[&name].to_f64();
        assert_eq!(values.len(), expected.len(), "{name}");
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() < 5e-6, "{name}: {values:?}");
        }
    }
}

#[test]
fn time_buckets_are_rounded_as_by_the_reference() {
    // With 49 buckets, `bucket / 49 * 49` is less than the bucket in f32 for some buckets.
    let buckets = 49;
    let gaps: Vec<f32> = (0..=buckets).flat_map(|k| [k * k * 60, k * k * 60 + 1]).map(|gap| gap as f32).collect();
    let reference = |gap: f32| ((gap.max(1e-6) / 60.0).sqrt() / buckets as f32).clamp(0.0, 1.0) * buckets as f32;
    let expected: Vec<f64> = gaps.iter().map(|&gap| f64::from(reference(gap).trunc())).collect();
    assert!(
        gaps.iter().zip(&expected).any(|(gap, bucket)| f64::from(*gap / 60.0).sqrt() > *bucket && gap % 60.0 == 0.0)
    );
    for dtype in [DType::F32, DType::I64] {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", &scope.size("rows"));
        let times = scope.input("times", dtype, std::slice::from_ref(&rows.total));
        let x = scope.scalar(DType::F32, 0.0).broadcast(&[rows.total.clone(), 1.into()]);
        let tables = [("position", 1), ("time", buckets as usize + 1)];
        let tables = tables.map(|(name, rows)| scope.weight(name, &[rows.into(), 1.into()]));
        let positions = Positions {
            rows: &rows,
            seq_lengths: &rows.lengths,
            num_targets: None,
            interleave_targets: false,
            first: None,
        };
        let time =
            TimeBuckets { timestamps: &times, query_time: None, bucket_fn: TimeBucketFn::Sqrt, increments: 60.0 };
        let y = add_timestamp_positional_embeddings(&scope, &x, tables.each_ref(), 1.0, &positions, 0, &time);
        let graph = scope.finish(&[("y", y)]).unwrap();
        let now = 200_000.0;
        let times: Vec<f32> = gaps.iter().map(|gap| now - gap).chain([now]).collect();
        let times = match dtype {
            DType::I64 => HostTensor::lengths(&times.iter().map(|&time| time as i64).collect::<Vec<_>>()),
            _ => HostTensor::vector(&times),
        };
        let lengths = HostTensor::lengths(&[gaps.len() as i64 + 1]);
        let inputs = [("lengths".to_owned(), lengths), ("times".to_owned(), times)].into();
        let numbers: Vec<f32> = (0..=buckets).map(|bucket| bucket as f32).collect();
        let weights = [
            ("position".to_owned(), HostTensor::f32(vec![1, 1], &[0.0]).unwrap()),
            ("time".to_owned(), HostTensor::f32(vec![numbers.len(), 1], &numbers).unwrap()),
        ];
        let found = interpret(&graph, &inputs, &weights.into()).unwrap()["y"].to_f64();
        assert_eq!(found[..gaps.len()], expected, "{dtype}");
    }
}
