//! `rewire compile`.

use crate::program::{Folder, run};
use serde_json::Value;

#[test]
fn what_cannot_be_compiled_is_said() {
    run(&["compile", "addmm", "--kernel", "cpu"]).refused_with(&["compile is for kernels of adapters"]);
    run(&["compile", "nonsense"]).refused_with(&["`nonsense`", "addmm"]);
    run(&["compile", "addmm", "--adapter", "no such adapter"]).failed_with(&["no GPU adapter", "no such adapter"]);
}

/// Software drivers have no statistics of kernels, and the program reports that.
#[test]
fn a_line_a_kernel_and_a_summary() {
    let folder = Folder::new();
    let isa = folder.0.join("isa").display().to_string();
    let compiled =
        run(&["compile", "addmm", "layer-norm", "--json", "--kernel", "wgpu", "--deny-spills", "--isa", &isa]);
    if compiled.code != Some(0) {
        let is_told =
            ["no GPU adapter", "VK_KHR_pipeline_executable_properties"].map(|why| compiled.stderr.contains(why));
        assert!(is_told.contains(&true), "{}", compiled.stderr);
        return;
    }
    let lines = compiled.json();
    let (summary, kernels) = lines.split_last().unwrap();
    assert_eq!(summary["summary"]["kernels"].as_u64(), Some(kernels.len() as u64));
    assert_eq!(summary["summary"]["failed"].as_u64(), Some(0));
    let named = |name: &str| kernels.iter().map(|line| line[name].clone()).collect::<Vec<Value>>();
    assert_eq!(named("work"), ["addmm", "layer-norm"]);
    assert_eq!(named("schedule"), ["product", "reduction"]);
    assert_eq!(std::fs::read_dir(isa).unwrap().count(), kernels.len());
}
