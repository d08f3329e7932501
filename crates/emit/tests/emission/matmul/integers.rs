//! int8 matmuls.

use crate::build::{Build, combined, contracted, noise, output, own, sym};
use crate::device::device;
use crate::reference::Reference;
use crate::tensor::Tensor;
use rewire_emit::emit;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Number, Scalar, Symbol};
use rewire_graph_rewrite::device::{ProductTile, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, ReduceOp};

/// `[2, m, k]`, minus the maximum of the row, times 8-bit weights `[2, n, k]`, with accumulators of type `sums`.
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
    Computation::of(Nest {
        body: b.body,
        axes,
        accumulations: vec![combined(ReduceOp::Max, 3, left), product],
        outputs,
    })
    .unwrap()
}

/// Compared with the matmul of the rounded left operand, which is exact except for the scales.
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
            row.iter_mut().for_each(|x| *x = Number::Float(eight(x.float() - largest) + largest));
        }
        let kernel = of_integers(n, k, DType::I32);
        let small = ProductTile { rows: 16, columns: 32, depth: 32, rows_per_thread: 1, parts: 1 };
        let split = ProductTile { rows: 4, columns: 32, depth: 64, rows_per_thread: 1, parts: 4 };
        let tiles = [small, split].map(|tile| Tile::Product(tile).into());
        for tuning in [Tuning::default()].into_iter().chain(tiles) {
            let name = format!("integers {m}x{n}x{k} {tuning}");
            let wgsl = check_close(&name, &kernel, &[x.clone(), w.clone()], &[rounded.clone(), w.clone()], m, &tuning);
            assert!(wgsl.contains("dot4I8Packed"), "{wgsl}");
        }
        let plain = emit(&of_integers(n, k, DType::F32), &Target::BASELINE, &Tuning::default()).unwrap().wgsl;
        assert!(!plain.contains("dot4I8Packed"), "{plain}");
    }
}

/// Runs a kernel on the operands `run` and compares with plain loops over `plain`. Few results may differ because a
/// left element is rounded differently.
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
        let far = |(x, y): &(&Number, &Number)| (x.float() - y.float()).abs() / scale;
        let off: Vec<f64> = got[0].data.iter().zip(&expected[0].data).map(|pair| far(&pair)).collect();
        // A left element halfway between two integers may be rounded to either.
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
