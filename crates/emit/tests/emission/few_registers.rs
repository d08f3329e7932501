//! Kernels for GPUs with few registers per invocation.

use crate::attention::{self, AttentionCase, Mask};
use crate::build::sym;
use crate::check_on;
use crate::matmul::dense;
use rewire_emit::emit;
use rewire_graph::DType;
use rewire_graph_rewrite::device::{Target, Tuning};

#[test]
fn few_threads_stage_little() {
    let narrow = dense(sym(0), 1usize.into(), 128usize.into(), DType::F32, (false, false));
    let depth = |registers: u32| {
        let target = Target { registers, ..Target::BASELINE };
        let shader = emit(&narrow, &target, &Tuning::default()).unwrap().wgsl;
        [16, 32].into_iter().find(|depth| shader.contains(&format!("const TILE_K = {depth};")))
    };
    assert_eq!([48, 60, 192, 255].map(depth), [Some(16), Some(16), Some(16), Some(32)]);
}

#[test]
fn sums_of_wide_values_take_one_key_at_a_time() {
    for (v, softmax) in [64, 128].into_iter().flat_map(|v| [false, true].map(|softmax| (v, softmax))) {
        let case = AttentionCase { mask: Mask::Causal, heads: 2, qk: 32, v, dtype: DType::F32, softmax };
        let (kernel, operands, symbols) = attention::kernel(&case, &[40, 3], None);
        let target = Target { registers: 60, ..Target::BASELINE };
        let name = format!("values of {v}, softmax {softmax}");
        let shader = check_on(&name, &kernel, &operands, &symbols, &target, &Tuning::default());
        assert_eq!(shader.contains("for (var key = 0u;"), v == 128, "{name}");
    }
}
