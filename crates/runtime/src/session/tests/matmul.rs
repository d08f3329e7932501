use super::{gpu, options};
use crate::{Inputs, Kernel, Model};
use rewire_graph::pointwise::Dag;
use rewire_graph::{DType, Dim, HostTensor, Symbol};
use rewire_graph_rewrite::plan::{
    self, Accumulation, Axis, Binding, Body, Buffer, BufferId, Extent, MemorySpace, Nest, Operand, Output, Plan,
    PlanOutput, ReduceOp, ShapeEntry, Source, Step, SymbolSource,
};

const K: usize = 21;
const N: usize = 10;

/// `x @ w` with `x: [rows, K]`, `w: [K, N]`.
pub fn product() -> Plan {
    let rows = Dim::symbol(Symbol(0));
    let shapes: [Vec<Dim>; 3] = [vec![rows.clone(), K.into()], vec![K.into(), N.into()], vec![rows.clone(), N.into()]];
    let mut dag = Dag::new();
    let (row, column, depth) = (dag.coord(0, None), dag.coord(1, None), dag.coord(2, None));
    let a = dag.load(0, DType::F32, vec![row, depth]);
    let b = dag.load(1, DType::F32, vec![depth, column]);
    let value = dag.value(0, rewire_graph::Scalar::F32);
    let operand = |n: usize| Operand { dtype: DType::F32, shape: shapes[n].clone(), space: MemorySpace::Device };
    let output = Output {
        target: 0,
        dtype: DType::F32,
        shape: shapes[2].clone(),
        index: vec![row, column],
        value,
        columns: None,
    };
    let mut axes = Axis::points([rows, N.into()]);
    axes.push(Axis::sum(Extent::Dense(K.into())));
    let computation = plan::Computation::of(Nest {
        body: Body { dag, operands: vec![operand(0), operand(1)], sizes: vec![] },
        axes,
        accumulations: vec![Accumulation { op: ReduceOp::Sum, axis: 2, factors: vec![a, b], dtype: DType::F32 }],
        outputs: vec![output],
    })
    .unwrap();
    let sources = [Source::Input("x".into()), Source::Parameter("w".into()), Source::Step];
    let buffer = |(shape, source): (&Vec<Dim>, _)| Buffer { dtype: DType::F32, shape: shape.clone(), source };
    let read = |n| Binding::Buffer(BufferId(n));
    let source = SymbolSource::Extent { input: "x".into(), axis: 0 };
    Plan {
        load: vec![],
        shapes: plan::ShapeProgram {
            entries: vec![ShapeEntry::Define { symbol: Symbol(0), source }],
            slots: 0,
            ..plan::ShapeProgram::default()
        },
        host_inputs: vec![],
        buffers: shapes.iter().zip(sources).map(buffer).collect(),
        steps: vec![Step {
            name: "matmul".into(),
            path: "_linear".into(),
            computation,
            reads: vec![read(0), read(1)],
            writes: vec![BufferId(2)],
        }],
        outputs: vec![PlanOutput { name: "y".into(), value: read(2), dtype: DType::F32, shape: shapes[2].clone() }],
        ..Plan::default()
    }
}

#[test]
fn a_product_agrees_and_repeats_bit_for_bit() {
    let weights: Vec<f32> = (0..K * N).map(|n| ((n * 5) % 17) as f32 - 8.0).collect();
    let parameter = |name: &str| (name == "w").then(|| HostTensor::f32(vec![K, N], &weights).unwrap());
    let mut kernels = vec![Kernel::Cpu];
    kernels.extend(gpu().map(|_| Kernel::Wgpu));
    for kernel in kernels {
        let mut session = Model::load(product(), parameter, options(kernel)).unwrap().session();
        for rows in [5, 0, 130, 1] {
            let x: Vec<f32> = (0..rows * K).map(|n| ((n * 3) % 11) as f32 - 5.0).collect();
            let inputs = Inputs::new().with("x", HostTensor::f32(vec![rows, K], &x).unwrap());
            let result = session.run(&inputs).unwrap();
            let element = |n: usize| (0..K).map(|k| x[n / N * K + k] * weights[k * N + n % N]).sum();
            let expected: Vec<f32> = (0..rows * N).map(element).collect();
            assert_eq!(result.get("y").unwrap().to_f32(), expected, "{rows} rows with {kernel}");
            assert_eq!(session.run(&inputs).unwrap(), result);
        }
    }
}
