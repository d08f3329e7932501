//! Updates of parameters: small parameters are updated by one kernel, and state names are unique.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, ModelOptions, ThreadPool, ThreadPoolOptions};
use rewire_train::{Objective, StepError, TrainConfig, TrainError, Trainer};
use serde_json::{Value, json};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

const WIDTH: usize = 6;

/// Number of kernels in a step of `count` layers, of which `learned` are trained: all kernels, and kernels other than sums.
fn kernels(count: usize, learned: usize, keys: &str) -> (usize, usize) {
    let scope = Scope::new();
    let mut x = scope.input("x", DType::F32, [scope.size("rows"), WIDTH.into()]);
    let mut frozen = vec![];
    for layer in 0..count {
        let [matrix, bias] = ["weight", "bias"].map(|name| format!("{layer}.{name}"));
        let weight = scope.parameter(&matrix, DType::F32, [WIDTH, WIDTH]);
        x = (x.matmul(&weight) + scope.parameter(&bias, DType::F32, [WIDTH])).tanh();
        frozen.extend([matrix, bias].into_iter().filter(|_| layer >= learned));
    }
    let loss = x.square().sum(1).mean(0);
    let objective = Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss").frozen(frozen);
    let config = format!(
        r#"{{ "batch_size": 2, "steps": 4, {keys} "dense_optimizer": {{ "adam_optimizer": {{ "lr": 0.1 }} }},
            "sparse_optimizer": {{ "sgd_optimizer": {{ "lr": 0.1 }} }} }}"#
    );
    let begin = |name: &str| {
        let shape = if name.ends_with("bias") { vec![WIDTH] } else { vec![WIDTH, WIDTH] };
        HostTensor::f32(shape.clone(), &vec![0.125; shape.iter().product()]).ok()
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let trainer = Trainer::new(&objective, &TrainConfig::from_json(&config).unwrap(), begin, options).unwrap();
    let steps = &trainer.plan().steps;
    let is_sum = |name: &str| ["reduce", "segment_sum", "matmul", "jagged_jagged_matmul", "addmm"].contains(&name);
    (steps.len(), steps.iter().filter(|step| !is_sum(&step.name)).count())
}

#[test]
fn kernels_grow_by_a_half_a_parameter() {
    let [few, all] = [4, 16].map(|learned| kernels(16, learned, ""));
    let more = 2 * 12;
    assert!(all.1 - few.1 <= more / 2 + 1, "{few:?}, {all:?}: for {more} parameters more");
    // A norm of all gradients needs the same number of kernels for any number of gradients.
    for (learned, plain) in [(4, few), (16, all)] {
        let clipped = kernels(16, learned, r#""grad_clipping": { "clipping_type": "norm", "max_gradient": 1.0 },"#);
        assert!(clipped.0 <= plain.0 + 2, "{clipped:?}, {plain:?}");
    }
}

/// Dense optimizers that cover every set of states.
fn dense_optimizers() -> Vec<Value> {
    vec![
        json!({ "sgd_optimizer": { "lr": 0.1 } }),
        json!({ "sgd_optimizer": { "lr": 0.1, "momentum": 0.9, "dampening": 0.5 } }),
        json!({ "adagrad_optimizer": { "lr": 0.1 } }),
        json!({ "adam_optimizer": { "lr": 0.1 } }),
        json!({ "adamw_optimizer": { "lr": 0.1 } }),
        json!({ "adadelta_optimizer": { "lr": 1, "eps": 1e-3 } }),
        json!({ "rmsprop_optimizer": { "lr": 0.1 } }),
        json!({ "rmsprop_optimizer": { "lr": 0.1, "momentum": 0.5 } }),
        json!({ "rmsprop_optimizer": { "lr": 0.1, "momentum": 0.5, "centered": true, "eps": 1e-3 } }),
    ]
}

const SPARSE: [&str; 5] = ["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam"];

/// Shape of the table.
const TABLE: [usize; 2] = [5, 3];

/// `mean((table[id] * weight + x large - y)^2)`; `large` is too large to be updated together with other parameters.
fn objective(weight: &str) -> Objective {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let ids = scope.input("id", DType::U32, [&rows]);
    let [y, x] = [("y", TABLE[1]), ("x", 1100)].map(|(name, width)| scope.input(name, DType::F32, (&rows, width)));
    let table = scope.parameter("table", DType::F32, TABLE);
    let scaled = table.gather(&ids) * scope.parameter(weight, DType::F32, [TABLE[1]]);
    let error = scaled + x.matmul(&scope.parameter("large", DType::F32, [1100, TABLE[1]])) - y;
    let loss = error.square().sum(1).mean(0);
    Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss").tables(["table"])
}

fn trainer(objective: &Objective, config: &Value) -> Result<Trainer, TrainError> {
    let begin = |name: &str| {
        let shape = match name {
            "table" => TABLE.to_vec(),
            "large" => vec![1100, TABLE[1]],
            _ => vec![TABLE[1]],
        };
        let values: Vec<f32> = (0..shape.iter().product()).map(|n: usize| (n % 7) as f32 * 0.125 - 0.25).collect();
        HostTensor::f32(shape, &values).ok()
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Trainer::new(objective, &TrainConfig::from_json(&config.to_string()).unwrap(), begin, options)
}

/// A batch of `rows`: an id, the target `y`, and the input `x` of the large parameter.
fn batch(rows: std::ops::Range<usize>) -> Inputs {
    let count = rows.len();
    let values = |width: usize, unit: f32| -> Vec<f32> {
        rows.clone().flat_map(|row| (0..width).map(move |n| ((row * 5 + n * 3) % 11) as f32 * unit - unit)).collect()
    };
    let ids: Vec<u32> = rows.clone().map(|row| (row * 3 % TABLE[0]) as u32).collect();
    Inputs::new()
        .with("id", HostTensor::vector(&ids))
        .with("y", HostTensor::f32([count, TABLE[1]], &values(TABLE[1], 0.25)).unwrap())
        .with("x", HostTensor::f32([count, 1100], &values(1100, 0.01)).unwrap())
}

/// Parameters and averages after two steps of eight rows, in batches of `rows` rows.
fn learned(config: &Value, rows: usize) -> BTreeMap<String, Vec<f32>> {
    let mut trainer = trainer(&objective("weight"), config).unwrap_or_else(|error| panic!("{config}: {error}"));
    let mut preparer = trainer.preparer();
    for step in 0..2 {
        let batches = (0..8 / rows).map(|part| batch(step * 8 + part * rows..step * 8 + (part + 1) * rows));
        let report = trainer.step(preparer.prepare(batches.collect()).unwrap()).unwrap();
        assert!(!report.overflowed);
    }
    let values = |all: BTreeMap<String, HostTensor>, kind: &str| -> BTreeMap<String, Vec<f32>> {
        all.into_iter().map(|(name, tensor)| (format!("{kind}{name}"), tensor.to_f32())).collect()
    };
    let mut all = values(trainer.parameters().unwrap(), "");
    all.extend(values(trainer.averages().unwrap(), "average of "));
    all
}

#[test]
fn all_optimizers_accumulate_with_all_that_a_step_keeps() {
    for (number, dense) in dense_optimizers().into_iter().enumerate() {
        for (at, sparse) in SPARSE.into_iter().enumerate() {
            let mut config = json!({
                "batch_size": 4, "steps": 2, "dense_optimizer": dense,
                "sparse_optimizer": { format!("{sparse}_optimizer"): { "lr": 0.1 } },
                "grad_clipping": { "clipping_type": "norm", "max_gradient": 1.0 },
                "ema": { "decay": 0.5 }, "grad_scaler": { "init_scale": 8.0 },
            });
            let is_compared = at == number % SPARSE.len();
            let whole = is_compared.then(|| learned(&config, 8));
            config["gradient_accumulation_steps"] = json!(2);
            let summed = learned(&config, 4);
            let Some(whole) = whole else { continue };
            assert_eq!(whole.keys().collect::<Vec<_>>(), summed.keys().collect::<Vec<_>>());
            assert_eq!(whole.len(), 5);
            for (name, whole) in &whole {
                for (a, b) in whole.iter().zip(&summed[name]) {
                    assert!((a - b).abs() < 1e-4, "{config}: {name}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn parameters_may_have_the_names_of_what_a_step_keeps() {
    for name in
        ["sum.table", "exp_avg.table", "sum.large", "ema.large", "last", "finite", "dense", "small:dense", "reported"]
    {
        let config = json!({
            "batch_size": 4, "steps": 2, "dense_optimizer": { "adam_optimizer": { "lr": 0.1 } },
            "sparse_optimizer": { "adagrad_optimizer": { "lr": 0.1 } }, "ema": { "decay": 0.5 },
            "gradient_accumulation_steps": 2, "grad_scaler": {},
        });
        let mut trainer = trainer(&objective(name), &config).unwrap_or_else(|error| panic!("{name}: {error}"));
        let prepared = trainer.preparer().prepare(vec![batch(0..4), batch(4..8)]).unwrap();
        trainer.step(prepared).unwrap();
        assert!(trainer.parameters().unwrap().contains_key(name));
    }
}

#[test]
fn names_that_steps_use_are_refused() {
    let config = json!({
        "batch_size": 4, "steps": 2, "dense_optimizer": { "adam_optimizer": { "lr": 0.1 } },
        "sparse_optimizer": { "sgd_optimizer": { "lr": 0.1 } },
    });
    let error = trainer(&objective("train:moment:exp_avg:table"), &config).unwrap_err();
    let TrainError::Step(error) = error else { panic!("{error}") };
    assert!(matches!(*error, StepError::Reserved { .. }), "{error}");
    assert!(error.to_string().contains("`train:moment:exp_avg:table` begins with `train:`"), "{error}");
}

/// `mean over rows of (x . (a + b) + sum of table[id])`, with a running mean of `x` as a state. Gradients do not depend on parameters.
fn linear() -> Objective {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let [x, table] = [
        scope.input("x", DType::F32, (&rows, 2)),
        scope.parameter("table", DType::F32, [3, 2]).gather(&scope.input("id", DType::U32, [&rows])),
    ];
    let weights = scope.parameter("a", DType::F32, [2]) + scope.parameter("b", DType::F32, [2]);
    let loss = ((&x * weights) + table).sum(1).mean(0);
    let running = scope.state("running", DType::F32, [2]);
    scope.set_state("running", &(running * 0.5 + x.mean(0).reshape([2]) * 0.5));
    Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss").tables(["table"])
}

fn linear_trainer(keys: &Value) -> Trainer {
    let mut config = json!({
        "batch_size": 2, "steps": 4, "sparse_optimizer": { "sgd_optimizer": { "lr": 1.0 } },
        "dense_optimizer": { "sgd_optimizer": { "lr": 1.0 } },
    });
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    let begin = |name: &str| match name {
        "table" => HostTensor::f32([3, 2], &[0.0; 6]).ok(),
        "running" => HostTensor::f32([2], &[8.0, 4.0]).ok(),
        _ => HostTensor::f32([2], &[0.0; 2]).ok(),
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Trainer::new(&linear(), &TrainConfig::from_json(&config.to_string()).unwrap(), begin, options).unwrap()
}

/// Two rows with `x` `[first, -1]` that look up row 0 and row `id`.
fn linear_batch(first: f32, id: u32) -> Inputs {
    Inputs::new()
        .with("x", HostTensor::f32([2, 2], &[first, -1.0, first, -1.0]).unwrap())
        .with("id", HostTensor::vector(&[0u32, id]))
}

fn values(trainer: &Trainer, name: &str) -> Vec<f32> {
    trainer.parameters().unwrap()[name].to_f32()
}

#[test]
fn parts_have_optimizers_and_rates_of_their_own() {
    let parts = json!([
        { "parameters": ["b"], "sgd_optimizer": { "lr": 0.25 },
          "manual_step_learning_rate": { "schedule_sizes": [0], "learning_rates": [0.5], "by_epoch": true } },
        { "parameters": ["a", "b"], "adam_optimizer": { "lr": 0.125, "eps": 0.0 } },
    ]);
    let mut trainer = linear_trainer(&json!({ "part_optimizers": parts }));
    let mut preparer = trainer.preparer();
    for epoch in 0..2 {
        let prepared = preparer.prepare(vec![linear_batch(2.0, 1)]).unwrap();
        trainer.step(prepared.of_epoch(epoch)).unwrap();
    }
    // Adam's steps have the size of the rate. Gradient descent steps are 0.25 g, and 0.5 g in the second epoch.
    for (actual, expected) in values(&trainer, "a").iter().zip([-0.25, 0.25]) {
        assert!((actual - expected).abs() < 1e-5, "{actual} {expected}");
    }
    assert_eq!(values(&trainer, "b"), [-1.5, 0.75]);
}

#[test]
fn fused_tables_do_not_wait_for_other_batches() {
    let mut trainer = linear_trainer(&json!({ "gradient_accumulation_steps": 2, "fused_tables": true }));
    let mut preparer = trainer.preparer();
    let mut seen = vec![];
    for (first, id) in [(2.0, 1), (6.0, 2), (10.0, 2)] {
        let report = trainer.step(preparer.prepare(vec![linear_batch(first, id)]).unwrap()).unwrap();
        seen.push((report.loss, values(&trainer, "a"), values(&trainer, "table")));
    }
    // Each batch moves its two rows by 0.5 / 2: their gradient, divided by the number of batches. `a` moves only after the second batch, by
    // the mean gradient.
    assert_eq!(seen[0].1, [0.0, 0.0]);
    assert_eq!(seen[0].2, [-0.25, -0.25, -0.25, -0.25, 0.0, 0.0]);
    assert_eq!(seen[1].1, [-4.0, 1.0]);
    assert_eq!(seen[1].2, [-0.5, -0.5, -0.25, -0.25, -0.25, -0.25]);
    assert_eq!(seen[2].1, [-4.0, 1.0]);
    // The second batch reads the tables as updated by the first one.
    assert_eq!(seen[1].0, -0.25);
}

#[test]
fn states_that_the_model_sets_follow_every_batch_and_are_resumed() {
    let mut trainer = linear_trainer(&json!({}));
    let mut preparer = trainer.preparer();
    trainer.step(preparer.prepare(vec![linear_batch(2.0, 1)]).unwrap()).unwrap();
    assert_eq!(values(&trainer, "running"), [5.0, 1.5]);
    let kept = trainer.states().unwrap();
    let mut other = linear_trainer(&json!({}));
    other.resume(1, |name| kept.get(name).cloned()).unwrap();
    for trainer in [&mut trainer, &mut other] {
        trainer.step(preparer.prepare(vec![linear_batch(1.0, 2)]).unwrap()).unwrap();
        assert_eq!(values(trainer, "running"), [3.0, 0.25]);
    }
    assert_eq!(values(&trainer, "a"), values(&other, "a"));
}

#[test]
fn a_rate_of_0_stays() {
    let decay = json!({ "sgd_optimizer": { "lr": 0.0 },
        "manual_step_learning_rate": { "schedule_sizes": [0], "learning_rates": [1.0] } });
    let mut trainer = linear_trainer(&json!({ "dense_optimizer": decay }));
    let mut preparer = trainer.preparer();
    for _ in 0..3 {
        trainer.step(preparer.prepare(vec![linear_batch(2.0, 1)]).unwrap()).unwrap();
    }
    assert_eq!(values(&trainer, "a"), [0.0, 0.0]);
}

/// An allocator that counts the live bytes of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no count.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the pointer came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn memory_does_not_grow_over_a_thousand_steps() {
    const STEPS: usize = 1_000;
    let config = json!({
        "batch_size": 4, "steps": STEPS, "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
        "sparse_optimizer": { "adam_optimizer": { "lr": 0.01 } },
    });
    // Each thread has its own registers, and the participating threads vary per step; a single thread has all of them.
    let alone = ThreadPool::new(ThreadPoolOptions { threads: Some(1), ..ThreadPoolOptions::default() }).unwrap();
    let mut bytes = Vec::with_capacity(STEPS);
    alone.install(|| {
        let mut trainer = trainer(&objective("weight"), &config).unwrap();
        let mut preparer = trainer.preparer();
        let step = |step: usize| {
            let rows = 4 + step % 5;
            trainer.step(preparer.prepare(vec![batch(step..step + rows)]).unwrap()).unwrap();
            let report = trainer.report();
            (report.host_bytes, report.device_bytes, report.scratch_bytes, LIVE.get())
        };
        bytes.extend((0..STEPS).map(step));
    });
    // Five batch sizes alternate, and all of them occurred in the first ten steps.
    let grown = (15..STEPS).find(|&step| bytes[step] != bytes[step - 5]);
    assert_eq!(grown, None, "{:?}", &bytes[..20]);
}
