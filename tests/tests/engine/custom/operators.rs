use super::{F32, SIZES, case, stored};
use rewire_emit::{EmitError, emit};
use rewire_graph::op::custom::{Custom, Shader, View, ViewMut};
use rewire_graph::op::{Op, Registry, RegistryError};
use rewire_graph::{DType, Graph, HostTensor, Mode, Scope, Tensor, Type, TypeError};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::passes::{Pipeline, Simplify};
use rewire_graph_rewrite::plan::{Computation, Plan};
use rewire_graph_rewrite::rules::{Decompose, TracedRule, rewrite};
use rewire_runtime::{Kernel, Model, ModelOptions, RuntimeError};
use rewire_tests::backend::{Tensors, load_plan, options, oracle, plan, run};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Sums of the rows of a sample so far, of `x` `[rows, width]` with host offsets.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
struct JaggedCumsum {
    /// Leaves out the row itself.
    exclusive: bool,
}

impl Op for JaggedCumsum {
    fn name(&self) -> &str {
        "jagged_cumsum"
    }

    fn attributes(&self) -> Value {
        json!(self)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        match inputs {
            [x, offsets] if x.dtype.is_float() && x.rank() == 2 && offsets.rank() == 1 => {
                Ok(vec![Type::device(DType::F32, x.shape.clone())])
            }
            _ => Err(TypeError::new("operands", "floats [rows, width] and offsets", inputs.len())),
        }
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for JaggedCumsum {
    fn shader(&self, operands: &[&Type], _: &Type) -> Shader {
        let (x, offsets) = (operands[0], operands[1]);
        let (before, after) = if self.exclusive { ("sum", "sum + value") } else { ("sum + value", "sum + value") };
        Shader {
            operands: vec!["x".to_owned(), "offsets".to_owned()],
            result: "y".to_owned(),
            wgsl: format!(
                "fn run(workgroup: i32, thread: i32) {{
    let at = workgroup * 64 + thread;
    let sample = at / extent_x_1();
    let column = at % extent_x_1();
    if (sample >= extent_offsets_0() - 1) {{
        return;
    }}
    var sum = 0.0f;
    for (var row = load_offsets(sample); row < load_offsets(sample + 1); row++) {{
        let value = load_x(row, column);
        store_y(row, column, {before});
        sum = {after};
    }}
}}"
            ),
            threads: 64,
            extents: vec![offsets.shape[0].clone() - 1.into(), x.shape[1].clone()],
            tile: 64,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let (x, offsets) = (operands[0].floats(), operands[1].longs());
        let width = operands[0].shape[1];
        let y = result.floats();
        for sample in offsets.windows(2) {
            let [start, end] = [sample[0], sample[1]].map(|row| row as usize);
            for column in 0..width {
                let mut sum = 0.0;
                for row in start..end {
                    let at = row * width + column;
                    y[at] = if self.exclusive { sum } else { sum + x[at] };
                    sum += x[at];
                }
            }
        }
        Ok(())
    }
}

/// Halves of rows of an even width exchanged, four columns at a time where they align; of floats and integers.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
struct SwapHalves;

impl Op for SwapHalves {
    fn name(&self) -> &str {
        "swap_halves"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        match inputs {
            [x] if x.width().is_some_and(|width| width % 2 == 0) && x.rank() == 2 => Ok(vec![(*x).clone()]),
            _ => Err(TypeError::new("x", "of two dimensions and an even width", inputs.len())),
        }
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }

    fn decompose(&self, scope: &Scope, operands: &[Tensor]) -> Option<Tensor> {
        let [x] = operands else { return None };
        let half = x.width() / 2;
        let [first, second] = [0, half].map(|start| x.slice(1, start, half));
        Some(scope.concat(&[&second, &first], 1))
    }
}

impl Custom for SwapHalves {
    fn shader(&self, operands: &[&Type], _: &Type) -> Shader {
        let width = operands[0].width().unwrap_or(2);
        let four = width.is_multiple_of(8) && operands[0].dtype == DType::F32;
        let (lanes, suffix) = if four { (4, "4") } else { (1, "") };
        Shader {
            operands: vec!["x".to_owned()],
            result: "y".to_owned(),
            wgsl: format!(
                "const width = {width};

fn run(workgroup: i32, thread: i32) {{
    let at = (workgroup * 32 + thread) * {lanes};
    let row = at / width;
    let column = at % width;
    if (row < extent_y_0()) {{
        store{suffix}_y(row, (column + width / 2) % width, load{suffix}_x(row, column));
    }}
}}"
            ),
            threads: 32,
            extents: vec![operands[0].shape[0].clone(), (width / lanes).into()],
            tile: 32,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        fn swap<T: Copy>(x: &[T], y: &mut [T], width: usize) {
            for (from, to) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                to[..width / 2].copy_from_slice(&from[width / 2..]);
                to[width / 2..].copy_from_slice(&from[..width / 2]);
            }
        }
        let width = operands[0].shape[1];
        swap(operands[0].floats(), result.floats(), width);
        swap(operands[0].integers(), result.integers(), width);
        swap(operands[0].longs(), result.longs(), width);
        Ok(())
    }
}

/// An operator of `[rows, 3]` with any WGSL, whose CPU form fails.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Text(&'static str, &'static str);

impl Op for Text {
    fn name(&self) -> &str {
        "own"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(vec![inputs[0].clone()])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for Text {
    fn shader(&self, operands: &[&Type], _: &Type) -> Shader {
        Shader {
            operands: vec![self.1.to_owned()],
            result: "y".to_owned(),
            wgsl: self.0.to_owned(),
            threads: 1,
            extents: vec![operands[0].shape[0].clone()],
            tile: 1,
        }
    }

    fn compute(&self, _: &[View<'_>], _: &mut ViewMut<'_>) -> Result<(), String> {
        Err("the moon is full".to_owned())
    }
}

/// Cumulative sums between a product with an activation and a norm, in a model that learns or is used.
fn model(mode: Mode, exclusive: bool) -> Graph {
    let scope = Scope::new().with_mode(mode);
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", F32, &[rows.total.clone(), 7.into()]);
    let weight = scope.parameter("weight", F32, &[7.into(), 25.into()]);
    let h = scope.dropout(&x.matmul(&weight).silu(), 0.2);
    let sums = scope.apply(JaggedCumsum { exclusive }, &[&h, &rows.offsets]);
    let y = &(&sums * 0.5) + &h;
    scope.clone().finish(&[("y", y), ("sums", sums)]).unwrap()
}

fn inputs(lengths: &[i64]) -> Tensors {
    let total = lengths.iter().sum::<i64>() as usize;
    [
        ("lengths".to_owned(), HostTensor::lengths(lengths)),
        ("seed".to_owned(), HostTensor::i64(vec![], &[23]).unwrap()),
        ("x".to_owned(), Noise::new(3, "x").floats(F32, &[total, 7], 1.3)),
    ]
    .into()
}

fn parameters() -> Tensors {
    [("weight".to_owned(), Noise::new(4, "weight").floats(F32, &[7, 25], 0.7))].into()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn an_operator_is_a_step_of_its_own_between_fused_ones() {
    for (mode, exclusive) in [(Mode::Eval, false), (Mode::Train, true)] {
        let graph = model(mode, exclusive);
        assert_eq!(names(&plan(&graph).unwrap())[1..], ["jagged_cumsum", "pointwise"]);
        for lengths in [&[3, 0, 7, 1][..], &[1], &[0, 0], &[], &[70, 2]] {
            let inputs = inputs(lengths);
            let expected = oracle(&graph, &inputs, &parameters()).unwrap();
            for kernel in [Kernel::Cpu, Kernel::Wgpu] {
                for dtype in [F32, DType::F16] {
                    let Some(options) = options(kernel) else { continue };
                    let mut plan = plan(&graph).unwrap();
                    plan.store_floats_as(dtype);
                    let actual = run(&mut load_plan(plan, &parameters(), options).unwrap(), &inputs).unwrap();
                    let half = Tolerance { relative: 5e-3, ..Tolerance::SINGLE };
                    let tolerance = if dtype == F32 { Tolerance::SINGLE } else { half };
                    let found = differences(&actual, &expected, tolerance);
                    assert!(found.is_empty(), "{kernel} {dtype} {lengths:?}: {}", found.join("\n"));
                }
            }
        }
    }
}

/// Operands of an operator, by kind: an intermediate result, a scalar, a parameter, a cast.
fn swapped(kind: usize) -> GraphCase {
    case(|scope| {
        let x = scope.input("x", F32, &[scope.size("rows"), 16.into()]);
        let swap = |x: &Tensor| scope.apply(SwapHalves, &[x]);
        let y = match kind {
            0 => swap(&swap(&(&x * 2.0))),
            1 => &swap(&x.slice(1, 2, 6)) + &(&x.slice(1, 2, 6) * 2.0),
            2 => &x * &swap(&scope.parameter("weight", F32, &[1.into(), 16.into()])),
            3 => swap(&scope.input("ids", DType::I64, &[x.dim(0), 10.into()])),
            4 => swap(&x.cast(DType::I32)),
            _ => swap(&x.cast(DType::F16)).cast(F32),
        };
        vec![("y", y)]
    })
}

#[test]
fn an_operator_reads_anything() {
    let steps: [&[&str]; 6] = [
        &["pointwise", "swap_halves", "swap_halves"],
        &["pointwise", "swap_halves", "pointwise"],
        &["pointwise"],
        &["swap_halves"],
        &["pointwise", "swap_halves"],
        &["pointwise", "swap_halves", "pointwise"],
    ];
    for (kind, steps) in steps.into_iter().enumerate() {
        let case = swapped(kind);
        assert_eq!(case.steps(), steps, "{kind}");
        if kind != 5 {
            case.check();
        }
    }
    assert_eq!(plan(&swapped(2).graph).unwrap().load.len(), 1, "{SIZES:?}");
}

#[test]
fn rules_and_merging_know_operators() {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", F32, &[rows.total.clone(), 4.into()]);
    let sums = |exclusive| scope.apply(JaggedCumsum { exclusive }, &[&x, &rows.offsets]);
    let y = &(&sums(true) + &x) * &sums(false);
    let graph = scope.clone().finish(&[("y", y), ("again", sums(false))]).unwrap();
    let (optimized, _) = Pipeline::default().run(graph.clone()).unwrap();
    assert_eq!(optimized.counts()["jagged_cumsum"], 2, "{}", optimized.text());

    let rule = TracedRule::new(
        "an exclusive sum and its element",
        |p| {
            let x = p.any("x", F32);
            let offsets = p.host("offsets");
            vec![&p.operator_named("jagged_cumsum", "sum", &[&x, &offsets]) + &x]
        },
        |r| vec![r.scope().apply(JaggedCumsum { exclusive: false }, &[&r.tensor("x"), &r.tensor("offsets")])],
    );
    let exclusive = |found: &rewire_graph_rewrite::rules::Match| {
        found.attributes("sum").and_then(|attributes| attributes.get("exclusive")?.as_bool()) == Some(true)
    };
    let rule = rule.unwrap().when("the sum has the element already", exclusive);
    let (rewritten, fired) = rewrite(&graph, &[&rule]).unwrap();
    assert_eq!(fired, ["an exclusive sum and its element"]);
    let inputs: Tensors = [
        ("lengths".to_owned(), HostTensor::lengths(&[2, 0, 3])),
        ("x".to_owned(), Noise::new(3, "x").floats(F32, &[5, 4], 1.3)),
    ]
    .into();
    let [before, after] = [&graph, &rewritten].map(|graph| oracle(graph, &inputs, &Tensors::new()).unwrap());
    assert!(differences(&after, &before, Tolerance::SINGLE).is_empty());

    let swaps = TracedRule::new(
        "swapped twice",
        |p| {
            vec![p.operator_named(
                "swap_halves",
                "second",
                &[&p.operator_named("swap_halves", "first", &[&p.any("x", F32)])],
            )]
        },
        |r| vec![r.tensor("x")],
    )
    .unwrap();
    let (rewritten, fired) = rewrite(&swapped(0).graph, &[&swaps]).unwrap();
    assert_eq!((fired.len(), rewritten.counts().get("swap_halves")), (1, None));
}

#[test]
fn an_operator_becomes_what_it_stands_for() {
    let case = swapped(1);
    let pipeline = Pipeline::new(vec![Box::new(Simplify::new(vec![Box::new(Decompose)]))]);
    let (graph, _) = pipeline.run(case.graph.clone()).unwrap();
    assert_eq!((graph.counts().get("swap_halves"), graph.counts().get("concat")), (None, Some(&1)));
    let decomposed = GraphCase { graph, ..case.clone() };
    assert_eq!(decomposed.steps(), ["pointwise"]);
    let [before, after] = [&case, &decomposed].map(|case| oracle(&case.graph, &case.inputs, &case.parameters).unwrap());
    assert!(differences(&after, &before, Tolerance::EXACT).is_empty());
    let sums = model(Mode::Eval, true);
    assert!(rewrite(&sums, &[&Decompose]).unwrap().1.is_empty(), "no rule applies");
}

#[test]
fn wrong_wgsl_is_an_error_that_names_the_operator_and_the_line() {
    let error = |text: &'static str, name: &'static str| {
        let scope = Scope::new();
        let x = scope.input("x", DType::F16, &[scope.size("rows"), 3.into()]);
        let graph = scope.clone().finish(&[("y", scope.apply(Text(text, name), &[&x]))]).unwrap();
        let halves = Target { f16: true, ..Target::BASELINE };
        match emit(&plan(&graph).unwrap().steps[0].computation, &halves, &Tuning::default()) {
            Err(EmitError::Custom { name, line, reason }) => {
                assert_eq!(name, "own");
                (line, reason)
            }
            other => panic!("{text}: {other:?}"),
        }
    };
    let (line, reason) = error("fn run(workgroup: i32, thread: i32) {\n    store_y(0, 0, load_x(0, 0) +);\n}", "x");
    assert_eq!(line, Some(2), "{reason}");
    let (line, reason) = error("fn run(workgroup: i32, thread: i32) {\n\n    store_y(0, 0, load_x(0));\n}", "x");
    assert_eq!(line, Some(3), "{reason}");
    let (line, reason) = error("fn go() {}", "x");
    assert!(line.is_none() && reason.contains("run"), "{line:?} {reason}");
    assert!(error("fn run(w: i32, t: i32) {}", "y").1.contains("got `y`"));
    assert!(error("fn run(w: i32, t: i32) {}", "2x").1.contains("got `2x`"));
    let bound = "@group(0) @binding(1) var<storage> own: array<f32>;\nfn run(w: i32, t: i32) {}";
    assert!(error(bound, "x").1.contains("no bindings"));
}

#[test]
fn operators_declare_what_they_like() {
    let own = "alias T = f32;
const params: T = 2.0f;
struct Sums { main: T, @align(16) run: T }
var<workgroup> sizes: array<T, 3>;
// fn main() {}
fn sigmoid(x: T) -> T { return params * x; }
fn silu(main: T) -> T { var s = Sums(main, sigmoid(main)); return s.main + s.run; }
fn load_x(i: i32) -> T { return T(i); }
fn run(workgroup: i32, thread: i32) {
    sizes[thread] = silu(load_x(thread));
    store_y(workgroup, thread, sizes[thread]);
}";
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
    let graph = scope.clone().finish(&[("y", scope.apply(Text(own, "x"), &[&x]))]).unwrap();
    let emitted = emit(&plan(&graph).unwrap().steps[0].computation, &Target::BASELINE, &Tuning::default()).unwrap();
    assert!(emitted.wgsl.contains("fn custom0_sigmoid(") && !emitted.wgsl.contains("fn sigmoid("), "{}", emitted.wgsl);
}

#[test]
fn a_failing_cpu_form_is_an_error_that_names_step_and_operator() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 3.into()]);
    let graph = scope.clone().finish(&[("y", scope.apply(Text("", "x"), &[&x]))]).unwrap();
    let options = options(Kernel::Cpu).unwrap();
    let mut session = load_plan(plan(&graph).unwrap(), &Tensors::new(), options).unwrap();
    let inputs: Tensors = [("x".to_owned(), Noise::new(1, "x").floats(F32, &[2, 3], 1.0))].into();
    let error = run(&mut session, &inputs).unwrap_err();
    // The first step of the session clears the operator's output.
    assert_eq!(error, "run: step 1 (own, ``) failed on the CPU: the operator `own` failed: the moon is full");
}

#[test]
fn a_stored_plan_needs_its_operators_registered() {
    let graph = model(Mode::Eval, true);
    let plan = stored(&plan(&graph).unwrap());
    let inputs = inputs(&[4, 0, 9]);
    let expected = oracle(&graph, &inputs, &parameters()).unwrap();
    let load = |plan: &Plan, registry: Registry, kernel: Kernel| {
        let options = ModelOptions { registry, ..options(kernel)? };
        Some(Model::load(plan.clone(), &parameters(), options))
    };
    let registry = || Registry::new().with_operator::<JaggedCumsum>("jagged_cumsum");
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(model) = load(&plan, registry(), kernel) else { continue };
        let actual = run(&mut model.unwrap().session(), &inputs).unwrap();
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernel}: {found:?}");
        match load(&plan, Registry::new(), kernel).unwrap().unwrap_err() {
            RuntimeError::Registry(error @ RegistryError::Missing { .. }) => {
                let text = error.to_string();
                let start = "the operator `jagged_cumsum` with attributes {\"exclusive\":true} is not registered (the registry has none)";
                assert!(text.starts_with(start) && text.contains("`Registry::with_operator`"), "{text}");
            }
            other => panic!("{other}"),
        }
    }
    let mut changed = plan.clone();
    for step in &mut changed.steps {
        if let Computation::Custom(custom) = &mut step.computation {
            custom.shader.wgsl = custom.shader.wgsl.replace("sum + value", "sum - value");
        }
    }
    let error = load(&changed, registry(), Kernel::Cpu).unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::Registry(RegistryError::Different { .. })), "{error}");
}
