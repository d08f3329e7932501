use super::*;
use crate::model::{Emitter, open};
use crate::{Gpu, GpuError, Kernel, Model, ModelOptions, RunError, RuntimeError};
use rewire_emit::ParsedKernel;
use rewire_graph::pointwise::{BinaryOp, Dag};
use rewire_graph::{DType, Dim, Symbol};
use rewire_graph_rewrite::device::{BindingSource, EmittedKernel, GridFactor, Param, Target, Tuning};
use rewire_graph_rewrite::plan::{
    self, Binding, Body, Buffer, BufferId, HostSlot, MemorySpace, Nest, Operand, Output, PlanOutput, ShapeEntry,
    Source, Step, SymbolSource,
};
use std::collections::BTreeSet;
use std::sync::OnceLock;

mod dequantized;
mod encode;
mod errors;
mod faults;
mod matmul;
mod shared;
mod tune;
mod waiting;

pub(crate) use matmul::product;

const WIDTH: usize = 6;

/// Rows of the tensors of the tests; the extent of input `x`.
fn rows() -> Dim {
    Dim::symbol(Symbol(0))
}

/// `a + b` of tensors of shape `[rows, WIDTH]`.
fn add() -> plan::Computation {
    let shape: Vec<Dim> = vec![rows(), WIDTH.into()];
    let mut dag = Dag::new();
    let index = vec![dag.coord(0, None), dag.coord(1, Some(WIDTH))];
    let a = dag.load(0, DType::F32, index.clone());
    let b = dag.load(1, DType::F32, index.clone());
    let value = dag.binary(BinaryOp::Add, a, b);
    let operand = Operand { dtype: DType::F32, shape: shape.clone(), space: MemorySpace::Device };
    plan::Computation::of(Nest::map(
        Body { dag, operands: vec![operand.clone(), operand], sizes: vec![] },
        shape.clone(),
        vec![Output { target: 0, dtype: DType::F32, shape, index, value, columns: None }],
    ))
    .unwrap()
}

/// A stub emitter for [`add`]: eight elements per workgroup, so that grids are large.
fn emit_add(_: usize, _: &Step, _: &Target, _: &Tuning) -> Result<ParsedKernel, String> {
    parsed(EmittedKernel {
        wgsl: "
@group(0) @binding(0) var<uniform> params: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;
@compute @workgroup_size(2)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let flat = group.x + group.y * groups.x;
    if flat < u32(params[0].y) {
        let at = flat * 2u + lane;
        c[at] = a[at] + b[at];
    }
}"
        .into(),
        params: vec![Param::Dim(rows()), Param::Workgroups],
        slots: vec![BindingSource::Operand(0), BindingSource::Operand(1), BindingSource::Output(0)],
        tile_lists: vec![],
        grid: vec![GridFactor::Tiles(vec![rows() * 8], 8)],
        unchecked: true,
        extension: None,
    })
}

fn parsed(kernel: EmittedKernel) -> Result<ParsedKernel, String> {
    ParsedKernel::parse(kernel).map_err(|error| error.to_string())
}

fn load_with(plan: Plan, options: ModelOptions, emitter: Emitter) -> Result<Session, RuntimeError> {
    let gpu = options.gpu.clone().filter(|_| options.kernel != Kernel::Cpu);
    block_on(Model::load_with(plan, gpu, (), options, emitter)).map(|model| model.session())
}

/// Sums of earlier tensors: entry `n` lists the operands of step `n`. Tensors 0 and 1 are the input and a parameter
/// with one row per row of the input; tensor `n + 2` is the result of step `n`.
fn sums(steps: &[(u32, u32)], outputs: &[u32]) -> Plan {
    let buffer = |source| Buffer { dtype: DType::F32, shape: vec![rows(), WIDTH.into()], source };
    let mut buffers = vec![buffer(Source::Input("x".into())), buffer(Source::Input("y".into()))];
    buffers.extend(steps.iter().map(|_| buffer(Source::Step)));
    let read = |id| Binding::Buffer(BufferId(id));
    Plan {
        load: vec![],
        shapes: plan::ShapeProgram {
            entries: vec![ShapeEntry::Define {
                symbol: Symbol(0),
                source: SymbolSource::Extent { input: "x".into(), axis: 0 },
            }],
            slots: 0,
            ..plan::ShapeProgram::default()
        },
        steps: (2..)
            .zip(steps)
            .map(|(id, &(a, b))| Step {
                name: format!("add {id}"),
                path: "model".into(),
                computation: add(),
                reads: vec![read(a), read(b)],
                writes: vec![BufferId(id)],
            })
            .collect(),
        outputs: outputs
            .iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|&id| PlanOutput {
                name: format!("t{id}"),
                value: read(id),
                dtype: DType::F32,
                shape: vec![rows(), WIDTH.into()],
            })
            .collect(),
        buffers,
        host_inputs: vec![],
        ..Plan::default()
    }
}

fn tensor(rows: usize, seed: usize) -> HostTensor {
    let values: Vec<f32> = (0..rows * WIDTH).map(|n| ((n * 7 + seed * 13) % 32) as f32).collect();
    HostTensor::f32(vec![rows, WIDTH], &values).unwrap()
}

fn inputs(rows: usize) -> Inputs {
    Inputs::new().with("x", tensor(rows, 1)).with("y", tensor(rows, 2))
}

/// All tensors of [`sums`], computed directly.
fn expected(steps: &[(u32, u32)], rows: usize) -> Vec<Vec<f32>> {
    let mut tensors = vec![tensor(rows, 1).to_f32(), tensor(rows, 2).to_f32()];
    for &(a, b) in steps {
        let sum = tensors[a as usize].iter().zip(&tensors[b as usize]).map(|(a, b)| a + b).collect();
        tensors.push(sum);
    }
    tensors
}

/// The adapter of the tests, if the machine has one.
fn gpu() -> Option<Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    GPU.get_or_init(|| Gpu::open(None).ok()).clone()
}

fn options(kernel: Kernel) -> ModelOptions {
    ModelOptions { kernel, gpu: gpu(), checked: true, ..ModelOptions::default() }
}

fn load(plan: Plan, kernel: Kernel) -> Result<Session, RuntimeError> {
    load_with(plan, options(kernel), &emit_add)
}

/// Sessions on the CPU, on the adapter if there is one, and alternating between both.
fn sessions(plan: &Plan) -> Vec<Session> {
    let mut sessions = vec![load(plan.clone(), Kernel::Cpu).unwrap()];
    if gpu().is_some() {
        sessions.push(load(plan.clone(), Kernel::Wgpu).unwrap());
        let every_other = |position: usize, step: &Step, target: &Target, tuning: &Tuning| match position % 3 {
            1 => Err("not this one".to_owned()),
            _ => emit_add(position, step, target, tuning),
        };
        sessions.push(load_with(plan.clone(), options(Kernel::Auto), &every_other).unwrap());
    }
    sessions
}

#[test]
fn a_session_is_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let mut session = send(load(sums(&[(0, 1)], &[2]), Kernel::Cpu).unwrap());
    drop(send(session.run_async(&inputs(1))));
    drop(send(Model::load_async(Plan::default(), (), options(Kernel::Cpu))));
}

#[test]
fn random_chains_agree_at_growing_and_shrinking_sizes() {
    let mut state = 12345u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % below) as u32
    };
    for _ in 0..12 {
        let count = 1 + random(12);
        // Sums of recent tensors, so that values stay exact and lifetimes end.
        let steps: Vec<(u32, u32)> =
            (0..count).map(|n| (random(u64::from(n) + 2), n + 1 - random(2.min(u64::from(n) + 1)))).collect();
        let outputs = [random(u64::from(count)) + 2, count + 1];
        let plan = sums(&steps, &outputs);
        for mut session in sessions(&plan) {
            for (run, rows) in [3, 0, 40, 1, 7].into_iter().enumerate() {
                let mut inputs = inputs(rows);
                if run % 2 == 0 && session.report().adapter.is_some() {
                    inputs.keep_on_device(format!("t{}", outputs[run / 2 % 2]));
                }
                let result = session.run(&inputs).unwrap();
                let expected = expected(&steps, rows);
                for id in outputs {
                    let name = format!("t{id}");
                    let got = match result.value(&name).unwrap() {
                        RunValue::Host(tensor) => tensor.clone(),
                        RunValue::Device(tensor) => block_on(session.read_async(tensor)).unwrap(),
                    };
                    assert_eq!(got.shape(), [rows, WIDTH]);
                    assert_eq!(got.to_f32(), expected[id as usize], "{name} of {steps:?} in {:?}", session.report());
                }
            }
        }
    }
}

#[test]
fn a_chain_shares_memory() {
    if gpu().is_none() {
        return;
    }
    let chain: Vec<(u32, u32)> = (0..20).map(|n| (n + 1, 0)).collect();
    let mut session = load(sums(&chain, &[21]), Kernel::Wgpu).unwrap();
    session.run(&inputs(1000)).unwrap();
    let tensor = 1000 * 8 * 4;
    let report = session.report();
    assert_eq!((report.gpu_steps, report.cpu_steps), (20, 0));
    assert!(report.device_bytes < 6 * tensor, "{report:?}");
    session.trim();
    assert_eq!(session.report().device_bytes, 0);
    assert!(session.run(&inputs(3)).is_ok());
}

#[test]
fn grids_beyond_one_dimension_fold() {
    if gpu().is_none() {
        return;
    }
    let rows = 70_001;
    let mut session = load(sums(&[(0, 1)], &[2]), Kernel::Wgpu).unwrap();
    let result = session.run(&inputs(rows)).unwrap();
    assert_eq!(result.get("t2").unwrap().to_f32(), expected(&[(0, 1)], rows)[2]);
}

#[test]
fn device_tensors_pass_from_run_to_run() {
    if gpu().is_none() {
        return;
    }
    let steps = [(0, 1), (2, 0)];
    let mut on_gpu = load(sums(&steps, &[2, 3]), Kernel::Wgpu).unwrap();
    let mut first = inputs(5);
    first.keep_on_device("t3");
    let result = on_gpu.run(&first).unwrap();
    assert!(result.get("t3").is_none());
    let Some(RunValue::Device(kept)) = result.value("t3").cloned() else { panic!("not on the device") };
    assert_eq!(block_on(on_gpu.read_async(&kept)).unwrap().to_f32(), expected(&steps, 5)[3]);

    let mut second = Inputs::new().with("y", tensor(5, 2));
    second.insert_device("x", kept);
    let sum: Vec<f32> = expected(&steps, 5)[3].iter().zip(tensor(5, 2).to_f32()).map(|(a, b)| a + b).collect();
    assert_eq!(on_gpu.run(&second).unwrap().get("t2").unwrap().to_f32(), sum);
    assert_eq!(on_gpu.run(&inputs(5)).unwrap().get("t2").unwrap().to_f32(), expected(&steps, 5)[2]);
    let mut on_cpu = load(sums(&steps, &[2]), Kernel::Cpu).unwrap();
    assert!(matches!(on_cpu.run(&second), Err(RunError::InputPlace { name, .. }) if name == "x"));
}

#[test]
fn wrong_inputs_are_named() {
    let plan = sums(&[(0, 1)], &[2]);
    for mut session in sessions(&plan) {
        let mut run = |inputs: Inputs| session.run(&inputs).unwrap_err();
        let missing = run(Inputs::new().with("x", tensor(2, 1)));
        assert_eq!(missing.to_string(), "input `y` is missing: expected f32 [s0, 6]");
        let misspelt = run(Inputs::new().with("x", tensor(2, 1)).with("ys", tensor(2, 1)).with("other", tensor(2, 1)));
        assert!(matches!(&misspelt, RunError::MissingInput { unread, .. } if *unread == ["ys", "other"]), "{misspelt}");
        assert!(misspelt.to_string().ends_with("; `ys`, `other` were given, which the plan does not read"));
        let shape = run(inputs(2).with("y", tensor(3, 1)));
        assert_eq!(shape.to_string(), "input `y`: expected shape [2, 6] = [s0, 6], got [3, 6]");
        let rank = run(inputs(2).with("x", HostTensor::f32(vec![12], &[0.0; 12]).unwrap()));
        assert!(matches!(&rank, RunError::InputShape { name, .. } if name == "x"), "{rank}");
        let dtype = run(inputs(2).with("x", HostTensor::i64(vec![2, 6], &[0; 12]).unwrap()));
        assert_eq!(dtype.to_string(), "input `x`: expected f32, got i64");
        let mut kept = inputs(2);
        kept.keep_on_device("nothing");
        assert!(session.run(&kept).is_err());
        assert!(session.run(&inputs(2)).is_ok());
    }
}

#[test]
fn wrong_plans_do_not_load() {
    let mut early = sums(&[(0, 1), (0, 1)], &[2]);
    early.steps[0].reads[1] = Binding::Buffer(BufferId(3));
    let mut own = sums(&[(0, 1)], &[2]);
    own.steps[0].reads[1] = Binding::Buffer(BufferId(2));
    let mut beyond = sums(&[(0, 1)], &[2]);
    beyond.steps[0].writes[0] = BufferId(9);
    let mut missing = sums(&[(0, 1)], &[2]);
    missing.steps[0].reads.pop();
    let mut output = sums(&[(0, 1)], &[2]);
    output.outputs[0].value = Binding::Host(HostSlot(4));
    for plan in [early, own, beyond, missing, output] {
        let error = load(plan, Kernel::Cpu).unwrap_err();
        assert!(matches!(error, RuntimeError::Plan { .. }), "{error}");
    }
}

#[test]
fn a_refused_step_is_an_error_only_with_wgpu() {
    if gpu().is_none() {
        return;
    }
    let refuse = |_: usize, _: &Step, _: &Target, _: &Tuning| Err("too wide".to_owned());
    let broken = |position: usize, step: &Step, target: &Target, tuning: &Tuning| {
        let emitted = emit_add(position, step, target, tuning)?;
        parsed(EmittedKernel { wgsl: "fn nonsense() {}".into(), ..emitted.kernel })
    };
    let load = |kernel, emitter| load_with(sums(&[(0, 1)], &[2]), options(kernel), emitter);
    let error = load(Kernel::Wgpu, &refuse).unwrap_err();
    assert!(matches!(&error, RuntimeError::Step { step: 0, reason, .. } if reason == "too wide"), "{error}");
    let error = load(Kernel::Wgpu, &broken).unwrap_err();
    assert!(
        matches!(&error, RuntimeError::Step { reason, .. } if reason.starts_with("the device rejected the kernel of add 2")),
        "{error}"
    );
    let session = load(Kernel::Auto, &broken).unwrap();
    assert_eq!((session.report().gpu_steps, session.report().cpu_steps), (0, 1));
    assert_eq!(session.report().adapter, None);
}

#[test]
fn a_tensor_beyond_a_binding_is_bound_in_windows() {
    let Some(gpu) = gpu() else { return };
    let target = Target { binding_bytes: 4096, storage_buffers: 8, ..gpu.target().clone() };
    let options = ModelOptions { gpu: Some(gpu.restricted(&target)), ..options(Kernel::Wgpu) };
    let mut session = load_with(sums(&[(0, 1), (2, 1)], &[2, 3]), options, &emit_add).unwrap();
    // A window holds 128 rows.
    for rows in [2, 128, 129, 200, 256, 7] {
        let result = session.run(&inputs(rows)).unwrap();
        let expected = expected(&[(0, 1), (2, 1)], rows);
        assert_eq!(result.get("t2").unwrap().to_f32(), expected[2], "{rows} rows");
        assert_eq!(result.get("t3").unwrap().to_f32(), expected[3], "{rows} rows");
    }
    let error = session.run(&inputs(257)).unwrap_err();
    assert!(matches!(&error, RunError::Binding { step: 0, limit: 4096, bytes: 8224, .. }), "{error}");
    assert!(error.to_string().contains("needs 9 storage buffers, the target has 8"), "{error}");
    assert!(session.run(&inputs(2)).is_ok());
}

#[test]
fn a_lost_device_is_an_error() {
    let Ok(gpu) = Gpu::open(None) else { return };
    let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..ModelOptions::default() };
    let mut session = load_with(sums(&[(0, 1)], &[2]), options, &emit_add).unwrap();
    session.run(&inputs(2)).unwrap();
    gpu.device().destroy();
    for _ in 0..2 {
        let error = session.run(&inputs(2)).unwrap_err();
        assert!(matches!(error, RunError::Gpu(GpuError::Lost { .. })), "{error}");
    }
}

/// `out[row] = 10 * sample of row + offsets[sample]` for rows divided by `lengths`, and the offsets themselves.
fn samples() -> Plan {
    let (count, total) = (Dim::symbol(Symbol(0)), Dim::symbol(Symbol(1)));
    let (lengths, offsets) = (HostSlot(0), HostSlot(1));
    let mut dag = Dag::new();
    let row = dag.coord(0, None);
    let sample = dag.sample(0, row);
    let start = dag.load(0, DType::I32, vec![sample]);
    let ten = dag.int(10);
    let scaled = dag.binary(BinaryOp::Mul, sample, ten);
    let value = dag.binary(BinaryOp::Add, scaled, start);
    let one_more = count.clone() + 1.into();
    let operand = Operand { dtype: DType::I32, shape: vec![one_more.clone()], space: MemorySpace::Host };
    let shape = vec![total.clone()];
    let output = Output { target: 0, dtype: DType::I32, shape: shape.clone(), index: vec![row], value, columns: None };
    let computation = plan::Computation::of(Nest::map(
        Body { dag, operands: vec![operand], sizes: vec![] },
        shape.clone(),
        vec![output],
    ))
    .unwrap();
    let define = |symbol, source| ShapeEntry::Define { symbol: Symbol(symbol), source };
    let check = |check| ShapeEntry::Check { check, inputs: vec![offsets], argument: "rows".into() };
    Plan {
        load: vec![],
        shapes: plan::ShapeProgram {
            entries: vec![
                define(0, SymbolSource::Extent { input: "lengths".into(), axis: 0 }),
                ShapeEntry::Compute { op: plan::HostOp::Offsets, inputs: vec![lengths], output: offsets },
                define(1, SymbolSource::Total(lengths)),
                check(plan::Check::Words { count: one_more.clone() }),
                check(plan::Check::Offsets { rows: total.clone() }),
            ],
            slots: 2,
            ..plan::ShapeProgram::default()
        },
        host_inputs: vec![plan::HostInput { name: "lengths".into(), slot: lengths, shape: vec![count] }],
        buffers: vec![Buffer { dtype: DType::I32, shape: shape.clone(), source: Source::Step }],
        steps: vec![Step {
            name: "samples".into(),
            path: String::new(),
            computation,
            reads: vec![Binding::Host(offsets)],
            writes: vec![BufferId(0)],
        }],
        outputs: vec![
            PlanOutput { name: "out".into(), value: Binding::Buffer(BufferId(0)), dtype: DType::I32, shape },
            PlanOutput {
                name: "offsets".into(),
                value: Binding::Host(offsets),
                dtype: DType::I64,
                shape: vec![one_more],
            },
        ],
        ..Plan::default()
    }
}

#[test]
fn host_vectors_reach_kernels_and_outputs() {
    let mut kernels = vec![Kernel::Cpu];
    kernels.extend(gpu().map(|_| Kernel::Wgpu));
    for kernel in kernels {
        let mut session = Model::load(samples(), (), options(kernel)).unwrap().session();
        for lengths in [vec![2, 0, 3], vec![], vec![0, 0], vec![1; 100]] {
            let result = session.run(&Inputs::new().with("lengths", HostTensor::lengths(&lengths))).unwrap();
            let mut offsets = vec![0];
            let mut rows = vec![];
            for (sample, &length) in lengths.iter().enumerate() {
                let start = offsets[sample];
                rows.extend((0..length).map(|_| 10 * sample as i64 + start));
                offsets.push(start + length);
            }
            assert_eq!(result.get("offsets").unwrap().to_i64(), offsets);
            assert_eq!(result.get("out").unwrap().to_i64(), rows, "{lengths:?} with {kernel}");
        }
        let run = |session: &mut Session, tensor| session.run(&Inputs::new().with("lengths", tensor)).unwrap_err();
        let negative = run(&mut session, HostTensor::lengths(&[2, -1]));
        assert!(matches!(negative, RunError::Shape(_)), "{negative}");
        let huge = run(&mut session, HostTensor::lengths(&[1 << 40]));
        assert!(matches!(huge, RunError::Shape(_)), "{huge}");
        let floats = run(&mut session, HostTensor::f32(vec![1], &[1.0]).unwrap());
        assert_eq!(floats.to_string(), "input `lengths`: expected i64, got f32");
    }
}

#[test]
fn offsets_that_nothing_checks_are_refused() {
    for entry in [3, 4] {
        let mut plan = samples();
        plan.shapes.entries.remove(entry);
        let error = Model::load(plan, (), options(Kernel::Cpu)).unwrap_err().to_string();
        assert!(error.contains("the shape program does not check"), "{error}");
    }
}

#[test]
fn descending_offsets_are_refused() {
    let mut plan = samples();
    plan.shapes.entries.remove(1);
    plan.shapes.entries[1] =
        ShapeEntry::Define { symbol: Symbol(1), source: SymbolSource::Extent { input: "lengths".into(), axis: 0 } };
    plan.shapes.entries.swap(2, 3);
    plan.host_inputs[0].slot = HostSlot(1);
    plan.outputs.pop();
    let mut session = Model::load(plan, (), options(Kernel::Cpu)).unwrap().session();
    let error = session.run(&Inputs::new().with("lengths", HostTensor::lengths(&[0, 5, 3]))).unwrap_err();
    assert_eq!(error.to_string(), "input `lengths`: expected at least 5, got 3 at element 2");
}
