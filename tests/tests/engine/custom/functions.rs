use super::{F32, case, check_jagged, stored};
use rewire_emit::{EmitError, emit};
use rewire_graph::op::{Call, Registry, RegistryError};
use rewire_graph::pointwise::ScalarFunction;
use rewire_graph::{DType, Graph, HostTensor, Mode, Scope, Tensor};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::passes::{CommonSubexpressions, Pipeline};
use rewire_graph_rewrite::rules::{TracedRule, rewrite};
use rewire_runtime::{Kernel, Model, ModelOptions, RuntimeError};
use rewire_tests::backend::{Tensors, options, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// `x / (scale + |x|)`, with a helper function and a constant.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Softsign {
    scale: f32,
}

impl ScalarFunction for Softsign {
    fn name(&self) -> &str {
        "softsign"
    }

    fn attributes(&self) -> Value {
        json!(self)
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        format!(
            "const scale = {:?}f;\nfn size(x: f32) -> f32 {{ return abs(x); }}\n\
             fn softsign(x: f32) -> f32 {{\n    return x / (scale + size(x));\n}}",
            self.scale
        )
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        x[0] / (self.scale + x[0].abs())
    }
}

/// The first number where the third is positive, else a mean of both. Its order of operands matters.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Blend;

impl ScalarFunction for Blend {
    fn name(&self) -> &str {
        "blend"
    }

    fn arguments(&self) -> usize {
        3
    }

    fn wgsl(&self) -> String {
        "fn blend(a: f32, b: f32, gate: f32) -> f32 { return select(0.25f * a + 0.75f * b, a, gate > 0.0f); }"
            .to_owned()
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        if x[2] > 0.0 { x[0] } else { 0.25 * x[0] + 0.75 * x[1] }
    }
}

/// A function with any text and no attributes.
#[derive(Clone, Debug)]
struct Text(&'static str);

impl ScalarFunction for Text {
    fn name(&self) -> &str {
        "own"
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        self.0.to_owned()
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        x[0]
    }
}

/// Another function under a known name.
#[derive(Debug, Serialize, Deserialize)]
struct Another;

impl ScalarFunction for Another {
    fn name(&self) -> &str {
        "blend"
    }

    fn arguments(&self) -> usize {
        3
    }

    fn wgsl(&self) -> String {
        "fn blend(a: f32, b: f32, gate: f32) -> f32 { return a; }".to_owned()
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        x[0]
    }
}

fn softsign(scope: &Scope, x: &Tensor, scale: f32) -> Tensor {
    scope.apply(Call::new(Softsign { scale }), &[x])
}

fn blend(scope: &Scope, operands: [&Tensor; 3]) -> Tensor {
    scope.apply(Call::new(Blend), &operands)
}

/// A linear layer between functions, on 25 columns.
fn layer(scope: &Scope) -> Vec<(&'static str, Tensor)> {
    let x = scope.input("x", F32, &[scope.size("rows"), 25.into()]);
    let gate = scope.input("gate", F32, &[x.dim(0), 1.into()]);
    let weight = scope.parameter("weight", F32, &[50.into(), 25.into()]);
    let bias = scope.parameter("bias", F32, &[50.into()]);
    let y = softsign(scope, &x, 2.0).linear(&weight, Some(&bias));
    vec![("y", blend(scope, [&softsign(scope, &y, 0.5), &bias, &gate]))]
}

#[test]
fn a_function_is_part_of_the_prologue_and_epilogue_of_a_product() {
    let case = case(layer);
    assert_eq!(case.steps(), ["addmm"]);
    case.check();
}

#[test]
fn a_function_is_part_of_maps_reductions_and_attention() {
    let map = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 6.into()]);
        let [above, below] = [softsign(scope, &x, 1.5), softsign(scope, &(&x * 3.0), 0.25)];
        vec![("y", x.gt(&scope.scalar(F32, 0.1)).select(&above, &below))]
    });
    assert_eq!(map.steps(), ["pointwise"]);
    map.check();
    let norm = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 50.into()]);
        let [weight, bias] = ["weight", "bias"].map(|name| scope.parameter(name, F32, &[50.into()]));
        vec![("y", softsign(scope, &softsign(scope, &x, 1.0).layer_norm(&weight, &bias, 1e-5), 3.0))]
    });
    assert_eq!(norm.steps(), ["layer_norm"]);
    norm.check();
    for lengths in [&[3, 0, 7, 1][..], &[0, 0], &[1], &[]] {
        check_jagged(8, lengths, |scope, x, rows| {
            let heads = x.reshape(&[rows.total.clone(), 2.into(), 4.into()]);
            let causal = rows.row_index(rows, 2).ge(&rows.key_index(rows, 2));
            let weights = softsign(scope, &heads.scores(&heads, rows, rows), 0.75);
            let weights = causal.select(&weights, &scope.scalar(F32, 0.0));
            weights.weighted_sum(&heads, rows, rows)
        });
    }
}

#[test]
fn a_function_of_parameters_is_computed_once() {
    let case = case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 7.into()]);
        let weight = scope.parameter("weight", F32, &[7.into(), 9.into()]);
        vec![("y", x.matmul(&softsign(scope, &weight, 2.0)))]
    });
    let plan = plan(&case.graph).unwrap();
    assert_eq!((plan.load.len(), plan.steps.len()), (1, 1));
    case.check();
}

#[test]
fn a_function_stays_where_a_model_learns() {
    for mode in [Mode::Eval, Mode::Train] {
        let scope = Scope::new().with_mode(mode);
        let x = scope.input("x", F32, &[scope.size("rows"), 25.into()]);
        let y = scope.dropout(&softsign(&scope, &x, 0.5), 0.3);
        let graph = scope.clone().finish(&[("y", softsign(&scope, &y, 2.0))]).unwrap();
        let mut inputs: Tensors = [("x".to_owned(), Noise::new(5, "x").floats(F32, &[203, 25], 1.5))].into();
        if mode == Mode::Train {
            inputs.insert("seed".to_owned(), HostTensor::i64(vec![], &[41]).unwrap());
        }
        assert_eq!(plan(&graph).unwrap().steps.len(), 1);
        let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(options) = options(kernel) else { continue };
            let mut session = Model::load(plan(&graph).unwrap(), (), options).unwrap().session();
            let found = differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance::SINGLE);
            assert!(found.is_empty(), "{mode:?} {kernel}: {found:?}");
        }
    }
}

fn calls(graph: &Graph, name: &str) -> usize {
    graph.counts().get(name).copied().unwrap_or(0)
}

#[test]
fn equal_functions_are_computed_once() {
    let merged = |functions: [Call; 2]| {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
        let [a, b] = functions.map(|function| scope.apply(function, &[&x]));
        let graph = scope.finish(&[("y", &a + &b)]).unwrap();
        let (graph, _) = Pipeline::new(vec![Box::new(CommonSubexpressions)]).run(graph).unwrap();
        calls(&graph, "softsign") + calls(&graph, "own")
    };
    let softsign = |scale| Call::new(Softsign { scale });
    assert_eq!(merged([softsign(1.0), softsign(1.0)]), 1);
    assert_eq!(merged([softsign(1.0), softsign(1.5)]), 2);
    let own = |text| Call::new(Text(text));
    let [first, second] = ["fn own(x: f32) -> f32 { return x; }", "fn own(x: f32) -> f32 { return -x; }"];
    assert_eq!((merged([own(first), own(first)]), merged([own(first), own(second)])), (1, 2));
}

#[test]
fn patterns_find_functions_by_name_and_attributes() {
    let graph = |scale: f32| {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
        scope.clone().finish(&[("y", softsign(&scope, &(&x + 1.0), scale).abs())]).unwrap()
    };
    let exact = TracedRule::new(
        "softsign of 1",
        |p| vec![softsign(p.scope(), &p.any("x", F32), 1.0)],
        |r| vec![r.tensor("x").tanh()],
    )
    .unwrap();
    let scale = |found: &rewire_graph_rewrite::rules::Match| found.attributes("f")?.get("scale")?.as_f64();
    let named = TracedRule::new(
        "magnitude",
        |p| vec![p.operator_named("softsign", "f", &[&p.any("x", F32)]).abs()],
        move |r| vec![softsign(r.scope(), &r.tensor("x").abs(), scale(r.matched()).unwrap_or(1.0) as f32)],
    )
    .unwrap()
    .when("the scale is below 1", move |matched| scale(matched).is_some_and(|scale| scale >= 1.0));
    assert_eq!(rewrite(&graph(1.0), &[&exact]).unwrap().1, ["softsign of 1"]);
    assert!(rewrite(&graph(2.0), &[&exact]).unwrap().1.is_empty());
    let (rewritten, fired) = rewrite(&graph(2.0), &[&named]).unwrap();
    assert_eq!(fired, ["magnitude"]);
    assert!(rewrite(&graph(0.5), &[&named]).unwrap().1.is_empty());
    let inputs: Tensors = [("x".to_owned(), Noise::new(5, "x").floats(F32, &[9, 3], 2.0))].into();
    let [before, after] = [graph(2.0), rewritten].map(|graph| oracle(&graph, &inputs, &Tensors::new()).unwrap());
    assert!(differences(&after, &before, Tolerance::SINGLE).is_empty());
}

#[test]
fn wrong_operands_are_errors_that_name_the_function() {
    let scope = Scope::new();
    let x = scope.input("x", DType::I64, &[scope.size("rows")]);
    let error = scope.clone().finish(&[("y", softsign(&scope, &x, 1.0))]).unwrap_err().to_string();
    assert!(error.starts_with("softsign"), "{error}");
    assert!(error.ends_with(": `operand 0` must be of floats, got i64[rows]"), "{error}");
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows")]);
    let error = scope.clone().finish(&[("y", scope.apply(Call::new(Blend), &[&x]))]).unwrap_err().to_string();
    assert!(error.starts_with("blend") && error.ends_with(": `operands` must be 3 values, got 1"), "{error}");
}

#[test]
fn wrong_wgsl_is_an_error_that_names_the_function_and_the_line() {
    let error = |text: &'static str| {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
        let graph = scope.clone().finish(&[("y", scope.apply(Call::new(Text(text)), &[&x]))]).unwrap();
        let plan = plan(&graph).unwrap();
        match emit(&plan.steps[0].computation, &Target::BASELINE, &Tuning::default()) {
            Err(EmitError::Custom { name, line, reason }) => (name, line, reason),
            other => panic!("{text}: {other:?}"),
        }
    };
    let (name, line, reason) = error("\nfn own(x: f32) -> f32 {\n    return x +;\n}");
    assert_eq!((name.as_str(), line), ("own", Some(3)), "{reason}");
    let (_, line, reason) = error("fn own(x: f32) -> f32 {\n    return params[0].x;\n}");
    assert!(line == Some(2) && reason.contains("params"), "{line:?} {reason}");
    let (_, line, reason) = error("fn own(x: f32) -> f32 {\n    return vec2<f32>(x, x);\n}");
    assert!(line.is_some(), "{reason}");
    for text in [
        "fn other(x: f32) -> f32 { return x; }",
        "fn own(x: i32) -> f32 { return f32(x); }",
        "fn own(x: f32, y: f32) -> f32 { return x + y; }",
        "fn own(x: f32) -> i32 { return i32(x); }",
    ] {
        assert_eq!(error(text).2, "expected a function own(f32) -> f32", "{text}");
    }
    for text in [
        "var<private> last: f32;\nfn own(x: f32) -> f32 { last = x; return x; }",
        "fn own(x: f32) -> f32 { return x; }\n@compute @workgroup_size(1) fn run() {}",
    ] {
        assert_eq!(error(text).2, "expected only functions, structures and constants", "{text}");
    }
}

#[test]
fn functions_run_without_checks_where_they_need_none() {
    let trusted = |text: &'static str| {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 5.into()]);
        let graph = scope.clone().finish(&[("y", scope.apply(Call::new(Text(text)), &[&x]))]).unwrap();
        emit(&plan(&graph).unwrap().steps[0].computation, &Target::BASELINE, &Tuning::default()).unwrap().unchecked
    };
    for text in [
        "fn own(x: f32) -> f32 { return x / 2.5f + x % 3.0f; }",
        "fn own(x: f32) -> f32 { if (x > 0.0f) { return 1.0f; } return f32(i32(x) << 2u); }",
        "fn own(x: f32) -> f32 { let both = vec2<f32>(x, 1.0f) / x; return both.x + both[1]; }",
    ] {
        assert!(trusted(text), "{text}");
    }
    for text in [
        "fn own(x: f32) -> f32 { var y = x; while (y > 1.0f) { y /= 2.0f; } return y; }",
        "fn own(x: f32) -> f32 { if (x > 0.0f) { loop { if (x > 1.0f) { break; } } } return x; }",
        "fn own(x: f32) -> f32 { return f32(7 / i32(x)); }",
        "fn own(x: f32) -> f32 { return f32(7u % u32(x)); }",
        "fn own(x: f32) -> f32 { var y = vec3<f32>(x, 1.0f, 2.0f); return y[i32(x)]; }",
        "fn part(x: f32) -> f32 { return f32(7 / i32(x)); }\nfn own(x: f32) -> f32 { return part(x); }",
    ] {
        assert!(!trusted(text), "{text}");
    }
}

#[test]
fn a_stored_plan_needs_its_functions_registered() {
    let case = case(layer);
    let expected = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    let plan = stored(&plan(&case.graph).unwrap());
    let load = |registry: Registry, kernel: Kernel| {
        let options = ModelOptions { registry, ..options(kernel)? };
        Some(Model::load(plan.clone(), &case.parameters, options))
    };
    let whole = Registry::new().with_function::<Softsign>("softsign").with_function::<Blend>("blend");
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(model) = load(whole.clone(), kernel) else { continue };
        let actual = run(&mut model.unwrap().session(), &case.inputs).unwrap();
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernel}: {found:?}");
        match load(Registry::new().with_function::<Blend>("blend"), kernel).unwrap().unwrap_err() {
            RuntimeError::Registry(error @ RegistryError::Missing { .. }) => {
                let text = error.to_string();
                assert!(text.starts_with("the function `softsign` with attributes {\"scale\":"), "{text}");
                assert!(
                    text.contains("(the registry has blend)") && text.contains("`Registry::with_function`"),
                    "{text}"
                );
            }
            other => panic!("{other}"),
        }
    }
    let wrong = whole.clone().with_function::<Softsign>("blend");
    let error = load(wrong, Kernel::Cpu).unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::Registry(RegistryError::Attributes { .. })), "{error}");
    let error = load(whole.with_function::<Another>("blend"), Kernel::Cpu).unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::Registry(RegistryError::Different { .. })), "{error}");
}
