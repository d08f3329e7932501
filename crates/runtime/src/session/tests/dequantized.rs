//! Parameters of 8 bits that kernels read as f16.

use super::{gpu, options};
use crate::model::Emitter;
use crate::{Inputs, Kernel, Model, block_on};
use rewire_emit::{ParsedKernel, emit};
use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::device::{BindingSource, EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{Computation, Plan, Precision, Step};
use rewire_graph_rewrite::{lower, optimize};

/// Of a weight that is not pooled with others.
const WIDTH: usize = 272;

/// Two products of the same weight, in 8 bits.
fn plan() -> Plan {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), WIDTH));
    let weight = scope.parameter("weight", DType::F32, [WIDTH, WIDTH]);
    let y = x.matmul(&weight);
    let graph = scope.finish(&[("y", y.clone()), ("z", y.matmul(&weight))]).unwrap();
    let mut plan = lower(&optimize(graph).unwrap().0).unwrap();
    plan.store(Precision { weights: Some(DType::Rows8), ..Precision::default() }, |_| None);
    plan
}

fn weight(seed: usize) -> HostTensor {
    let values: Vec<f32> = (0..WIDTH * WIDTH).map(|n| ((n * 7 + seed) % 23) as f32 / 16.0 - 0.6).collect();
    HostTensor::f32(vec![WIDTH, WIDTH], &values).unwrap()
}

/// The kernel of a step as of devices whose workgroups share matrices: the weight is f16.
fn emit_dequantized(number: usize, step: &Step, target: &Target, tuning: &Tuning) -> Result<ParsedKernel, String> {
    let mut computation = step.computation.clone();
    let Computation::Nest(kernel) = &mut computation else { return Err("it is not a nest".to_owned()) };
    let weight = kernel.body.operands.iter().position(|operand| operand.dtype == DType::Rows8);
    let position = weight.ok_or("there is no weight")?;
    // Of the two products, one reads it as it lies, the other one transposed.
    let transposed = number == 0;
    let edited = kernel.edit(|nest| {
        nest.body.operands[position].dtype = DType::F16;
        if transposed {
            nest.body.dag.transpose(|operand| usize::from(operand) == position);
        }
    });
    edited.map_err(|error| error.to_string())?;
    let emitted = emit(&computation, target, tuning).map_err(|error| error.to_string())?;
    let slot = |slot| match slot {
        BindingSource::Operand(operand) if usize::from(operand) == position => {
            BindingSource::Dequantized { operand, transposed }
        }
        slot => slot,
    };
    let slots = emitted.slots.iter().copied().map(slot).collect();
    ParsedKernel::parse(EmittedKernel { slots, ..emitted }).map_err(|error| error.to_string())
}

/// What two products by a weight as f16, of numbers that f16 holds, may differ from those by the rows.
fn is_near(results: [&HostTensor; 2]) -> bool {
    let [a, b] = results.map(HostTensor::to_f32);
    let largest = b.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    largest > 1.0 && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 2e-3 * largest)
}

#[test]
fn weights_are_f16_where_kernels_read_them_so() {
    let Some(gpu) = gpu() else { return };
    let second_stored = |position: usize, step: &Step, target: &Target, tuning: &Tuning| match position {
        1 => {
            let emitted = emit(&step.computation, target, tuning).map_err(|error| error.to_string())?;
            ParsedKernel::parse(emitted).map_err(|error| error.to_string())
        }
        _ => emit_dequantized(position, step, target, tuning),
    };
    // Bytes of a number of the weight: f16 in both ways, and in one way beside rows of 8 bits.
    let emitters: [(Emitter<'_>, usize); 2] = [(&emit_dequantized, 4), (&second_stored, 3)];
    let values: Vec<f32> = (0..37 * WIDTH).map(|n| ((n * 5) % 13) as f32 - 6.0).collect();
    let inputs = Inputs::new().with("x", HostTensor::f32(vec![37, WIDTH], &values).unwrap());
    let given = |name: &str| (name == "weight").then(|| weight(0));
    let plain = Model::load(plan(), given, options(Kernel::Cpu)).unwrap();
    let expected = plain.session().run(&inputs).unwrap();
    for (emitter, bytes) in emitters {
        let loading = Model::load_with(plan(), Some(gpu.clone()), given, options(Kernel::Wgpu), emitter);
        let model = block_on(loading).unwrap();
        let results = model.session().run(&inputs).unwrap();
        for name in ["y", "z"] {
            assert!(is_near([results.get(name).unwrap(), expected.get(name).unwrap()]), "{name}");
        }
        let held = model.report().device_bytes as usize;
        let scales = if bytes == 4 { 0 } else { WIDTH * 8 };
        assert_eq!(held, bytes * WIDTH * WIDTH + scales, "what nobody reads is not there");
        // Replaced parameters are f16 as well.
        model.update([("weight", weight(5))]).unwrap();
        let changed = model.session().run(&inputs).unwrap();
        let other =
            Model::load(plan(), |name: &str| (name == "weight").then(|| weight(5)), options(Kernel::Cpu)).unwrap();
        let other = other.session().run(&inputs).unwrap();
        for name in ["y", "z"] {
            assert!(is_near([changed.get(name).unwrap(), other.get(name).unwrap()]), "{name} after an update");
            assert!(!is_near([changed.get(name).unwrap(), expected.get(name).unwrap()]), "{name} changes");
        }
    }
}
