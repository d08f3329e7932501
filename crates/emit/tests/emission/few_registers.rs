//! Kernels for GPUs with few registers per invocation.

use crate::attention::{self, AttentionCase, Mask};
use crate::build::{noise, sym};
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

/// The shader of a matmul of 70 rows and 100 columns with a constant sum for 48 registers, checked on the adapter.
fn narrow(transposed: bool) -> String {
    let (m, n, k) = (70usize, 100usize, 48usize);
    let kernel = dense(m.into(), n.into(), k.into(), DType::F32, (false, transposed));
    let weight = if transposed { [n, k] } else { [k, n] };
    let data = [noise(DType::F32, &[2, m, k], 1), noise(DType::F32, &weight, 2), noise(DType::F32, &[n], 3)];
    let target = Target { registers: 48, ..Target::BASELINE };
    check_on(&format!("transposed {transposed}"), &kernel, &data, &[], &target, &Tuning::default())
}

#[test]
fn loops_of_constant_lengths_have_bounds_that_drivers_do_not_know() {
    let shader = narrow(false);
    let none = shader.lines().find_map(|line| line.trim().strip_prefix("let none = ")).unwrap();
    assert!(none.contains("params["), "{none}");
    for name in ["k0", "step"] {
        let starts = format!("for (var {name} = 0; {name} < ");
        let bound = shader.lines().find_map(|line| line.trim().strip_prefix(&starts)?.split(';').next()).unwrap();
        assert!(bound.ends_with("+ none"), "{bound}");
    }
}

#[test]
fn a_transposed_block_is_loaded_after_the_other_operand_is_stored() {
    for transposed in [false, true] {
        let shader = narrow(transposed);
        let stored = shader.find("left_tile[item] = ").unwrap();
        let loaded = shader.rfind("= right(").unwrap();
        assert_eq!(stored < loaded, transposed);
    }
}
