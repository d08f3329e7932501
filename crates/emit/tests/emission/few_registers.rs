//! Kernels for GPUs with few registers per invocation.

use crate::build::sym;
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
    assert_eq!([48, 76, 192, 255].map(depth), [Some(16), Some(16), Some(16), Some(32)]);
}
