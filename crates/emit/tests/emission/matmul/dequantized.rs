//! 8-bit weights that kernels read as f16.

use super::{stored, stored_then};
use crate::with_matrices;
use rewire_emit::{candidates, emit, of_family, suited};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::device::{BindingSource, Target, Tuning};

fn shares() -> Target {
    Target { matrix_elements: true, workgroup_matrices: 256, workgroup_bytes: 48 << 10, ..with_matrices(16, 32) }
}

#[test]
fn weights_of_8_bits_are_halves_where_a_workgroup_shares_matrices() {
    // The larger matmul uses workgroup-scope matrices, the other one subgroup-scope matrices.
    for extents in [[512, 256], [50, 40]] {
        for by_column in [true, false] {
            // Dequantized f16 weights have one row per step of `k`, regardless of the layout of the 8-bit weights.
            let rows = stored(extents, DType::Rows8, by_column, DType::F32);
            let f16 = stored(extents, DType::F16, false, DType::F32);
            let [own, same] = [&rows, &f16].map(|kernel| emit(kernel, &shares(), &Tuning::default()).unwrap());
            assert_eq!(own.wgsl, same.wgsl);
            assert_eq!(
                own.slots,
                [
                    BindingSource::Operand(0),
                    BindingSource::Dequantized { operand: 1, transposed: by_column },
                    BindingSource::Output(0)
                ]
            );
            assert_eq!(same.slots, [BindingSource::Operand(0), BindingSource::Operand(1), BindingSource::Output(0)]);
            let size = |dim: &Dim| Some(dim.as_const().map_or(200, |width| width as u64));
            let tunings = [&rows, &f16].map(|kernel| {
                let base = of_family(Tuning::default(), kernel, &shares());
                (base, suited(base, kernel, &shares(), size), candidates(&base, kernel, &shares()))
            });
            assert_eq!(tunings[0], tunings[1]);
        }
    }
}

#[test]
fn weights_of_8_bits_stay_what_they_are_elsewhere() {
    let kernel = stored([512, 256], DType::Rows8, true, DType::F32);
    let also_added = stored_then([256, 256], DType::Rows8, true, DType::F32, |b, sum, _, place| {
        let weight = b.load(1, &[place[1], place[1]]);
        b.bin(BinaryOp::Add, sum, weight)
    });
    // The f16 weight exceeds the size of a binding.
    let small = Target { binding_bytes: 200 << 10, ..shares() };
    let cases = [
        ("no matrices of a workgroup", &kernel, Target { workgroup_matrices: 0, ..shares() }),
        ("no matrix hardware", &kernel, Target::BASELINE),
        ("a binding", &kernel, small),
        ("a weight that is added, too", &also_added, shares()),
    ];
    for (name, kernel, target) in cases {
        let slots = emit(kernel, &target, &Tuning::default()).unwrap().slots;
        assert_eq!(slots, [BindingSource::Operand(0), BindingSource::Operand(1), BindingSource::Output(0)], "{name}");
    }
}
