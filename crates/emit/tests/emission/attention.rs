use crate::build::{Build, combined, contracted, indices, noise, output, own, sym};
use crate::device::device;
use crate::tensor::Tensor;
use crate::{check, check_on, check_tuned, with_matrices};
use rewire_emit::{EmitError, emit};
use rewire_graph::pointwise::{BinaryOp, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Number, Scalar};
use rewire_graph_rewrite::device::{MatrixPairReductionTile, PairReductionTile, SubgroupSizes, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, ReduceOp};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mask {
    None,
    Causal,
    /// The history is causal, targets attend to the history and themselves, and a prefix attends to the whole history.
    Targets,
    /// Keys at most ten positions before the row.
    Window,
    /// A range of keys whose start and end each row loads.
    Intervals,
    /// Rows that a bool input includes.
    Rows,
    Nothing,
    /// A random expression of the positions, the length and an integer per row.
    Random(u64),
}

const MASKS: [Mask; 7] =
    [Mask::None, Mask::Causal, Mask::Targets, Mask::Window, Mask::Intervals, Mask::Rows, Mask::Nothing];

/// Attention with a relative bias.
pub struct AttentionCase {
    pub mask: Mask,
    pub heads: usize,
    pub qk: usize,
    pub v: usize,
    pub dtype: DType,
    pub softmax: bool,
}

fn offsets(lengths: &[i64]) -> Vec<i64> {
    lengths.iter().fold(vec![0], |mut all, l| {
        all.push(all[all.len() - 1] + l);
        all
    })
}

fn mask(
    b: &mut Build,
    kind: Mask,
    (sample, i, j, row, length): (ExprId, ExprId, ExprId, ExprId, ExprId),
) -> Option<ExprId> {
    use BinaryOp::*;
    let tokens = b.body.operands[0].shape[0].clone();
    match kind {
        Mask::None => None,
        Mask::Causal => Some(b.bin(Ge, i, j)),
        Mask::Window => {
            let (causal, gap, ten) = (b.bin(Ge, i, j), b.bin(Sub, i, j), b.body.dag.int(10));
            let near = b.bin(Le, gap, ten);
            Some(b.bin(And, causal, near))
        }
        Mask::Targets => {
            let targets = b.operand(DType::I64, vec![sym(0)]);
            let targets = b.load(targets, &[sample]);
            let targets = b.body.dag.cast(Scalar::I32, targets);
            let prefix = b.body.dag.int(3);
            let history = b.bin(Sub, length, targets);
            let (a, c) = (b.bin(Min, i, history), b.bin(Min, j, history));
            let before = b.bin(Gt, a, c);
            let same = b.bin(Eq, i, j);
            let early = b.bin(Lt, i, prefix);
            let inside = b.bin(Lt, j, history);
            let whole = b.bin(And, early, inside);
            let mask = b.bin(Or, before, same);
            Some(b.bin(Or, mask, whole))
        }
        Mask::Intervals => {
            let start = b.operand(DType::I32, vec![tokens.clone()]);
            let end = b.operand(DType::F32, vec![tokens]);
            let start = b.load(start, &[row]);
            let end = b.load(end, &[row]);
            let position = b.body.dag.cast(Scalar::F32, j);
            let (after, before) = (b.bin(Ge, j, start), b.bin(Lt, position, end));
            Some(b.bin(And, after, before))
        }
        Mask::Rows => {
            let admitted = b.operand(DType::Bool, vec![tokens]);
            let admitted = b.load(admitted, &[row]);
            let causal = b.bin(Ge, i, j);
            Some(b.bin(And, admitted, causal))
        }
        Mask::Random(seed) => {
            let own = b.operand(DType::I32, vec![tokens]);
            let own = b.load(own, &[row]);
            Some(random_mask(b, vec![i, j, length, own], seed))
        }
        Mask::Nothing => {
            let far = b.body.dag.int(100_000);
            Some(b.bin(Gt, j, far))
        }
    }
}

fn random_mask(b: &mut Build, mut ints: Vec<ExprId>, mut seed: u64) -> ExprId {
    use BinaryOp::*;
    let mut draw = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let mut truths = vec![];
    for step in 0..14 {
        let constant = b.body.dag.int(draw(50) as i64 + 1);
        let (x, y) = (ints[draw(ints.len())], if draw(3) == 0 { constant } else { ints[draw(ints.len())] });
        if step < 5 {
            let op = [Add, Sub, Min, Max, Mul, Div, Mod][draw(7)];
            let y = if matches!(op, Mul | Div | Mod) { constant } else { y };
            let new = b.bin(op, x, y);
            ints.push(if draw(5) == 0 { b.body.dag.unary(UnaryOp::Abs, new) } else { new });
        } else if step < 9 || truths.len() < 2 {
            truths.push(b.bin([Lt, Le, Gt, Ge, Eq, Ne][draw(6)], x, y));
        } else {
            let (p, q) = (truths[draw(truths.len())], truths[draw(truths.len())]);
            let (r, kind) = (truths[draw(truths.len())], draw(5));
            truths.push(match kind {
                0 | 1 => b.bin(And, p, q),
                2 => b.bin(Or, p, q),
                3 => b.body.dag.unary(UnaryOp::Not, p),
                _ => b.body.dag.select(r, p, q),
            });
            let chosen = b.body.dag.select(r, x, y);
            ints.push(chosen);
        }
    }
    truths[truths.len() - 1]
}

/// The weight of a value: the score of a pair, or its softmax over the row; 0 if the mask excludes the pair.
fn weight(
    b: &mut Build,
    softmax: bool,
    mask: Option<ExprId>,
    score: ExprId,
    accumulations: &mut Vec<Accumulation>,
) -> ExprId {
    let masked = |b: &mut Build, value: ExprId, hidden: f32| match mask {
        Some(mask) => {
            let hidden = b.float(hidden);
            b.body.dag.select(mask, value, hidden)
        }
        None => value,
    };
    if !softmax {
        return masked(b, score, 0.0);
    }
    let [largest, total] = [1, 2].map(|position| b.body.dag.value(position, Scalar::F32));
    let shifted = b.bin(BinaryOp::Sub, score, largest);
    let exp = b.body.dag.unary(UnaryOp::Exp, shifted);
    let share = b.bin(BinaryOp::Div, exp, total);
    accumulations.push(combined(ReduceOp::Max, 4, masked(b, score, f32::NEG_INFINITY)));
    accumulations.push(combined(ReduceOp::Sum, 4, masked(b, exp, 0.0)));
    masked(b, share, 0.0)
}

/// The kernel, with data for samples with `lengths` rows and `key_lengths` keys; as many keys as rows if `None`.
pub fn kernel(
    case: &AttentionCase,
    lengths: &[i64],
    key_lengths: Option<&[i64]>,
) -> (Computation, Vec<Tensor>, Vec<(u32, i64)>) {
    use BinaryOp::*;
    let mut b = Build::default();
    let (samples, tokens, heads) = (sym(0), sym(1), Dim::from(case.heads));
    let key_tokens = if key_lengths.is_some() { sym(2) } else { tokens.clone() };
    let (qk, v) = (Dim::from(case.qk), Dim::from(case.v));
    let packed = |width: usize| Dim::from(width * case.heads);
    let q = b.operand(case.dtype, vec![tokens.clone(), packed(case.qk)]);
    let k = b.operand(case.dtype, vec![key_tokens.clone(), packed(case.qk)]);
    let values = b.operand(case.dtype, vec![key_tokens.clone(), heads.clone(), v.clone()]);
    let bias = b.operand(DType::F32, vec![heads.clone(), 200usize.into()]);
    let offs = b.host(vec![samples.clone() + 1usize.into()]);
    let key_offs = if key_lengths.is_some() { b.host(vec![samples.clone() + 1usize.into()]) } else { offs };
    let (s, h, i) = (b.coord(0, &samples), b.coord(2, &heads), b.coord(1, &sym(9)));
    let (j, d, e) = (b.coord(4, &sym(9)), b.coord(5, &qk), b.coord(3, &v));
    let one = b.body.dag.int(1);
    let next = b.bin(Add, s, one);
    let (start, key_start, end) = (b.load(offs, &[s]), b.load(key_offs, &[s]), b.load(offs, &[next]));
    let length = b.bin(Sub, end, start);
    let (row, key_row) = (b.bin(Add, start, i), b.bin(Add, key_start, j));
    let width = b.body.dag.int(case.qk as i64);
    let first = b.bin(Mul, h, width);
    let column = b.bin(Add, first, d);
    let (q, k) = (b.load(q, &[row, column]), b.load(k, &[key_row, column]));
    let values = b.load(values, &[key_row, h, e]);
    let dot = b.body.dag.value(0, Scalar::F32);
    let gap = b.bin(Sub, i, j);
    let gap = b.body.dag.unary(UnaryOp::Abs, gap);
    let most = b.body.dag.int(199);
    let gap = b.bin(Min, gap, most);
    let bias = b.load(bias, &[h, gap]);
    // With f16 operands, the scores of later keys are far larger than those of earlier keys.
    let scale = b.float(if case.softmax && case.dtype == DType::F16 { 3.0 } else { 0.2 });
    let scaled = b.bin(Mul, dot, scale);
    let biased = b.bin(Add, scaled, bias);
    let score = if case.softmax { biased } else { b.body.dag.unary(UnaryOp::Silu, biased) };
    let mask = mask(&mut b, case.mask, (s, i, j, row, length));
    let mut accumulations = vec![contracted(5, q, k)];
    let weight = weight(&mut b, case.softmax, mask, score, &mut accumulations);
    let sum = b.body.dag.value(accumulations.len() as u8, Scalar::F32);
    accumulations.push(contracted(4, weight, values));
    let dense = |dim: &Dim| Extent::Dense(dim.clone());
    let [rows, keys] = [offs, key_offs].map(|offsets| Extent::Ragged { offsets });
    let results = [dense(&samples), rows, dense(&heads), dense(&v)].map(|extent| Axis { extent, summed: false });
    let axes = results.into_iter().chain([keys, dense(&qk)].map(Axis::sum)).collect();
    let outputs = own(vec![output(case.dtype, vec![tokens.clone(), heads, v], vec![row, h, e], sum)]);
    let total: i64 = lengths.iter().sum();
    let key_total: i64 = key_lengths.unwrap_or(lengths).iter().sum();
    let (n, m) = (total as usize, key_total as usize);
    let mut data = vec![
        noise(case.dtype, &[n, case.qk * case.heads], 1),
        noise(case.dtype, &[m, case.qk * case.heads], 2),
        noise(case.dtype, &[m, case.heads, case.v], 3),
        noise(DType::F32, &[case.heads, 200], 4),
        Tensor::ints(DType::I32, &offsets(lengths)),
    ];
    data.extend(key_lengths.map(|lengths| Tensor::ints(DType::I32, &offsets(lengths))));
    match case.mask {
        Mask::Targets => {
            data.push(Tensor::ints(DType::I64, &lengths.iter().map(|l| l.min(&5) / 2).collect::<Vec<_>>()))
        }
        Mask::Intervals => {
            data.push(indices(DType::I32, &[n], 60, 5));
            let mut end = indices(DType::I32, &[n], 90, 6);
            end.dtype = DType::F32;
            end.data.iter_mut().for_each(|x| *x = Number::Float(x.float() - 3.5));
            data.push(end);
        }
        Mask::Random(seed) => data.push(indices(DType::I32, &[n], 60, seed)),
        Mask::Rows => {
            let mut admitted = noise(DType::Bool, &[n], 7);
            admitted.data.iter_mut().take(40).for_each(|x| *x = Number::Integer(0));
            data.push(admitted);
        }
        _ => {}
    }
    let kernel = Computation::of(Nest { body: b.body, axes, accumulations, outputs }).unwrap();
    (kernel, data, vec![(0, lengths.len() as i64), (1, total), (2, key_total)])
}

#[test]
fn masks_over_odd_lengths() {
    for mask in MASKS {
        for softmax in [false, true] {
            for lengths in [vec![1i64], vec![0, 33, 7], vec![100, 0, 64, 31], vec![0, 0]] {
                let case = AttentionCase { mask, heads: 2, qk: 25, v: 12, dtype: DType::F32, softmax };
                let (kernel, data, symbols) = kernel(&case, &lengths, None);
                if softmax && mask != Mask::None {
                    // The plain loops define no softmax of a row without keys.
                    if !matches!(mask, Mask::Causal | Mask::Window | Mask::Targets) {
                        continue;
                    }
                }
                check(&format!("{mask:?} {lengths:?} softmax {softmax}"), &kernel, &data, &symbols);
            }
        }
    }
}

#[test]
fn widths_of_heads() {
    use DType::{F16, F32};
    let widths = [(8, 8, F16), (1, 3, F32), (32, 64, F16), (64, 25, F32), (50, 130, F16), (132, 200, F32)];
    for (qk, v, dtype) in widths {
        let case = AttentionCase { mask: Mask::Causal, heads: 3, qk, v, dtype, softmax: false };
        let (kernel, data, symbols) = kernel(&case, &[40, 3], None);
        // Software drivers compile shaders for wide heads with more rows per thread for minutes.
        let tile = (qk > 64).then_some(Tile::PairReduction(PairReductionTile { rows_per_thread: 1 }));
        let tuning = Tuning { tile, ..Tuning::default() };
        check_tuned(&format!("{qk} {v} {dtype}"), &kernel, &data, &symbols, &tuning);
    }
}

#[test]
fn keys_of_other_lengths_than_rows() {
    for mask in [Mask::None, Mask::Causal, Mask::Intervals] {
        let case = AttentionCase { mask, heads: 1, qk: 16, v: 16, dtype: DType::F32, softmax: false };
        let (kernel, data, symbols) = kernel(&case, &[5, 40, 0, 9], Some(&[70, 0, 3, 33]));
        check(&format!("{mask:?}"), &kernel, &data, &symbols);
        for each in [1, 2] {
            let tuning = Tile::PairReduction(PairReductionTile { rows_per_thread: each }).into();
            check_tuned(&format!("{mask:?} {each}"), &kernel, &data, &symbols, &tuning);
        }
    }
}

#[test]
fn cooperative_matrices_attend_over_f16() {
    let cases = [
        (Mask::Targets, (32, 32), vec![100i64, 0, 64, 31], 2, 4),
        (Mask::Causal, (64, 32), vec![70, 1], 1, 4),
        (Mask::Intervals, (25, 50), vec![0, 33, 7], 2, 2),
        (Mask::Window, (16, 16), vec![45], 2, 2),
        (Mask::None, (8, 12), vec![3, 40], 1, 1),
        (Mask::Rows, (128, 128), vec![35], 2, 2),
        (Mask::Nothing, (16, 16), vec![9, 0], 1, 2),
    ];
    let cases = cases.into_iter().flat_map(|case| [false, true].map(|softmax| (case.clone(), softmax)));
    for ((mask, (qk, v), lengths, each, groups), softmax) in cases {
        let case = AttentionCase { mask, heads: 2, qk, v, dtype: DType::F16, softmax };
        let (kernel, data, symbols) = kernel(&case, &lengths, None);
        let ranges =
            [(8, (8, 8)), (8, (32, 32)), (16, (32, 32)), (16, (64, 64)), (8, (8, 16)), (8, (4, 16)), (16, (32, 64))];
        for (matrix, (min, max)) in ranges {
            let (rows, columns) = (each * groups * matrix, 2 * matrix);
            let tuning =
                Tile::MatrixPairReduction(MatrixPairReductionTile { rows, columns, rows_per_thread: each }).into();
            let name = format!(
                "{mask:?} {qk} {v} {lengths:?}, {each} x {groups} of {matrix}, subgroups of {min} to {max}, softmax {softmax}"
            );
            // Kernels for software drivers use other barriers.
            let software = device().is_some_and(|device| device.software);
            let subgroup_size = SubgroupSizes { min, max };
            let target = Target { software, subgroup_size, ..with_matrices(matrix, max) };
            let wgsl = check_on(&name, &kernel, &data, &symbols, &target, &tuning);
            assert!(wgsl.contains("coopMultiplyAdd"), "{name}");
        }
    }
}

#[test]
fn lanes_that_share_a_row_of_a_softmax_are_a_power_of_two() {
    let case = AttentionCase { mask: Mask::Causal, heads: 1, qk: 16, v: 16, dtype: DType::F16, softmax: true };
    let (kernel, ..) = kernel(&case, &[4], None);
    let tile = |columns| {
        let tile = Tile::MatrixPairReduction(MatrixPairReductionTile { rows: 128, columns, rows_per_thread: 1 });
        emit(&kernel, &with_matrices(16, 32), &tile.into()).map(drop)
    };
    assert_eq!(tile(32), Ok(()));
    let error = tile(48).unwrap_err();
    assert!(matches!(error, EmitError::Tuning { parameter: "columns", got: 48, .. }), "{error}");
}

#[test]
fn random_masks() {
    for seed in 0..16 {
        let mask = Mask::Random(seed);
        let case = AttentionCase { mask, heads: 1, qk: 4, v: 4, dtype: DType::F32, softmax: false };
        let (kernel, data, symbols) = kernel(&case, &[3, 0, 97, 64], None);
        check(&format!("seed {seed}"), &kernel, &data, &symbols);
    }
}
