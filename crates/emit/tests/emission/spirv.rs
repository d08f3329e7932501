//! Kernels that devices accept only as SPIR-V: their instructions, and their validity.

use crate::attention::{self, AttentionCase, Mask};
use crate::{matmul, with_matrices};
use rewire_emit::{ParsedKernel, emit_with_windows, of_family, suited};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::device::{BindingChunks, Extension, Target, Tile, Tuning, WorkgroupProductTile};
use rewire_graph_rewrite::plan::{Computation, Nest, Output};
use std::io::Write;
use std::process::{Command, Stdio};

const PER_ELEMENT: u32 = 5369;
const CONVERT: u32 = 5293;
const LOAD_TENSOR: u32 = 5367;
const STORE_TENSOR: u32 = 5368;
const LOAD: u32 = 4457;
const MULTIPLY_ADD: u32 = 4459;
const TO_FLOAT: u32 = 111;
const TYPE_INTEGER: u32 = 21;

fn with_elements(matrix: u32, subgroup_size: u32) -> Target {
    Target {
        matrix_elements: true,
        workgroup_bytes: 48 << 10,
        invocations: 1024,
        ..with_matrices(matrix, subgroup_size)
    }
}

fn emit(computation: &Computation, target: &Target, tuning: &Tuning) -> ParsedKernel {
    emit_with_windows(computation, target, tuning, &BindingChunks::of_constants(computation, target)).unwrap()
}

/// The occurrences of an instruction in a module.
fn of(words: &[u32], op: u32) -> Vec<&[u32]> {
    let (mut at, mut found) = (5, vec![]);
    while at < words.len() {
        let end = at + (words[at] >> 16) as usize;
        found.extend((words[at] & 0xffff == op).then(|| &words[at..end]));
        at = end;
    }
    assert_eq!(at, words.len());
    found
}

fn count(words: &[u32], op: u32) -> usize {
    of(words, op).len()
}

/// Validates a module with the command in `REWIRE_TEST_SPIRV_VAL` (`spirv-val`), if set.
fn validate(name: &str, words: &[u32]) {
    let Ok(call) = std::env::var("REWIRE_TEST_SPIRV_VAL") else {
        eprintln!("{name}: not validated, REWIRE_TEST_SPIRV_VAL is not set to the command of spirv-val");
        return;
    };
    let mut call = call.split_whitespace();
    let mut validator = Command::new(call.next().unwrap());
    validator.args(call).args(["--target-env", "vulkan1.3", "-"]);
    let mut child = validator.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytemuck::cast_slice(words)).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&text));
}

#[test]
fn weights_of_attention_stay_in_registers() {
    let masks = [Mask::None, Mask::Causal, Mask::Targets, Mask::Intervals, Mask::Rows];
    let cases = masks.into_iter().zip([(25, 50), (128, 128), (64, 64), (32, 12), (16, 16)]);
    for ((mask, (qk, v)), softmax) in cases.flat_map(|case| [false, true].map(|softmax| (case, softmax))) {
        let case = AttentionCase { mask, heads: 2, qk, v, dtype: DType::F16, softmax };
        let (kernel, ..) = attention::kernel(&case, &[40, 3], None);
        for (matrix, subgroup) in [(8, 8), (16, 32)] {
            let target = with_elements(matrix, subgroup);
            let emitted = emit(&kernel, &target, &Tuning::default());
            assert_eq!(emitted.kernel.extension, Some(Extension::Elements));
            assert!(!emitted.kernel.wgsl.contains("weight_tile"));
            for checked in [false, true] {
                let name = format!("{mask:?} {qk} {v}, matrices of {matrix}, softmax {softmax}, checked {checked}");
                let words = emitted.spirv(&target, checked).unwrap();
                assert!(count(&words, PER_ELEMENT) > 0 && count(&words, CONVERT) > 0, "{name}");
                validate(&name, &words);
            }
        }
    }
}

#[test]
fn products_of_tensors_load_them_as_they_lie() {
    let target = Target { workgroup_matrices: 256, ..with_elements(16, 32) };
    let tiles = [(256, 512, 128, 32), (256, 512, 256, 64), (72, 136, 128, 32)];
    for (transposed, (k, n, columns, depth)) in
        [false, true].into_iter().flat_map(|transposed| tiles.map(|tile| (transposed, tile)))
    {
        let name = format!("{k} to {n} by {columns}, transposed {transposed}");
        let kernel = matmul::stored([k, n], DType::F16, transposed, DType::F32);
        let threads = if columns == 128 { 128 } else { 256 };
        let tuning = Tile::WorkgroupProduct(WorkgroupProductTile { rows: 128, columns, depth, threads }).into();
        let emitted = emit(&kernel, &target, &tuning);
        assert_eq!(emitted.kernel.extension, Some(Extension::Workgroup { tile: [128, columns, depth] }), "{name}");
        let words = emitted.spirv(&target, false).unwrap();
        // Instructions for tiles within the tensors, and for tiles that may exceed them.
        assert_eq!([LOAD_TENSOR, STORE_TENSOR, LOAD].map(|op| count(&words, op)), [4, 2, 0], "{name}");
        validate(&name, &words);
    }
}

#[test]
fn products_of_bytes_have_sums_of_integers() {
    let target = Target { workgroup_matrices: 256, integers: true, ..with_elements(16, 32) };
    for [k, n] in [[256, 512], [80, 136]] {
        let kernel = matmul::stored([k, n], DType::I8, true, DType::I32);
        let emitted = emit(&kernel, &target, &Tuning::default());
        assert_eq!(emitted.kernel.extension, Some(Extension::Workgroup { tile: [128, 128, 64] }));
        let words = emitted.spirv(&target, false).unwrap();
        let tails = if k % 64 == 0 { 0 } else { 2 };
        assert_eq!([LOAD_TENSOR, STORE_TENSOR, LOAD].map(|op| count(&words, op)), [4, 2, 0], "{k} to {n}");
        // One product in each loop and in each step after it, one conversion in each epilogue.
        assert_eq!([MULTIPLY_ADD, TO_FLOAT].map(|op| count(&words, op)), [2 + tails, 2], "{k} to {n}");
        let types = of(&words, TYPE_INTEGER);
        assert!(types.iter().any(|ty| ty[2..] == [8, 1]) && types.iter().filter(|ty| ty[2..] == [32, 1]).count() == 1);
        assert!(of(&words, MULTIPLY_ADD).iter().all(|product| product[6..] == [0xf]));
        validate(&format!("bytes, {k} to {n}"), &words);
        let without = emit(&kernel, &Target { integers: false, ..target.clone() }, &Tuning::default());
        assert!(without.kernel.wgsl.contains("coopMultiplyAdd") && !without.kernel.wgsl.contains("matrix_to_floats"));
    }
}

#[test]
fn residuals_are_matrices_as_results_are() {
    let target = Target { workgroup_matrices: 256, ..with_elements(16, 32) };
    let kernel = matmul::stored_then([256, 136], DType::F16, false, DType::F32, |b, sum, shape, place| {
        let [residual, bias] = [shape.to_vec(), shape[1..].to_vec()].map(|shape| b.operand(DType::F16, shape));
        let (residual, bias) = (b.load(residual, place), b.load(bias, &place[1..]));
        let sum = b.bin(BinaryOp::Add, sum, bias);
        b.bin(BinaryOp::Add, sum, residual)
    });
    let emitted = emit(&kernel, &target, &Tuning::default());
    let words = emitted.spirv(&target, false).unwrap();
    assert_eq!([LOAD_TENSOR, STORE_TENSOR, LOAD].map(|op| count(&words, op)), [6, 2, 0]);
    validate("a bias and a residual", &words);
}

/// A matmul whose columns are stored to two tensors, the second with an axis of heads.
fn columns_of_two(columns: [usize; 2]) -> Computation {
    let mut nest = nest(matmul::stored([256, columns[0] + columns[1]], DType::F16, false, DType::F32));
    let [Output { shape, index, value, .. }] = nest.outputs.clone().try_into().unwrap();
    let dag = &mut nest.body.dag;
    let (row, column) = (index[0], index[1]);
    let [start, width] = [columns[0], 64].map(|value| dag.int(value as i64));
    let within = dag.binary(BinaryOp::Sub, column, start);
    let by_head = [dag.binary(BinaryOp::Div, within, width), dag.binary(BinaryOp::Mod, within, width)];
    let gated = dag.unary(UnaryOp::Silu, value);
    let heads = Dim::from(columns[1] / 64);
    let first = (vec![shape[0].clone(), columns[0].into()], vec![row, column], gated, (0, columns[0]));
    let second = (
        vec![shape[0].clone(), heads, 64.into()],
        vec![row, by_head[0], by_head[1]],
        value,
        (columns[0], columns[0] + columns[1]),
    );
    let part = |(target, (shape, index, value, columns))| Output {
        target,
        dtype: DType::F16,
        shape,
        index,
        value,
        columns: Some(columns),
    };
    nest.outputs = (0..).zip([first, second]).map(part).collect();
    Computation::of(nest).unwrap()
}

fn nest(kernel: Computation) -> Nest {
    match kernel {
        Computation::Nest(kernel) => kernel.into_nest(),
        Computation::Custom(_) => panic!("a product is a nest"),
    }
}

#[test]
fn heads_in_another_order_are_no_tensor() {
    let mut nest = nest(columns_of_two([256, 256]));
    let dag = &mut nest.body.dag;
    let head = nest.outputs[1].index[1];
    let [two, three] = [2, 3].map(|value| dag.int(value));
    let [twice, whole] = [dag.binary(BinaryOp::Mul, head, two), dag.binary(BinaryOp::Div, head, three)];
    let [swapped, rest] = [dag.binary(BinaryOp::Mod, twice, three), dag.binary(BinaryOp::Mul, whole, three)];
    // The order of heads is 0, 2, 1, 3: the first and the last keep their positions.
    nest.outputs[1].index[1] = dag.binary(BinaryOp::Add, swapped, rest);
    let kernel = Computation::of(nest).unwrap();
    let target = Target { workgroup_matrices: 256, multiprocessors: 132, ..with_elements(16, 32) };
    let of_many_rows =
        suited(Tuning::default(), &kernel, &target, |dim| dim.evaluate(|_| Some(34_816)).map(|n| n as u64));
    for tuning in [Tuning::default(), of_many_rows] {
        assert_eq!(emit(&kernel, &target, &tuning).kernel.extension, None);
    }
}

#[test]
fn columns_of_a_product_are_tensors_of_their_own() {
    let target = Target { workgroup_matrices: 256, ..with_elements(16, 32) };
    for (columns, fits) in [([128, 256], true), ([64, 256], false)] {
        let kernel = columns_of_two(columns);
        let emitted = emit(&kernel, &target, &Tuning::default());
        assert_eq!(emitted.kernel.extension.is_some(), fits, "{columns:?}");
        if fits {
            let words = emitted.spirv(&target, false).unwrap();
            assert_eq!([LOAD_TENSOR, STORE_TENSOR, LOAD].map(|op| count(&words, op)), [4, 4, 0]);
            validate(&format!("{columns:?}"), &words);
        }
    }
}

#[test]
fn other_kernels_are_written_as_they_are() {
    let case = AttentionCase { mask: Mask::Causal, heads: 2, qk: 16, v: 16, dtype: DType::F16, softmax: false };
    let (kernel, ..) = attention::kernel(&case, &[40, 3], None);
    let target = with_matrices(16, 32);
    let emitted = emit(&kernel, &target, &Tuning::default());
    assert_eq!(emitted.kernel.extension, None);
    let words = emitted.spirv(&target, false).unwrap();
    assert_eq!([LOAD_TENSOR, STORE_TENSOR].map(|op| count(&words, op)), [0; 2]);
    // `spirv-val` refuses two things that naga writes and extensions replace: strides of arrays in workgroup memory, and subgroup barriers
    // that order no memory.
    assert!(emitted.multiplies_matrices() && emitted.workgroup_bytes() <= u64::from(target.workgroup_bytes));
}

#[test]
fn tiles_follow_the_multiprocessors_that_would_be_idle() {
    let tile = |multiprocessors: u32, k: usize, rows: i64, set: Option<WorkgroupProductTile>| {
        let with = with_elements(16, 32);
        let target = Target { workgroup_matrices: 256, multiprocessors, workgroup_bytes: 48 << 10, ..with };
        let kernel = matmul::stored_then([k, 512], DType::F16, false, DType::F32, |b, sum, shape, place| {
            let residual = b.operand(DType::F16, shape.to_vec());
            let residual = b.load(residual, place);
            b.bin(BinaryOp::Add, sum, residual)
        });
        let set = Tuning { tile: set.map(Tile::WorkgroupProduct), ..Tuning::default() };
        let base = of_family(set, &kernel, &target);
        let tuning = suited(base, &kernel, &target, |dim| dim.evaluate(|_| Some(rows)).map(|size| size as u64));
        let emitted = emit(&kernel, &target, &tuning);
        if let Some(Extension::Workgroup { tile }) = emitted.kernel.extension {
            validate(&format!("{tile:?}"), &emitted.spirv(&target, false).unwrap());
            return tile;
        }
        panic!("{rows} rows take tiles of subgroups")
    };
    let [large, near] = [[128, 128, 32], [96, 256, 64]];
    // The default tile gives 1,052, 1,088 and 2,048 workgroups, of which 264 run concurrently.
    for (rows, expected) in [(33_568, large), (34_816, near), (65_536, large)] {
        assert_eq!(tile(132, 1536, rows, None), expected, "{rows}");
    }
    assert_eq!(tile(0, 1536, 34_816, None), large, "multiprocessors that are not known");
    assert_eq!(tile(132, 512, 34_816, None), large, "short sums");
    let flat = WorkgroupProductTile { rows: 128, columns: 128, depth: 16, threads: 128 };
    assert_eq!(tile(132, 1536, 34_816, Some(flat)), [128, 128, 16], "a tile that is set");
}
