//! The exported `STULayer` of the reference beside the one that is traced here.

use rewire_graph::{DType, Dim, Graph, HostTensor, Scope};
use rewire_graph_rewrite::plan::Plan;
use rewire_hstu::modules::{StuConfig, StuInput, StuLayer};
use rewire_hstu::ops::SeqLen;
use rewire_import::{OutputKind, pt2, tensors};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, options, plan, run, session};
use rewire_tests::compare::{Tolerance, difference};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The layer with the names that the file has.
fn traced() -> Graph {
    let config = json!({ "embedding_dim": 16, "num_heads": 2, "hidden_dim": 8, "attention_dim": 4 });
    let layer = StuLayer { config: serde_json::from_value::<StuConfig>(config).unwrap() };
    let scope = Scope::new();
    let rows = scope.offsets("x_offsets");
    let x = scope.input("x", DType::F32, [rows.total.clone(), 16.into()]);
    let num_targets = Some(scope.host_input("num_targets", std::slice::from_ref(&rows.batch)));
    let max_seq_len = SeqLen::Host(scope.host_input("length", Vec::<Dim>::new()));
    let input = StuInput { x, rows, num_targets, max_seq_len };
    let y = scope.module("stu", |scope| layer.forward(scope, &input));
    scope.finish(&[("y", y)]).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pt2/hstu_stu_layer")
}

/// The inputs of a set as the file has them, and as the traced layer takes them: `positions` counts to the longest length.
fn inputs(set: usize) -> [Tensors; 2] {
    let bytes = std::fs::read(folder().join(format!("inputs_{set}.safetensors"))).unwrap();
    let given: Tensors = tensors::deserialize(&bytes).unwrap().into_iter().map(|(name, x)| (name, x.tensor)).collect();
    let mut own = given.clone();
    let length = own.remove("positions").unwrap().shape()[0];
    own.insert("length".to_owned(), HostTensor::from_f64(DType::I32, vec![], &[length as f64]).unwrap());
    for name in ["x_offsets", "num_targets"] {
        let x = &given[name];
        let values: Vec<f64> = x.to_i64().into_iter().map(|value| value as f64).collect();
        own.insert(name.to_owned(), HostTensor::from_f64(DType::I32, x.shape().to_vec(), &values).unwrap());
    }
    [given, own]
}

fn schedules(plan: &Plan) -> Vec<Option<&'static str>> {
    plan.steps
        .iter()
        .map(|step| step.computation.schedule().map(rewire_graph_rewrite::schedule::Schedule::name))
        .collect()
}

#[test]
fn an_exported_stu_layer_has_the_kernels_and_results_of_a_traced_one() {
    let own = traced();
    for file in ["model.pt2", "model_core.pt2"] {
        let imported = pt2::read(&folder().join(file)).unwrap();
        let OutputKind::Tensor(output, _) = &imported.outputs[0].kind else { panic!("no tensor") };
        let plans = [&imported.graph, &own].map(|graph| plan(graph).unwrap());
        assert_eq!(schedules(&plans[0]), schedules(&plans[1]), "{file}");
        assert_eq!(plans[0].steps.len(), 3, "{file}");
        for kernel in [Kernel::Cpu, Kernel::Wgpu].into_iter().filter(|&kernel| options(kernel).is_some()) {
            let [mut exported, mut layer] =
                [&imported.graph, &own].map(|graph| session(graph, &imported.parameters, kernel).unwrap().unwrap());
            for set in 0..3 {
                let [given, own] = inputs(set);
                let (results, expected) = (run(&mut exported, &given).unwrap(), run(&mut layer, &own).unwrap());
                let found = difference(&results[output], &expected["y"], Tolerance::SINGLE);
                assert_eq!(found, None, "{file}, set {set}, {kernel}");
            }
        }
    }
}
