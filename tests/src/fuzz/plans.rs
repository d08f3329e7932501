//! Stored plans, changed in a few places.

use crate::backend::{Tensors, options, oracle, plan, run};
use crate::compare::{Tolerance, differences};
use crate::noise::Noise;
use rewire_emit::emit;
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, RuntimeError};
use serde_json::{Value, json};
use std::sync::OnceLock;

const F32: DType = DType::F32;

/// A plan as stored in a file, with its data.
pub struct Stored {
    /// The plan.
    pub plan: Value,
    /// Inputs of a run.
    pub inputs: Tensors,
    /// Its parameters.
    pub parameters: Tensors,
}

/// A jagged model with a lookup, a product, a norm, a concatenation, attention and a bag.
pub fn stored() -> &'static Stored {
    static STORED: OnceLock<Stored> = OnceLock::new();
    STORED.get_or_init(|| {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", &scope.size("samples"));
        let ids = scope.input("ids", DType::I64, std::slice::from_ref(&rows.total));
        let x = scope.parameter("table", F32, &[11.into(), 6.into()]).gather(&ids);
        let [weight, bias] =
            [("weight", 6), ("bias", 1)].map(|(name, n)| scope.parameter(name, F32, &[n.into(), 8.into()]));
        let h = &x.matmul(&(&weight * 2.0)) + &bias;
        let h = h.softmax(1);
        let heads = h.reshape(&[rows.total.clone(), 2.into(), 4.into()]);
        let causal = rows.row_index(&rows, 2).ge(&rows.key_index(&rows, 2));
        let weights = causal.select(&heads.scores(&heads, &rows, &rows).silu(), &scope.scalar(F32, 0.0));
        let y = weights.weighted_sum(&heads, &rows, &rows).reshape(&[rows.total.clone(), 8.into()]);
        let both = scope.concat(&[&y, &x], 1);
        let outputs = [("y", both), ("bags", x.gather(&ids).jagged_softmax(&rows)), ("lengths", rows.lengths.clone())];
        let graph = scope.finish(&outputs).unwrap();
        let (lengths, total) = ([2i64, 0, 3], 5);
        let inputs: Tensors = [
            ("lengths".to_owned(), HostTensor::lengths(&lengths)),
            ("ids".to_owned(), Noise::new(2, "ids").integers(DType::I64, &[total], 0, 5)),
        ]
        .into();
        let floats = |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(3, name).floats(F32, shape, 1.0));
        let parameters: Tensors =
            [floats("table", &[11, 6]), floats("weight", &[6, 8]), floats("bias", &[1, 8])].into();
        let plan = plan(&graph).unwrap();
        let expected = oracle(&graph, &inputs, &parameters).unwrap();
        let again: Plan = serde_json::from_value(json!(plan)).unwrap();
        assert_eq!(again, plan);
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(options) = options(kernel) else { continue };
            let mut session = Model::load(again.clone(), &parameters, options).unwrap().session();
            let found = differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{kernel}: {found:?}");
        }
        Stored { plan: json!(plan), inputs, parameters }
    })
}

/// The places in a value, by JSON pointer.
pub fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| places(item, &format!("{at}/{n}"), found));
        }
        Value::Object(entries) => {
            entries.iter().for_each(|(key, item)| places(item, &format!("{at}/{}", key.replace('/', "~1")), found));
        }
        _ => {}
    }
}

/// Changes one value. Numbers become one of `numbers`.
fn change(value: &mut Value, numbers: &[i64], choice: u64) {
    let number = || json!(numbers[(choice >> 8) as usize % numbers.len()]);
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = (choice >> 8) as usize % items.len();
            match choice % 4 {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(at, 0),
                _ => items.clear(),
            }
        }
        Value::Object(entries) if choice.is_multiple_of(3) => {
            let key = entries.keys().nth((choice >> 8) as usize % entries.len().max(1)).cloned();
            key.map(|key| entries.remove(&key));
        }
        Value::Bool(truth) => *truth = !*truth,
        Value::String(text) => {
            let other = [
                "x", "ids", "table", "Add", "F16", "BF16", "Rows8", "Rows4", "I32", "I64", "Host", "Device", "Pooled",
                "Scores", "Sum",
            ];
            *text = other[(choice >> 8) as usize % other.len()].to_owned();
        }
        Value::Null => *value = json!([0, 3]),
        _ => *value = number(),
    }
}

/// A plan with changes, each at a position and with a choice. Numbers become one of `numbers`.
pub fn changed(plan: &Value, numbers: &[i64], choices: &[(usize, u64)]) -> Value {
    let mut plan = plan.clone();
    for &(place, choice) in choices {
        let mut found = vec![];
        places(&plan, "", &mut found);
        if let Some(value) = plan.pointer_mut(&found[place % found.len()]) {
            change(value, numbers, choice);
        }
    }
    plan
}

/// Numbers that may be sizes and positions.
pub const SMALL: &[i64] = &[0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 16, 31, 64, -1, -3];
/// Numbers that overflow something.
pub const ABSURD: &[i64] = &[
    -1,
    31,
    32,
    255,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    u32::MAX as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
];

/// Loads a plan on the CPU.
pub fn load(plan: Plan) -> Result<Model, RuntimeError> {
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Model::load(plan, &stored().parameters, options)
}

/// Emits all kernels of a plan.
pub fn emitted(plan: &Plan) {
    for step in &plan.steps {
        drop(emit(&step.computation, &Target::BASELINE, &Tuning::default()));
    }
}

/// Loads and runs the stored plan with decoded changes, eight bytes each.
pub(super) fn run_changed(data: &[u8]) {
    let choices: Vec<(usize, u64)> = data
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .map(|bits| ((bits & 0xffff) as usize, bits >> 16))
        .collect();
    let numbers = if data.len().is_multiple_of(2) { SMALL } else { ABSURD };
    let Ok(plan) = serde_json::from_value::<Plan>(changed(&stored().plan, numbers, &choices)) else { return };
    emitted(&plan);
    let Ok(model) = load(plan) else { return };
    if numbers == SMALL {
        let inputs: Inputs = stored().inputs.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        drop(model.session().run(&inputs));
    }
}

/// One to six changes with numbers of either kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bytes = |seed| {
        let mut noise = Noise::new(seed, "plan");
        let count = 8 * noise.below(1, 7) + noise.below(0, 2);
        (0..count).map(|_| noise.bits() as u8).collect()
    };
    (0..40).map(bytes).collect()
}
