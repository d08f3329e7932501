//! Matmuls of bytes.

use crate::build::{Build, contracted, noise, output, own, sym};
use crate::device::device;
use crate::reference::Reference;
use rewire_emit::emit;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Scalar, Symbol};
use rewire_graph_rewrite::device::{ProductTile, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest};

/// `[2, m, k]` times `[2, n, k]`, both bytes, with accumulators of type `sums`, and rows with a scale.
fn of_integers(n: usize, k: usize, sums: DType) -> Computation {
    let mut b = Build::default();
    let (h, m, n, k) = (Dim::from(2), sym(0), Dim::from(n), Dim::from(k));
    let x = b.operand(DType::I8, vec![h.clone(), m.clone(), k.clone()]);
    let w = b.operand(DType::I8, vec![h.clone(), n.clone(), k.clone()]);
    let scale = b.operand(DType::F32, vec![h.clone(), m.clone()]);
    let c0 = b.coord(0, &h);
    let (row, column, depth) = (b.coord(1, &m), b.coord(2, &n), b.coord(3, &k));
    let (left, right) = (b.load(x, &[c0, row, depth]), b.load(w, &[c0, column, depth]));
    let (sum, scale) = (b.body.dag.value(0, Scalar::F32), b.load(scale, &[c0, row]));
    let value = b.bin(BinaryOp::Mul, sum, scale);
    let outputs = own(vec![output(DType::F32, vec![h.clone(), m.clone(), n.clone()], vec![c0, row, column], value)]);
    let mut axes = Axis::points([h, m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    let accumulations = vec![Accumulation { dtype: sums, ..contracted(3, left, right) }];
    Computation::of(Nest { body: b.body, axes, accumulations, outputs }).unwrap()
}

#[test]
fn integers_are_multiplied_four_at_a_time() {
    for (m, n, k) in [(1, 1, 4), (5, 50, 28), (37, 33, 52), (130, 64, 64), (3, 130, 200)] {
        let operands =
            [noise(DType::I8, &[2, m, k], 60), noise(DType::I8, &[2, n, k], 90), noise(DType::F32, &[2, m], 3)];
        let kernel = of_integers(n, k, DType::I32);
        let small = ProductTile { rows: 16, columns: 32, depth: 32, rows_per_thread: 1, parts: 1 };
        let split = ProductTile { rows: 4, columns: 32, depth: 64, rows_per_thread: 1, parts: 4 };
        let tiles = [small, split].map(|tile| Tile::Product(tile).into());
        let symbols = [(Symbol(0), m as i64)].into();
        for tuning in [Tuning::default()].into_iter().chain(tiles) {
            let emitted = emit(&kernel, &Target::BASELINE, &tuning).unwrap();
            assert!(emitted.wgsl.contains("dot4I8Packed"), "{}", emitted.wgsl);
            // Sums are exact in either type, and so is their product with a scale.
            if let Some(got) = device().and_then(|device| device.run(&kernel, &emitted, &operands, &symbols)) {
                let expected = Reference::new(kernel.nest().unwrap(), &operands, &symbols).run();
                let far = |(x, y): (&rewire_graph::Number, &rewire_graph::Number)| {
                    (x.float() - y.float()).abs() > 1e-6 * y.float().abs()
                };
                assert!(!got[0].data.iter().zip(&expected[0].data).any(far), "{m}x{n}x{k} {tuning}");
            }
        }
        let plain = emit(&of_integers(n, k, DType::F32), &Target::BASELINE, &Tuning::default()).unwrap().wgsl;
        assert!(!plain.contains("dot4I8Packed"), "{plain}");
    }
}
