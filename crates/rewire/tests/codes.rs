//! Codes of errors, which programs rely on.
#![allow(clippy::unwrap_used)]

use rewire::graph::{Coded, Seed, differentiate};
use rewire::graph_rewrite::passes::Pipeline;
use rewire::hstu::models::dlrm_hstu::Config;
use rewire::prelude::*;
use rewire::weights::Weights;

#[test]
fn codes_stay_and_pass_through() {
    let graph = |shape: [usize; 1]| {
        let scope = Scope::new();
        let y = scope.input("a", DType::F32, [4]) + scope.input("b", DType::F32, shape);
        scope.finish(&[("y", y)])
    };
    assert_eq!(graph([3]).unwrap_err().code(), "graph.type");
    let graph = graph([4]).unwrap();
    assert_eq!(differentiate(&graph, &[("x", Seed::One)], &[]).unwrap_err().code(), "differentiate.unknown");
    assert_eq!(Pipeline::default().without("nothing").err().unwrap().code(), "rewrite.unknown");

    let plan = rewire::lower(&rewire::optimize(graph).unwrap().0).unwrap();
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut session = Model::load(plan, (), options).unwrap().session();
    assert_eq!(session.run(&Inputs::new()).unwrap_err().code(), "run.missing_input");
    let wrong = Inputs::new().with("a", HostTensor::f32([1], &[1.0]).unwrap());
    let wrong = wrong.with("b", HostTensor::f32([4], &[1.0; 4]).unwrap());
    assert_eq!(session.run(&wrong).unwrap_err().code(), "run.input_shape");

    assert_eq!(Config::from_json("{").unwrap_err().code(), "model.parse");
    assert_eq!(Config::from_json("{\"surprise\": 1}").unwrap_err().code(), "model.key");
    assert_eq!(Weights::parse(vec![0; 4]).unwrap_err().code().split('.').next(), Some("weights"));
    let missing = Ranker::load("/no/such/model".as_ref(), &RankOptions::default());
    assert_eq!(missing.err().unwrap().code(), "rank.read");
}
