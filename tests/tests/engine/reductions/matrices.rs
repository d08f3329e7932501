//! Products and attention of f16 on matrix hardware, at sizes that its largest tiles divide and others: a device against the CPU,
//! whose sums are in f32.

use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load, on, run, session};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;

/// Rows, steps of sums, columns.
const EXTENTS: [[usize; 3]; 5] = [[1, 64, 128], [127, 72, 136], [300, 1088, 512], [128, 64, 640], [257, 1024, 264]];

/// True if columns are separate tensors.
fn is_divided(columns: usize) -> bool {
    columns > 128 && columns.is_multiple_of(128)
}

/// The first columns of a product, gated, and the rest, or all of them with a residual.
fn graph([rows, depth, columns]: [usize; 3], transposed: bool) -> Graph {
    let scope = Scope::new();
    let input = |name, shape: &[usize]| {
        let shape: Vec<_> = shape.iter().map(|&extent| extent.into()).collect();
        scope.input(name, DType::F16, &shape)
    };
    let (x, bias) = (input("x", &[rows, depth]), input("bias", &[columns]));
    let weight = match transposed {
        true => input("weight", &[columns, depth]).transpose(0, 1),
        false => input("weight", &[depth, columns]),
    };
    let product = bias.addmm(&x, &weight);
    let halves = |tensor: &Tensor| tensor.cast(DType::F16);
    let outputs = match is_divided(columns) {
        true => vec![
            ("gated", halves(&product.slice(1, 0, 128).silu())),
            ("rest", halves(&product.slice(1, 128, columns - 128))),
        ],
        false => vec![("sum", halves(&(product.silu() + &input("residual", &[rows, columns]))))],
    };
    scope.finish(&outputs).unwrap()
}

fn inputs([rows, depth, columns]: [usize; 3], transposed: bool) -> Tensors {
    let mut noise = Noise::new(rows as u64, "products");
    let weight = if transposed { [columns, depth] } else { [depth, columns] };
    let mut tensor = |shape: &[usize]| -> HostTensor { noise.floats(DType::F16, shape, 1.0) };
    let mut inputs = Tensors::new();
    inputs.insert("x".into(), tensor(&[rows, depth]));
    inputs.insert("weight".into(), tensor(&weight));
    inputs.insert("bias".into(), tensor(&[columns]));
    if !is_divided(columns) {
        inputs.insert("residual".into(), tensor(&[rows, columns]));
    }
    inputs
}

#[test]
fn products_of_halves_are_those_of_single_precision() {
    // Adapters without matrix hardware use separate kernels, covered by other tests.
    if gpu().is_none_or(|gpu| gpu.target().matrix == 0) {
        return;
    }
    for (extents, transposed) in EXTENTS.into_iter().flat_map(|extents| [(extents, false), (extents, true)]) {
        let (graph, inputs) = (graph(extents, transposed), inputs(extents, transposed));
        let [expected, found] = [Kernel::Cpu, Kernel::Wgpu]
            .map(|kernel| run(&mut session(&graph, &Tensors::new(), kernel).unwrap().unwrap(), &inputs).unwrap());
        let found = differences(&found, &expected, Tolerance::MATRICES);
        assert!(found.is_empty(), "{extents:?}, transposed {transposed}: {found:?}");
    }
}

/// The choice of the tile depends on the sizes of a run, but a score does not.
#[test]
fn products_are_the_same_bits_whatever_the_tile() {
    let Some(gpu) = gpu().filter(|gpu| gpu.target().matrix != 0) else { return };
    let of_subgroups = [(2, 4), (4, 8)].map(|(rows, columns)| {
        let size = gpu.target().matrix;
        format!("subgroup_product:rows={},columns={}", rows * size, columns * size)
    });
    let shapes = [96, 128, 256].into_iter().flat_map(|rows| [128, 256].map(|columns| (rows, columns)));
    let of_workgroups = shapes.flat_map(|(rows, columns)| {
        [(16, 128), (32, 256), (64, 256)].map(|(depth, threads)| {
            format!("workgroup_product:rows={rows},columns={columns},depth={depth},threads={threads}")
        })
    });
    let shares = gpu.target().workgroup_matrices >= 256;
    let tunings = of_subgroups.into_iter().chain(of_workgroups.filter(|_| shares));
    let extents = [300, 1088, 264];
    let (graph, inputs) = (graph(extents, false), inputs(extents, false));
    let of = |tuning: &str| {
        let options = ModelOptions { tuning: tuning.parse().unwrap(), ..on(gpu.clone()) };
        run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap()
    };
    let expected = of("matrices=true");
    for tuning in tunings {
        let found = differences(&of(&tuning), &expected, Tolerance::EXACT);
        assert!(found.is_empty(), "{tuning}: {found:?}");
    }
}

/// Rows of samples, and widths of heads: queries with keys, and values. Software adapters compile the widest for minutes.
const LENGTHS: [i64; 4] = [141, 0, 1, 37];
const WIDTHS: [[usize; 2]; 3] = [[16, 32], [64, 40], [128, 100]];
const HEADS: usize = 2;

/// Causal attention of a window, whose weights are between 0 and a little below 1.
fn attention([qk, v]: [usize; 2]) -> Graph {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", LENGTHS.len());
    let input = |name, width: usize| scope.input(name, DType::F16, &[rows.total.clone(), HEADS.into(), width.into()]);
    let (query, key) = (rows.row_index(&rows, HEADS), rows.key_index(&rows, HEADS));
    let counts = key.le(&query).and(&(&query - &key).lt(&scope.scalar(DType::I32, 100.0)));
    let scores = input("q", qk).scores(&input("k", qk), &rows, &rows) * 0.05;
    let weights = counts.select(&scores.sigmoid(), &scope.scalar(DType::F32, 0.0)) * 0.1;
    let result = weights.weighted_sum(&input("v", v), &rows, &rows);
    scope.finish(&[("y", result.cast(DType::F16))]).unwrap()
}

#[test]
fn attention_of_halves_is_that_of_single_precision() {
    let Some(gpu) = gpu().filter(|gpu| gpu.target().matrix != 0) else { return };
    let widths = if gpu.target().software { &WIDTHS[..2] } else { &WIDTHS[..] };
    let rows = LENGTHS.iter().sum::<i64>() as usize;
    for &[qk, v] in widths {
        let mut noise = Noise::new(qk as u64, "attention");
        let mut inputs = Tensors::new();
        for (name, width) in [("q", qk), ("k", qk), ("v", v)] {
            inputs.insert(name.into(), noise.floats(DType::F16, &[rows, HEADS, width], 1.0));
        }
        inputs.insert("lengths".into(), HostTensor::lengths(&LENGTHS));
        let graph = attention([qk, v]);
        let [expected, found] = [Kernel::Cpu, Kernel::Wgpu]
            .map(|kernel| run(&mut session(&graph, &Tensors::new(), kernel).unwrap().unwrap(), &inputs).unwrap());
        let found = differences(&found, &expected, Tolerance { relative: 1e-3, floor: 1.0 });
        assert!(found.is_empty(), "{qk}, {v}: {found:?}");
    }
}
