//! Stored cases with other attributes and shapes compute what the interpreter computes.

use rewire_runtime::Kernel;
use rewire_tests::backend::gpu;
use rewire_tests::golden::{Golden, cases, is_wanted_whole};
use rewire_tests::vary::{LENGTHS, Shape, TARGETS, Targets, attributes, check, has_room_for_targets, set};
use std::collections::{BTreeMap, BTreeSet};

/// The number of stored cases of an operator that are varied in one attribute.
const TEMPLATES: usize = 1;

/// Modules have parameters of that width, operators have inputs.
fn is_width(key: &str) -> bool {
    ["hidden_dim", "attention_dim"].contains(&key)
}

fn none_failed(failed: &[String]) {
    let shown: Vec<&str> = failed.iter().take(20).map(String::as_str).collect();
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), shown.join("\n"));
}

fn shapes() -> Vec<Shape> {
    let widths = [[1, 25, 50], [2, 16, 7], [3, 1, 1], [4, 8, 33]];
    let mut shapes = vec![];
    for (n, lengths) in LENGTHS.iter().enumerate() {
        for (m, targets) in TARGETS.into_iter().enumerate() {
            let shortest = lengths.iter().copied().min().unwrap_or(0);
            let context = if matches!(targets, Targets::Absent) { 0 } else { shortest.min(3) };
            shapes.push(Shape { lengths: lengths.to_vec(), widths: widths[(n + m) % 4], targets, context });
        }
    }
    shapes
}

fn hold(shapes: &[Shape], kernel: Kernel) {
    let cases = shapes.iter().flat_map(Shape::cases);
    let failed: Vec<String> =
        cases.filter_map(|case| check(&case, kernel, 9).err().map(|e| format!("{}: {e}", case.name))).collect();
    none_failed(&failed);
}

#[test]
fn the_cpu_takes_other_shapes() {
    // A step that neither lengths nor targets are a multiple of.
    let step = if is_wanted_whole() { 1 } else { 3 };
    let some: Vec<Shape> = shapes().into_iter().step_by(step).collect();
    hold(&some, Kernel::Cpu);
}

#[test]
fn the_gpu_takes_other_shapes() {
    if gpu().is_some() {
        let some: Vec<Shape> = shapes().into_iter().step_by(9).collect();
        hold(&some, Kernel::Wgpu);
    }
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn every_attribute_takes_other_values() {
        let stored: Vec<Golden> = cases().iter().map(|path| Golden::read(path)).collect();
        let (mut varied, mut failed) = (BTreeSet::new(), vec![]);
        for (key, values) in attributes() {
            let mut used: BTreeMap<String, usize> = BTreeMap::new();
            for stored in &stored {
                let mut golden = stored.clone();
                let is_module = golden.attrs.get("init").is_some();
                let learns = golden.attrs["mode"] == "train" && key.contains("dropout");
                let count = used.entry(golden.op.clone()).or_default();
                if *count == TEMPLATES || learns || !is_module && (golden.op.starts_with("fusion_") || is_width(key)) {
                    continue;
                }
                for value in values.as_array().into_iter().flatten() {
                    if set(&mut golden.attrs, key, value) == 0 {
                        break;
                    }
                    varied.insert(key);
                    if !has_room_for_targets(&golden) {
                        continue;
                    }
                    let error = check(&golden, Kernel::Cpu, 5).err();
                    failed.extend(error.map(|e| format!("{} {key} = {value}: {e}", golden.name)));
                }
                *count += usize::from(set(&mut golden.attrs, key, &values[0]) > 0);
            }
        }
        let missing: Vec<&str> =
            attributes().into_iter().map(|(key, _)| key).filter(|key| !varied.contains(key)).collect();
        assert!(missing.is_empty(), "no case has {missing:?}");
        none_failed(&failed);
    }
}
