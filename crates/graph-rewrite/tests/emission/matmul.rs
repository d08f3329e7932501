use crate::build::{Build, combined, contracted, noise, output, own, sym};
use crate::device::device;
use crate::reference::Reference;
use crate::tensor::{Num, Tensor};
use crate::{check, check_on, check_tuned, with_matrices};
use rewire_graph::pointwise::{BinaryOp, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Scalar, Symbol};
use rewire_graph_rewrite::emit::{Target, Tuning, emit};
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
    Computation::Nest(Nest { body: b.body, axes, accumulations: vec![contracted(3, a, right)], outputs })
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
        let kernel = Computation::Nest(nest);
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
        let tuning = Tuning {
            rows: Some(rows),
            columns: Some(columns),
            depth: Some(depth),
            rows_per_thread: Some(each),
            ..Tuning::default()
        };
        let (m, n, k) = (100, 90, 70);
        let kernel = dense(m.into(), n.into(), k.into(), DType::F32, (false, false));
        let data = [noise(DType::F32, &[2, m, k], 1), noise(DType::F32, &[k, n], 2), noise(DType::F32, &[n], 3)];
        check_tuned(&format!("{rows} {columns}"), &kernel, &data, &[], &tuning);
    }
}

#[test]
fn cooperative_matrices_compute_a_product_of_halves() {
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
        for (matrix, subgroup) in [(8, 8), (8, 32), (16, 32), (16, 64)] {
            let tuning = Tuning { rows: Some(rows * matrix), columns: Some(columns * matrix), ..Tuning::default() };
            let name = format!("{m}x{n}x{k} {transposed:?}, {rows}x{columns} matrices of {matrix}");
            let target = with_matrices(matrix, subgroup);
            let wgsl = check_on(&name, &kernel, &data, &[(0, m as i64)], &target, &tuning);
            assert!(wgsl.contains("coopMultiplyAdd"), "{name}");
        }
    }
}

/// A product of rows, columns and depth of some extents.
fn matrix(b: Build, [m, n, k]: [Dim; 3], accumulations: Vec<Accumulation>, outputs: Vec<Output>) -> Computation {
    let mut axes = Axis::points([m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    Computation::Nest(Nest { body: b.body, axes, accumulations, outputs })
}

/// `[m, k] x [k, n]` of halves, with a tensor added to the result where there is a type for it.
fn added(dtype: Option<DType>, [k, n]: [usize; 2]) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(k), Dim::from(n));
    let (x, w) = (b.operand(DType::F16, vec![m.clone(), k.clone()]), b.operand(DType::F16, vec![k.clone(), n.clone()]));
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let (left, right) = (b.load(x, &[row, depth]), b.load(w, &[depth, column]));
    let mut value = b.body.dag.value(0, Scalar::F32);
    if let Some(dtype) = dtype {
        let y = b.operand(dtype, vec![m.clone(), n.clone()]);
        let y = b.load(y, &[row, column]);
        value = b.bin(BinaryOp::Add, value, y);
    }
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    matrix(b, [m, n, k], vec![contracted(2, left, right)], outputs)
}

#[test]
fn what_is_added_to_a_product_is_loaded_ahead() {
    let target = with_matrices(16, 32);
    let emitted = |dtype, sizes| emit(&added(dtype, sizes), &target, &Tuning::default()).unwrap().wgsl;
    assert!(!emitted(None, [48, 64]).contains("Ahead"), "there is nothing to load");
    // The last stages of 64 steps leave registers to halves, and those of 50 none.
    for (dtype, k) in [(DType::F32, 64), (DType::F16, 50)] {
        let wgsl = emitted(Some(dtype), [k, 64]);
        let finish = wgsl.split("fn finish(").nth(1).and_then(|text| text.split("\n}").next()).unwrap();
        assert!(finish.contains("loaded: Ahead") && finish.contains("loaded.v"), "{wgsl}");
        assert!(!finish.contains("load4_2") && !finish.contains("load_2"), "{wgsl}");
        // Eight rounds are loaded before the results are there, each later one between the matrices of a round and its results.
        let main = wgsl.split("fn main(").nth(1).unwrap();
        let rounds: Vec<&str> = main.split("coopStoreT(").skip(1).collect();
        let is_last = |round: &&str| !round.contains("ahead(");
        assert!(rounds.len() > 1 && main.split("coopStoreT(").next().unwrap().contains("= ahead("), "{wgsl}");
        let stores: Vec<&&str> = rounds.iter().filter(|round| round.contains("finish(")).collect();
        assert_eq!(stores.iter().filter(|round| is_last(round)).count(), stores.len().min(8), "{wgsl}");
        for round in stores.iter().filter(|round| !is_last(round)) {
            assert!(round.find("ahead(") < round.find("finish("), "{wgsl}");
        }
    }
    check_added(DType::F32, [48, 64]);
}

#[test]
fn halves_that_are_added_to_a_product_are_loaded_during_its_last_stages() {
    let target = with_matrices(16, 32);
    let wgsl = emit(&added(Some(DType::F16), [64, 64]), &target, &Tuning::default()).unwrap().wgsl;
    let main = wgsl.split("fn main(").nth(1).unwrap();
    let (stages, results) = main.split_once("let pitch = STAGE_PITCH;").unwrap();
    assert!(stages.contains("} else {") && stages.contains("= streamed("), "{wgsl}");
    assert!(results.contains("finish(") && !results.contains("streamed(") && !results.contains("ahead("), "{wgsl}");
    for sizes in [[64, 64], [32, 64], [128, 50], [192, 130]] {
        check_added(DType::F16, sizes);
    }
}

/// Products of few and of many rows.
fn check_added(dtype: DType, [k, n]: [usize; 2]) {
    let kernel = added(Some(dtype), [k, n]);
    for rows in [5, 70] {
        let data = [noise(DType::F16, &[rows, k], 1), noise(DType::F16, &[k, n], 2), noise(dtype, &[rows, n], 3)];
        for (matrix, subgroup) in [(8, 8), (16, 32)] {
            let target = with_matrices(matrix, subgroup);
            check_on(&format!("{rows}x{k}x{n}"), &kernel, &data, &[(0, rows as i64)], &target, &Tuning::default());
        }
    }
}

/// `[m, k] x [k, n]` of halves by a weight of a type, whose columns may be rows in memory, with sums of a type.
pub fn stored(extents: [usize; 2], weight: DType, by_column: bool, sums: DType) -> Computation {
    stored_then(extents, weight, by_column, sums, |_, sum, _, _| sum)
}

/// [`stored`], with what becomes of a sum, given the result's shape and place.
pub fn stored_then(
    [k, n]: [usize; 2],
    weight: DType,
    by_column: bool,
    sums: DType,
    finish: impl FnOnce(&mut Build, ExprId, &[Dim], &[ExprId]) -> ExprId,
) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(k), Dim::from(n));
    let shape = if by_column { vec![n.clone(), k.clone()] } else { vec![k.clone(), n.clone()] };
    let (x, w) = (b.operand(DType::F16, vec![m.clone(), k.clone()]), b.operand(weight, shape));
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
fn rows_of_8_bits_become_halves_of_cooperative_matrices() {
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
                    let in_halves = half_sums && sums == DType::F16;
                    assert!(wgsl.contains("coopMultiplyAdd") && wgsl.contains("<f16, C>") == in_halves, "{wgsl}");
                    assert_eq!(wgsl.contains("clamp("), weight == DType::Rows8, "{wgsl}");
                }
            }
        }
    }
}

/// `[2, m, k]`, less the largest of the row, by weights `[2, n, k]` in 8 bits, with sums of a type.
fn of_integers(n: usize, k: usize, sums: DType) -> Computation {
    let mut b = Build::default();
    let (h, m, n, k) = (Dim::from(2), sym(0), Dim::from(n), Dim::from(k));
    let x = b.operand(DType::F32, vec![h.clone(), m.clone(), k.clone()]);
    let w = b.operand(DType::Rows8, vec![h.clone(), n.clone(), k.clone()]);
    let c0 = b.coord(0, &h);
    let (row, column, depth) = (b.coord(1, &m), b.coord(2, &n), b.coord(3, &k));
    let (left, right) = (b.load(x, &[c0, row, depth]), b.load(w, &[c0, column, depth]));
    let largest = b.body.dag.value(0, Scalar::F32);
    let less = b.bin(BinaryOp::Sub, left, largest);
    let value = b.body.dag.value(1, Scalar::F32);
    let outputs = own(vec![output(DType::F32, vec![h.clone(), m.clone(), n.clone()], vec![c0, row, column], value)]);
    let mut axes = Axis::points([h, m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    let product = Accumulation { dtype: sums, ..contracted(3, less, right) };
    Computation::Nest(Nest {
        body: b.body,
        axes,
        accumulations: vec![combined(ReduceOp::Max, 3, left), product],
        outputs,
    })
}

/// Against the product of the rounded left factor, which is exact but for the scales.
#[test]
fn integers_are_multiplied_four_at_a_time() {
    for (m, n, k) in [(1, 1, 1), (5, 50, 25), (37, 33, 50), (130, 64, 64), (3, 130, 200)] {
        let x = noise(DType::F32, &[2, m, k], 1);
        let w = noise(DType::Rows8, &[2, n, k], 2);
        let mut rounded = x.clone();
        for row in rounded.data.chunks_mut(k) {
            let largest = row.iter().map(|x| x.float()).fold(f64::MIN, f64::max);
            let most = row.iter().map(|x| (x.float() - largest).abs()).fold(0.0, f64::max);
            let eight = |x: f64| if most == 0.0 { 0.0 } else { (x / most * 127.0).round_ties_even() * most / 127.0 };
            row.iter_mut().for_each(|x| *x = Num::F(eight(x.float() - largest) + largest));
        }
        let kernel = of_integers(n, k, DType::I32);
        let small = Tuning { rows: Some(16), columns: Some(32), depth: Some(32), ..Tuning::default() };
        let split = Tuning { rows: Some(4), columns: Some(32), depth: Some(64), parts: Some(4), ..Tuning::default() };
        for tuning in [Tuning::default(), small, split] {
            let name = format!("integers {m}x{n}x{k} {tuning}");
            let wgsl = check_close(&name, &kernel, &[x.clone(), w.clone()], &[rounded.clone(), w.clone()], m, &tuning);
            assert!(wgsl.contains("dot4I8Packed"), "{wgsl}");
        }
        let plain = emit(&of_integers(n, k, DType::F32), &Target::BASELINE, &Tuning::default()).unwrap().wgsl;
        assert!(!plain.contains("dot4I8Packed"), "{plain}");
    }
}

/// Runs on some operands, and compares with plain loops over others; a result of all may be off by some roundings of one factor.
fn check_close(
    name: &str,
    kernel: &Computation,
    run: &[Tensor],
    plain: &[Tensor],
    m: usize,
    tuning: &Tuning,
) -> String {
    let symbols = [(Symbol(0), m as i64)].into();
    let emitted = emit(kernel, &Target::BASELINE, tuning).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Some(got) = device().and_then(|device| device.run(kernel, &emitted, run, &symbols)) {
        let expected = Reference::new(kernel.nest().unwrap(), plain, &symbols).run();
        let scale = expected[0].data.iter().map(|x| x.float().abs()).fold(1e-30, f64::max);
        let far = |(x, y): &(&Num, &Num)| (x.float() - y.float()).abs() / scale;
        let off: Vec<f64> = got[0].data.iter().zip(&expected[0].data).map(|pair| far(&pair)).collect();
        // A left element on the edge of two integers may be rounded to either.
        let (largest, edges) = (off.iter().copied().fold(0.0, f64::max), off.iter().filter(|off| **off > 2e-5).count());
        assert!(
            largest < 1e-2 && edges * 20 <= off.len(),
            "{name}: {largest}, {edges} of {}\n{}",
            off.len(),
            emitted.wgsl
        );
    }
    emitted.wgsl
}

#[test]
fn singles_take_no_cooperative_matrices() {
    let kernel = dense(sym(0), 64usize.into(), 64usize.into(), DType::F32, (false, false));
    let data = [noise(DType::F32, &[2, 9, 64], 1), noise(DType::F32, &[64, 64], 2), noise(DType::F32, &[64], 3)];
    let wgsl = check_on("singles", &kernel, &data, &[(0, 9)], &with_matrices(16, 32), &Tuning::default());
    assert!(!wgsl.contains("coop_mat"), "{wgsl}");
}

/// Rows of samples, normalised before the product, and its columns in two tensors.
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
    Computation::Nest(Nest {
        body: b.body,
        axes,
        accumulations: vec![statistic(x), statistic(square), contracted(3, a, right)],
        outputs: own(vec![first, second]),
    })
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

/// `[m, 48] x [48, 64]` of halves, whose left elements are `left` of halves `[m, 48]`, of a second such tensor, of halves
/// `[48]` and of integers `[m, 48]`.
fn prepared(left: impl Fn(&mut Build, [ExprId; 4]) -> (Vec<Accumulation>, ExprId)) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(48), Dim::from(64));
    let rows = vec![m.clone(), k.clone()];
    let [x, y] = [0, 1].map(|_| b.operand(DType::F16, rows.clone()));
    let (scale, ids) = (b.operand(DType::F16, vec![k.clone()]), b.operand(DType::I32, rows));
    let w = b.operand(DType::F16, vec![k.clone(), n.clone()]);
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let [x, y, ids] = [x, y, ids].map(|operand| b.load(operand, &[row, depth]));
    let (scale, right) = (b.load(scale, &[depth]), b.load(w, &[depth, column]));
    let (mut accumulations, a) = left(&mut b, [x, y, scale, ids]);
    let value = b.body.dag.value(accumulations.len() as u8, Scalar::F32);
    accumulations.push(contracted(2, a, right));
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    matrix(b, [m, n, k], accumulations, outputs)
}

/// The square root of the reciprocal of the mean of squares, and the reduction that it is made of.
fn inverse_length(b: &mut Build, x: ExprId) -> (Vec<Accumulation>, ExprId) {
    let square = b.bin(BinaryOp::Mul, x, x);
    let sum = b.body.dag.value(0, Scalar::F32);
    let part = b.float(1.0 / 48.0);
    let mean = b.bin(BinaryOp::Mul, sum, part);
    let eps = b.float(1e-5);
    let mean = b.bin(BinaryOp::Add, mean, eps);
    let scale = b.body.dag.unary(UnaryOp::Rsqrt, mean);
    (vec![combined(ReduceOp::Sum, 2, square)], scale)
}

type Prologue = fn(&mut Build, [ExprId; 4]) -> (Vec<Accumulation>, ExprId);

#[test]
fn only_what_halves_hold_is_rounded_to_halves() {
    let takes: [(&str, Prologue); 9] = [
        ("stored halves", |_, [x, ..]| (vec![], x)),
        ("a bounded function", |b, [x, ..]| (vec![], b.body.dag.unary(UnaryOp::Tanh, x))),
        ("a gate", |b, [x, y, ..]| {
            let gate = b.body.dag.unary(UnaryOp::Sigmoid, y);
            (vec![], b.bin(BinaryOp::Mul, x, gate))
        }),
        ("a scale that rows share", |b, [x, _, scale, _]| (vec![], b.bin(BinaryOp::Mul, x, scale))),
        ("a sum", |b, [x, y, ..]| (vec![], b.bin(BinaryOp::Add, x, y))),
        ("a normalised row by another", |b, [x, y, scale, _]| {
            let (stats, inverse) = inverse_length(b, x);
            let normal = b.bin(BinaryOp::Mul, x, inverse);
            let normal = b.bin(BinaryOp::Mul, normal, scale);
            (stats, b.bin(BinaryOp::Mul, normal, y))
        }),
        ("weights of a softmax", |b, [x, ..]| {
            let largest = b.body.dag.value(0, Scalar::F32);
            let below = b.bin(BinaryOp::Sub, x, largest);
            let stats = vec![combined(ReduceOp::Max, 2, x)];
            (stats, b.body.dag.unary(UnaryOp::Exp, below))
        }),
        ("small integers", |b, [.., ids]| {
            let limit = b.body.dag.int(2049);
            let small = b.bin(BinaryOp::Mod, ids, limit);
            (vec![], b.body.dag.cast(Scalar::F32, small))
        }),
        ("truth values", |b, [.., ids]| {
            let zero = b.body.dag.int(0);
            let positive = b.bin(BinaryOp::Gt, ids, zero);
            (vec![], b.body.dag.cast(Scalar::F32, positive))
        }),
    ];
    let refuses: [(&str, Prologue); 6] = [
        ("integers", |b, [.., ids]| (vec![], b.body.dag.cast(Scalar::F32, ids))),
        ("integers above 2048", |b, [.., ids]| {
            let limit = b.body.dag.int(2050);
            let small = b.bin(BinaryOp::Mod, ids, limit);
            (vec![], b.body.dag.cast(Scalar::F32, small))
        }),
        ("an exponential", |b, [x, ..]| (vec![], b.body.dag.unary(UnaryOp::Exp, x))),
        ("a square", |b, [x, ..]| (vec![], b.bin(BinaryOp::Mul, x, x))),
        ("a large scale", |b, [x, ..]| {
            let large = b.float(1000.0);
            (vec![], b.bin(BinaryOp::Mul, x, large))
        }),
        ("a quotient", |b, [x, y, ..]| (vec![], b.bin(BinaryOp::Div, x, y))),
    ];
    let mut ids = noise(DType::I32, &[9, 48], 4);
    for (n, id) in ids.data.iter_mut().enumerate() {
        *id = Num::I([2049, -70_000, 0, 3, -1][n % 5]);
    }
    let large = |seed| {
        let mut x = noise(DType::F16, &[9, 48], seed);
        x.data.iter_mut().for_each(|x| *x = Num::F(half::f16::from_f64(x.float() * 8.0).to_f64()));
        x
    };
    let data = [large(1), large(2), noise(DType::F16, &[48], 3), ids, noise(DType::F16, &[48, 64], 5)];
    for (prologues, expected) in [(&takes[..], true), (&refuses[..], false)] {
        for (name, left) in prologues {
            for (matrix, subgroup) in [(8, 8), (16, 32)] {
                let target = with_matrices(matrix, subgroup);
                let kernel = prepared(left);
                let wgsl = match *name {
                    // Beyond what the plain loops' tolerance of sums of singles says of halves.
                    "weights of a softmax"
                    | "a gate"
                    | "a bounded function"
                    | "a normalised row by another"
                    | "a scale that rows share"
                    | "a sum" => emit(&kernel, &target, &Tuning::default()).unwrap().wgsl,
                    _ => check_on(name, &kernel, &data, &[(0, 9)], &target, &Tuning::default()),
                };
                assert_eq!(wgsl.contains("coopMultiplyAdd"), expected, "{name}");
            }
        }
    }
}

/// `[m, k] x [k, n]` of what a function makes of the elements of two operands.
fn made(dtype: DType, function: fn(&mut Build, ExprId) -> ExprId) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(48), Dim::from(64));
    let x = b.operand(dtype, vec![m.clone(), k.clone()]);
    let w = b.operand(dtype, vec![k.clone(), n.clone()]);
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let [left, right] = [b.load(x, &[row, depth]), b.load(w, &[depth, column])].map(|x| function(&mut b, x));
    let value = b.body.dag.value(0, Scalar::F32);
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    let mut axes = Axis::points([m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    Computation::Nest(Nest { body: b.body, axes, accumulations: vec![contracted(2, left, right)], outputs })
}

#[test]
fn truth_values_are_halves_and_bounded_functions_of_singles_are_not() {
    let positive = made(DType::I32, |b, x| {
        let zero = b.body.dag.int(0);
        let positive = b.bin(BinaryOp::Gt, x, zero);
        b.body.dag.cast(Scalar::F32, positive)
    });
    let bounded = made(DType::F32, |b, x| b.body.dag.unary(UnaryOp::Tanh, x));
    for (name, dtype, kernel, expected) in
        [("truth values", DType::I32, positive, true), ("a bounded function", DType::F32, bounded, false)]
    {
        let data = [noise(dtype, &[9, 48], 1), noise(dtype, &[48, 64], 2)];
        for (matrix, subgroup) in [(8, 8), (16, 32)] {
            let target = with_matrices(matrix, subgroup);
            let wgsl = check_on(name, &kernel, &data, &[(0, 9)], &target, &Tuning::default());
            assert_eq!(wgsl.contains("coopMultiplyAdd"), expected, "{name}");
        }
    }
}
