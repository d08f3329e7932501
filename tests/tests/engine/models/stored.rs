//! Plans in files: whatever lowering makes can be stored and read, and is the same then, to the bit.

use rewire_emit::emit;
use rewire_graph::pointwise::{Function, ScalarFunction};
use rewire_graph::{DType, Graph, Scope};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Plan;
use rewire_hstu::ops::{NormMulDropout, hstu_compute_output};
use rewire_measure::{Shape, Workload, operators};
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, load_plan, options, oracle, plan, run};
use rewire_tests::build::build;
use rewire_tests::case::GraphCase;
use rewire_tests::compare::Tolerance;
use rewire_tests::golden::{cases, hold as hold_cases, is_wanted_whole, sample};
use rewire_tests::program::{compiled, hold};
use serde_json::{Value, json};
use std::sync::Arc;

/// A plan, and the plan parsed from its file. Both are equal, and emit the same shaders.
fn stored(graph: &Graph) -> Result<[Plan; 2], String> {
    let plan = plan(graph)?;
    let text = serde_json::to_string(&plan).map_err(|error| format!("store: {error}"))?;
    let again: Plan = serde_json::from_str(&text).map_err(|error| format!("read: {error}"))?;
    if again != plan {
        return Err("what is read is not what was stored".to_owned());
    }
    for (step, other) in plan.steps.iter().zip(&again.steps) {
        let [one, other] = [step, other].map(|step| emit(&step.computation, &Target::BASELINE, &Tuning::default()));
        if one.map(|kernel| kernel.wgsl) != other.map(|kernel| kernel.wgsl) {
            return Err(format!("step {} emits another shader when it is read", step.name));
        }
    }
    Ok([plan, again])
}

/// Both plans compute the same bits.
fn runs(graph: &Graph, inputs: &Tensors, parameters: &Tensors, kernel: Kernel) -> Result<(), String> {
    let mut results = vec![];
    for plan in stored(graph)? {
        let Some(options) = options(kernel) else { return Ok(()) };
        results.push(run(&mut load_plan(plan, parameters, options)?, inputs)?);
    }
    if results[0] == results[1] { Ok(()) } else { Err(format!("{kernel}: the results differ")) }
}

#[test]
fn random_graphs_survive_a_file() {
    hold(120, 12, |program| {
        let case = build(program)?;
        runs(&case.graph, &case.inputs, &case.parameters, Kernel::Cpu)
    });
    hold(compiled(15), 6, |program| {
        let case = build(program)?;
        runs(&case.graph, &case.inputs, &case.parameters, Kernel::Wgpu)
    });
}

#[test]
fn golden_cases_survive_a_file() {
    hold_cases(&cases(), |golden| stored(&golden.trace()?.graph).map(drop));
    hold_cases(&sample(), |golden| {
        let graph = golden.trace()?.graph;
        runs(&graph, &golden.inputs(&graph), &golden.parameters(&graph), Kernel::Cpu)
    });
}

#[test]
fn models_survive_a_file() {
    let shape = Shape { batch: 2, max_len: 12, layers: 2, ..Shape::default() };
    for (name, _) in operators() {
        let workload = Workload::operator(name, &shape).unwrap();
        stored(workload.graph().unwrap()).map(drop).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The output of a layer with a norm of every head.
fn group_norm(heads: usize, concat_ux: bool, dtype: DType) -> Graph {
    let (width, columns) = (heads * (1 + heads % 5), 7);
    let scope = Scope::new().with_weights(dtype);
    let rows = scope.size("rows");
    let [attn, u] = ["attn", "u"].map(|name| scope.input(name, dtype, &[rows.clone(), width.into()]));
    let x = scope.input("x", dtype, &[rows, columns.into()]);
    let [weight, bias] = ["norm_weight", "norm_bias"].map(|name| scope.weight(name, &[heads.into()]));
    let all = if concat_ux { 3 * width } else { width };
    let output_weight = scope.weight("output_weight", &[all.into(), columns.into()]);
    let options =
        NormMulDropout { eps: 1e-5, group_norm: Some(heads), concat_ux, dropout_ratio: 0.0, recompute_y: false };
    let out = hstu_compute_output(&scope, [&attn, &u, &x], [&weight, &bias], &output_weight, &options);
    scope.finish(&[("out", out)]).unwrap()
}

fn norms_of_heads(kernel: Kernel, heads: impl Iterator<Item = usize>) {
    for heads in heads {
        for concat_ux in [false, true] {
            for dtype in [DType::F32, DType::F16] {
                let case = GraphCase::random(group_norm(heads, concat_ux, dtype), &[("rows", 5)], heads as u64);
                let what = || format!("{heads} heads, concat {concat_ux}, {dtype}, {kernel}");
                let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
                let relative = if dtype == DType::F16 { 3e-3 } else { Tolerance::SINGLE.relative };
                let found = case.differences(kernel, &expected, Tolerance { relative, ..Tolerance::SINGLE });
                assert_eq!(found.unwrap_or_else(|error| panic!("{}: {error}", what())), [""; 0], "{}", what());
            }
        }
    }
}

#[test]
fn norms_of_one_to_sixteen_heads_on_the_cpu() {
    norms_of_heads(Kernel::Cpu, 1..=16);
}

#[test]
fn norms_of_one_to_sixteen_heads_on_the_gpu() {
    let heads = if is_wanted_whole() { (1..=16).collect() } else { vec![1, 3, 16] };
    norms_of_heads(Kernel::Wgpu, heads.into_iter());
}

/// A function with an attribute that is a float.
#[derive(Clone, Copy, Debug)]
struct Scaled(f32);

impl ScalarFunction for Scaled {
    fn name(&self) -> &str {
        "scaled"
    }

    fn attributes(&self) -> Value {
        json!({ "scale": self.0 })
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        format!("fn scaled(x: f32) -> f32 {{ return x * {:?}f; }}", self.0)
    }

    fn evaluate(&self, arguments: &[f32]) -> f32 {
        arguments[0] * self.0
    }
}

#[test]
fn attributes_of_functions_survive_a_file() {
    for n in 0..2000u32 {
        let scale = n.wrapping_mul(2_654_435_769) as f32 / u32::MAX as f32;
        let function = Function::new(Arc::new(Scaled(scale)));
        let again: Function = serde_json::from_str(&serde_json::to_string(&function).unwrap()).unwrap();
        assert!(again == function, "{scale:?} becomes {}", again.attributes());
    }
}

/// Norms of one row, one after the other.
#[test]
fn reductions_beyond_the_rank_of_a_tensor_are_one_kernel() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 6.into()]);
    let y = (0..10).fold(x, |x, n| (&x.normalize(1e-3) + f64::from(n)).abs());
    let case = GraphCase::random(scope.finish(&[("y", y)]).unwrap(), &[("rows", 3)], 4);
    assert_eq!(case.steps(), ["layer_norm"]);
    runs(&case.graph, &case.inputs, &case.parameters, Kernel::Cpu).unwrap();
    case.check();
}

/// A product of tensors with as many dimensions as there may be.
#[test]
fn products_of_the_largest_rank_run() {
    let scope = Scope::new();
    let batch = [vec![2usize.into(); 2], vec![1usize.into(); 12]].concat();
    let shape = |rows: usize, columns: usize| [batch.clone(), vec![rows.into(), columns.into()]].concat();
    let a = scope.input("a", DType::F32, &shape(3, 5));
    let b = scope.input("b", DType::F32, &shape(5, 2));
    let case = GraphCase::random(scope.finish(&[("y", a.matmul(&b))]).unwrap(), &[], 6);
    runs(&case.graph, &case.inputs, &case.parameters, Kernel::Cpu).unwrap();
    case.check();
}

/// Invalid models are errors of the trace or of lowering, not plans that cannot be read.
#[test]
fn what_no_file_may_hold_is_not_lowered() {
    let scope = Scope::new();
    let large = scope.input("x", DType::F32, &[(1usize << 31).into()]);
    let error = scope.finish(&[("y", &large + 1.0)]).unwrap_err().to_string();
    assert!(error.contains(": the result has a size of 2147483648, beyond the limit of kernels"), "{error}");

    let scope = Scope::new();
    let weight = scope.parameter("w", DType::F32, &[scope.size("n")]);
    let x = scope.input("x", DType::F32, weight.shape());
    let error = plan(&scope.finish(&[("y", &x + &weight)]).unwrap()).unwrap_err();
    assert!(error.contains("is held from run to run, and its shape depends on inputs"), "{error}");
}
