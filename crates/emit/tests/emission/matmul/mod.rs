//! Matmuls.

mod added;
mod dequantized;
mod f16;
mod integers;

use crate::build::{Build, combined, contracted, noise, output, own, sym};
use crate::tensor::Tensor;
use crate::{check, check_on, check_tuned, with_matrices};
use rewire_emit::emit;
use rewire_graph::pointwise::{BinaryOp, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::device::{
    NarrowProductTile, ProductTile, SubgroupProductTile, SubgroupSizes, Target, Tile, Tuning,
};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

/// `[h, m, k] x [k, n]` or `[h, n, k]` transposed, with bias and SiLU, at symbolic or constant sizes.
pub fn dense(m: Dim, n: Dim, k: Dim, dtype: DType, transposed: (bool, bool)) -> Computation {
    let mut b = Build::default();
    let h = Dim::from(2);
    let left = if transposed.0 { vec![h.clone(), k.clone(), m.clone()] } else { vec![h.clone(), m.clone(), k.clone()] };
    let right = if transposed.1 { vec![n.clone(), k.clone()] } else { vec![k.clone(), n.clone()] };
    let (x, w, bias) = (b.operand(dtype, left), b.operand(dtype, right), b.operand(DType::F32, vec![n.clone()]));
    let c0 = b.coord(0, &h);
    let (row, depth, column) = (b.coord(1, &m), b.coord(3, &k), b.coord(2, &n));
    let a = if transposed.0 { b.load(x, &[c0, depth, row]) } else { b.load(x, &[c0, row, depth]) };
    let two = b.float(0.5);
    let a = b.bin(BinaryOp::Add, a, two);
    let right = if transposed.1 { b.load(w, &[column, depth]) } else { b.load(w, &[depth, column]) };
    let sum = b.body.dag.value(0, Scalar::F32);
    let bias = b.load(bias, &[column]);
    let value = b.bin(BinaryOp::Add, sum, bias);
    let value = b.body.dag.unary(UnaryOp::Silu, value);
    let outputs = own(vec![output(dtype, vec![h.clone(), m.clone(), n.clone()], vec![c0, row, column], value)]);
    let mut axes = Axis::points([h, m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    Computation::of(Nest { body: b.body, axes, accumulations: vec![contracted(3, a, right)], outputs }).unwrap()
}

#[test]
fn dense_products_of_odd_sizes() {
    let shapes = [(1, 1, 1), (5, 25, 50), (70, 3, 17), (16, 64, 64), (130, 100, 33), (3, 130, 8), (64, 50, 0)];
    for (number, (m, n, k)) in shapes.into_iter().enumerate() {
        for symbolic in [false, true] {
            let transposed = [(false, false), (false, true), (true, false)][(number + usize::from(symbolic)) % 3];
            let dim = |s, x: usize| if symbolic { sym(s) } else { x.into() };
            let dtype = if symbolic { DType::F16 } else { DType::F32 };
            let kernel = dense(dim(0, m), dim(1, n), dim(2, k), dtype, transposed);
            let left = if transposed.0 { [2, k, m] } else { [2, m, k] };
            let right = if transposed.1 { [n, k] } else { [k, n] };
            let data = [noise(dtype, &left, 1), noise(dtype, &right, 2), noise(DType::F32, &[n], 3)];
            let symbols = [(0, m as i64), (1, n as i64), (2, k as i64)];
            check(&format!("{m}x{n}x{k} {transposed:?}"), &kernel, &data, &symbols);
        }
    }
}

#[test]
fn a_factor_of_many_operations_is_computed_at_one_place() {
    let (m, n, k) = (Dim::from(70), Dim::from(33), Dim::from(25));
    for functions in [1, 5] {
        let mut b = Build::default();
        let (x, w) =
            (b.operand(DType::F32, vec![m.clone(), k.clone()]), b.operand(DType::F32, vec![k.clone(), n.clone()]));
        let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
        let x = b.load(x, &[row, depth]);
        let left = (0..functions).fold(x, |x, _| b.body.dag.unary(UnaryOp::Sin, x));
        let right = b.load(w, &[depth, column]);
        let sum = b.body.dag.value(0, Scalar::F32);
        let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], sum)]);
        let mut axes = Axis::points([m.clone(), n.clone()]);
        axes.push(Axis::sum(Extent::Dense(k.clone())));
        let nest = Nest { body: b.body, axes, accumulations: vec![contracted(2, left, right)], outputs };
        let kernel = Computation::of(nest).unwrap();
        let hardware = Target { software: false, ..Target::BASELINE };
        let wgsl = emit(&kernel, &hardware, &Tuning::default()).unwrap().wgsl;
        let calls = wgsl.matches(" left(m0").count();
        assert_eq!(calls == 1, functions > 1, "{calls} calls");
        check("functions", &kernel, &[noise(DType::F32, &[70, 25], 1), noise(DType::F32, &[25, 33], 2)], &[]);
    }
}

#[test]
fn tiles_do_not_change_a_product() {
    for (rows, columns, depth, each) in [(32, 32, 8, 2), (16, 128, 16, 4), (128, 64, 8, 8), (64, 128, 4, 8)] {
        let tile = Tile::Product(ProductTile { rows, columns, depth, rows_per_thread: each, parts: 1 });
        let (m, n, k) = (100, 90, 70);
        let kernel = dense(m.into(), n.into(), k.into(), DType::F32, (false, false));
        let data = [noise(DType::F32, &[2, m, k], 1), noise(DType::F32, &[k, n], 2), noise(DType::F32, &[n], 3)];
        check_tuned(&format!("{rows} {columns}"), &kernel, &data, &[], &tile.into());
    }
}

#[test]
fn narrow_tiles_do_not_change_a_product_of_few_rows() {
    for (rows, columns, depth) in [(1, 8, 256), (4, 8, 256), (4, 32, 64), (16, 8, 64), (32, 16, 64), (32, 32, 64)] {
        let tile = Tile::NarrowProduct(NarrowProductTile { rows, columns, depth });
        for (dtype, (m, n, k)) in [
            (DType::F32, (1, 90, 70)),
            (DType::F32, (37, 33, 200)),
            (DType::F16, (3, 33, 200)),
            (DType::F16, (5, 9, 70)),
            (DType::BF16, (37, 90, 68)),
        ] {
            let kernel = dense(sym(0), n.into(), k.into(), dtype, (false, true));
            let data = [noise(dtype, &[2, m, k], 1), noise(dtype, &[n, k], 2), noise(DType::F32, &[n], 3)];
            let symbols = [(0, m as i64)];
            for f16 in [false, true] {
                let target = Target { f16, workgroup_bytes: 32 << 10, ..Target::BASELINE };
                let wgsl = check_on(&tile.to_string(), &kernel, &data, &symbols, &target, &tile.into());
                assert!(wgsl.contains("results"), "{tile}");
                assert_eq!(wgsl.contains("values_1("), dtype != DType::F32 && k % 4 == 0, "{tile} {dtype}");
            }
        }
    }
}

#[test]
fn cooperative_matrices_compute_a_product_of_f16() {
    let (plain, right, left) = ((false, false), (false, true), (true, false));
    let cases = [
        ((1, 16, 16), plain, (1, 4)),
        ((50, 100, 33), plain, (2, 2)),
        ((70, 64, 128), right, (2, 4)),
        ((37, 130, 64), left, (4, 2)),
        ((5, 25, 50), left, (1, 1)),
        ((17, 40, 600), right, (1, 2)),
        ((130, 70, 64), plain, (8, 8)),
    ];
    for ((m, n, k), transposed, (rows, columns)) in cases {
        let kernel = dense(sym(0), n.into(), k.into(), DType::F16, transposed);
        let left = if transposed.0 { [2, k, m] } else { [2, m, k] };
        let right = if transposed.1 { [n, k] } else { [k, n] };
        let data = [noise(DType::F16, &left, 1), noise(DType::F16, &right, 2), noise(DType::F32, &[n], 3)];
        let ranges =
            [(8, (8, 8)), (8, (32, 32)), (16, (32, 32)), (16, (64, 64)), (8, (4, 32)), (8, (8, 16)), (16, (32, 64))];
        for (matrix, (min, max)) in ranges {
            let tile = SubgroupProductTile { rows: rows * matrix, columns: columns * matrix };
            let tuning = Tile::SubgroupProduct(tile).into();
            let name = format!(
                "{m}x{n}x{k} {transposed:?}, {rows}x{columns} matrices of {matrix}, subgroups of {min} to {max}"
            );
            let target = Target { subgroup_size: SubgroupSizes { min, max }, ..with_matrices(matrix, max) };
            let wgsl = check_on(&name, &kernel, &data, &[(0, m as i64)], &target, &tuning);
            assert!(wgsl.contains("coopMultiplyAdd"), "{name}");
        }
    }
}

/// A matmul with these rows, columns and depth.
fn matrix(b: Build, [m, n, k]: [Dim; 3], accumulations: Vec<Accumulation>, outputs: Vec<Output>) -> Computation {
    let mut axes = Axis::points([m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    Computation::of(Nest { body: b.body, axes, accumulations, outputs }).unwrap()
}

/// `[m, k] x [k, n]` of f16 and a weight of type `weight`, transposed in memory if `by_column`, with accumulators of
/// type `sums`.
pub fn stored(extents: [usize; 2], weight: DType, by_column: bool, sums: DType) -> Computation {
    stored_then(extents, weight, by_column, sums, |_, sum, _, _| sum)
}

/// [`stored`] with the epilogue `finish`, a function of the sum, and the shape and index of the result.
pub fn stored_then(
    [k, n]: [usize; 2],
    weight: DType,
    by_column: bool,
    sums: DType,
    finish: impl FnOnce(&mut Build, ExprId, &[Dim], &[ExprId]) -> ExprId,
) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(k), Dim::from(n));
    let left = if weight == DType::I8 { DType::I8 } else { DType::F16 };
    let shape = if by_column { vec![n.clone(), k.clone()] } else { vec![k.clone(), n.clone()] };
    let (x, w) = (b.operand(left, vec![m.clone(), k.clone()]), b.operand(weight, shape));
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let index = if by_column { [column, depth] } else { [depth, column] };
    let (left, right) = (b.load(x, &[row, depth]), b.load(w, &index));
    let sum = b.body.dag.value(0, Scalar::F32);
    let shape = vec![m.clone(), n.clone()];
    let value = finish(&mut b, sum, &shape, &[row, column]);
    let outputs = own(vec![output(DType::F16, shape, vec![row, column], value)]);
    matrix(b, [m, n, k], vec![Accumulation { dtype: sums, ..contracted(2, left, right) }], outputs)
}

#[test]
fn rows_of_8_bits_become_f16_of_cooperative_matrices() {
    for (by_column, sums) in [(false, DType::F32), (true, DType::F32), (true, DType::F16)] {
        for weight in [DType::F16, DType::Rows8] {
            let kernel = stored([50, 40], weight, by_column, sums);
            let shape = if by_column { [40, 50] } else { [50, 40] };
            let data = [noise(DType::F16, &[37, 50], 1), noise(weight, &shape, 2)];
            for (matrix, subgroup) in [(8, 8), (16, 32)] {
                for half_sums in [false, true] {
                    let target = Target { half_sums, ..with_matrices(matrix, subgroup) };
                    let name = format!("{weight} by column {by_column}, sums {sums}, matrices of {matrix}");
                    let wgsl = check_on(&name, &kernel, &data, &[(0, 37)], &target, &Tuning::default());
                    let in_f16 = half_sums && sums == DType::F16;
                    assert!(wgsl.contains("coopMultiplyAdd") && wgsl.contains("<f16, C>") == in_f16, "{wgsl}");
                    assert_eq!(wgsl.contains("clamp("), weight == DType::Rows8, "{wgsl}");
                }
            }
        }
    }
}

#[test]
fn singles_take_no_cooperative_matrices() {
    let kernel = dense(sym(0), 64usize.into(), 64usize.into(), DType::F32, (false, false));
    let data = [noise(DType::F32, &[2, 9, 64], 1), noise(DType::F32, &[64, 64], 2), noise(DType::F32, &[64], 3)];
    let wgsl = check_on("singles", &kernel, &data, &[(0, 9)], &with_matrices(16, 32), &Tuning::default());
    assert!(!wgsl.contains("coop_mat"), "{wgsl}");
}

/// A jagged matmul with a norm in its prologue, and with columns in two tensors.
pub fn normalised(k: usize, split: usize, n: usize) -> Computation {
    let mut b = Build::default();
    let (samples, tokens) = (sym(0), sym(1));
    let (k_dim, n_dim) = (Dim::from(k), Dim::from(n));
    let x = b.operand(DType::F32, vec![tokens.clone(), k_dim.clone()]);
    let w = b.operand(DType::F32, vec![samples.clone(), k_dim.clone(), n_dim.clone()]);
    let offs = b.host(vec![samples.clone() + 1usize.into()]);
    let (s, i, d) = (b.coord(0, &samples), b.coord(1, &sym(9)), b.coord(3, &k_dim));
    let start = b.load(offs, &[s]);
    let row = b.bin(BinaryOp::Add, start, i);
    let x = b.load(x, &[row, d]);
    let (mean, rest) = (b.body.dag.value(0, Scalar::F32), b.float(1.0 / k as f32));
    let mean = b.bin(BinaryOp::Mul, mean, rest);
    let centred = b.bin(BinaryOp::Sub, x, mean);
    let square = b.bin(BinaryOp::Mul, centred, centred);
    let variance = b.body.dag.value(1, Scalar::F32);
    let variance = b.bin(BinaryOp::Mul, variance, rest);
    let eps = b.float(1e-5);
    let variance = b.bin(BinaryOp::Add, variance, eps);
    let scale = b.body.dag.unary(UnaryOp::Rsqrt, variance);
    let a = b.bin(BinaryOp::Mul, centred, scale);
    let column = b.coord(2, &n_dim);
    let right = b.load(w, &[s, d, column]);
    let sum = b.body.dag.value(2, Scalar::F32);
    let shift = b.body.dag.int(split as i64);
    let shifted = b.bin(BinaryOp::Sub, column, shift);
    let silu = b.body.dag.unary(UnaryOp::Silu, sum);
    let mut first = output(DType::F32, vec![tokens.clone(), split.into()], vec![row, column], silu);
    first.columns = Some((0, split));
    let mut second = output(DType::F16, vec![tokens.clone(), (n - split).into()], vec![row, shifted], sum);
    second.columns = Some((split, n));
    let statistic = |value| combined(ReduceOp::Sum, 3, value);
    let mut axes = Axis::points([samples, n_dim]);
    axes.insert(1, Axis { extent: Extent::Ragged { offsets: offs }, summed: false });
    axes.push(Axis::sum(Extent::Dense(k_dim)));
    Computation::of(Nest {
        body: b.body,
        axes,
        accumulations: vec![statistic(x), statistic(square), contracted(3, a, right)],
        outputs: own(vec![first, second]),
    })
    .unwrap()
}

#[test]
fn ragged_rows_normalised_and_split() {
    for (k, split, n) in [(25usize, 8, 20), (64, 64, 128), (6, 3, 10), (50, 25, 50)] {
        for lengths in [vec![0i64, 3, 70], vec![5], vec![0, 0], vec![64, 1, 0, 2]] {
            let offsets: Vec<i64> = std::iter::once(0)
                .chain(lengths.iter().scan(0, |at, l| {
                    *at += l;
                    Some(*at)
                }))
                .collect();
            let total = *offsets.last().unwrap() as usize;
            let kernel = normalised(k, split, n);
            let data = [
                noise(DType::F32, &[total, k], 1),
                noise(DType::F32, &[lengths.len(), k, n], 2),
                Tensor::ints(DType::I32, &offsets),
            ];
            let symbols = [(0, lengths.len() as i64), (1, total as i64)];
            check(&format!("{k} {split} {n} {lengths:?}"), &kernel, &data, &symbols);
        }
    }
}
