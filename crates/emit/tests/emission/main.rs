//! Emitted kernels, run on a Vulkan adapter and compared with plain loops.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod attention;
mod build;
mod device;
mod errors;
mod few_registers;
mod lookups;
mod map;
mod segmented_reduce;

mod matmul;
mod random;
mod reduce;
mod reference;
mod snapshot;
#[cfg(feature = "spirv")]
mod spirv;
mod tensor;
mod tuning;
mod writers;

use rewire_emit::emit;
use rewire_graph::{DType, Number, Symbol};
use rewire_graph_rewrite::device::{SubgroupSizes, Target, Tuning};
use rewire_graph_rewrite::plan::Computation;
use std::collections::HashMap;
use std::path::Path;
use tensor::Tensor;

/// Emits `kernel` for all targets, runs some of the shaders if there is an adapter, and compares with plain loops.
fn check(name: &str, kernel: &Computation, operands: &[Tensor], symbols: &[(u32, i64)]) {
    check_tuned(name, kernel, operands, symbols, &Tuning::default());
}

fn check_tuned(name: &str, kernel: &Computation, operands: &[Tensor], symbols: &[(u32, i64)], tuning: &Tuning) {
    for f16 in [false, true] {
        check_on(name, kernel, operands, symbols, &Target { f16, ..Target::BASELINE }, tuning);
    }
}

/// A target with cooperative matrices of this size.
fn with_matrices(matrix: u32, subgroup_size: u32) -> Target {
    let subgroup_size = SubgroupSizes::fixed(subgroup_size);
    let (registers, workgroup_bytes) = (255, 32 << 10);
    Target { f16: true, subgroups: true, subgroup_size, matrix, registers, workgroup_bytes, ..Target::BASELINE }
}

/// Emits for `target`, and runs some of the shaders if the adapter has the same capabilities.
fn check_on(
    name: &str,
    kernel: &Computation,
    operands: &[Tensor],
    symbols: &[(u32, i64)],
    target: &Target,
    tuning: &Tuning,
) -> String {
    let symbols: HashMap<Symbol, i64> = symbols.iter().map(|&(s, n)| (Symbol(s), n)).collect();
    let emitted = emit(kernel, target, tuning).unwrap_or_else(|e| panic!("{name}: {e}"));
    let sizes = target.subgroup_size;
    let has = |device: &&device::Device| {
        let (matrix, subgroup) = device.matrices;
        let has_matrices = matrix == target.matrix && (sizes.min..=sizes.max).contains(&subgroup);
        (device.f16 || !target.f16) && (target.matrix == 0 || has_matrices)
    };
    let device = device::device().filter(has);
    if let Some(got) = device.and_then(|device| device.run(kernel, &emitted, operands, &symbols)) {
        let expected = reference::Reference::new(kernel.nest().unwrap(), operands, &symbols).run();
        for (n, (got, expected)) in got.iter().zip(&expected).enumerate() {
            compare(&format!("{name}, output {n}, f16 {}", target.f16), got, expected, &emitted.wgsl);
        }
    }
    emitted.wgsl
}

fn compare(name: &str, got: &Tensor, expected: &Tensor, wgsl: &str) {
    let scale = expected.data.iter().map(|x| x.float().abs()).fold(0.0, f64::max).max(1e-30);
    let tolerance = match got.dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 8e-3,
        _ => 2e-5,
    };
    for (at, (x, y)) in got.data.iter().zip(&expected.data).enumerate() {
        let ok = match y {
            Number::Float(y) if y.is_nan() => x.float() == 0.0,
            &Number::Integer(y) => x.integer() == y,
            &Number::Float(y) => (x.float() - y).abs() <= tolerance * scale,
        };
        assert!(ok, "{name}: at {at} of {:?}: {x:?}, expected {y:?}\n{wgsl}", got.shape);
    }
}

/// The text of all sources below a folder.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { sources(&path) } else { std::fs::read_to_string(&path).unwrap_or_default() })
        .collect()
}

#[test]
fn the_hash_of_kernels_covers_what_they_are_emitted_from() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = std::fs::read_to_string(package.join("build.rs")).unwrap();
    let listed: Vec<&str> =
        build.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")).collect();
    let compiler = "../graph-rewrite/src/";
    let modules: Vec<&str> = listed.iter().filter_map(|source| source.strip_prefix(compiler)).collect();
    let own = modules.iter().map(|module| (format!("{compiler}{module}"), "crate::"));
    for (folder, path) in own.chain([("src".to_owned(), "rewire_graph_rewrite::")]) {
        for rest in sources(&package.join(&folder)).split(path).skip(1) {
            // One path, or a list of them in braces.
            let names = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or_default());
            let count = if rest.starts_with('{') { usize::MAX } else { 1 };
            for used in names.split(',').take(count) {
                let used = used.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                // The lowered computation is part of every key, errors are not part of a kernel, and `bound!` belongs
                // to schedules.
                let is_covered = modules.contains(&used) || ["lower", "optimize", "error", "bound"].contains(&used);
                assert!(is_covered, "`{folder}` uses `{used}`, which the hash leaves out");
            }
        }
    }
    assert!(listed.contains(&"src") && listed.contains(&"shaders") && modules.contains(&"schedule"), "{listed:?}");
    for source in ["nest", "dtype.rs", "storage", "pointwise"] {
        assert!(listed.contains(&format!("../graph/src/{source}").as_str()), "{source}");
    }
    assert!(listed.iter().all(|source| package.join(source).exists()), "{listed:?}");
}
