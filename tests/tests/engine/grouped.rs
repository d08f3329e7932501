//! Weights of few bits, which have a scale for each 32 columns of a row.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Plan, Precision, Source};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load_plan, on, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;

const ROW_TYPES: [DType; 3] = [DType::Rows8, DType::Rows4, DType::Rows2];

/// The CPU, and the GPU with default tiles, without `f16`, and with tiles of few rows.
fn kernels() -> Vec<(String, ModelOptions)> {
    let cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let tiles = ["default", "narrow_product:rows=4,columns=8,depth=64", "narrow_product:rows=16,columns=8,depth=128"];
    let of_gpu = |gpu: rewire_runtime::Gpu| {
        let plain = gpu.restricted(&Target { f16: false, ..gpu.target().clone() });
        let tiles =
            tiles.map(|tile| (tile.to_owned(), ModelOptions { tuning: tile.parse().unwrap(), ..on(gpu.clone()) }));
        tiles.into_iter().chain([("without f16".to_owned(), on(plain))])
    };
    [("cpu".to_owned(), cpu)].into_iter().chain(gpu().into_iter().flat_map(of_gpu)).collect()
}

fn stored(graph: &Graph, weights: DType) -> Plan {
    let mut plan = plan(graph).unwrap();
    plan.store(Precision { weights: Some(weights), ..Precision::default() }, |_| None);
    plan.check_limits().unwrap();
    plan
}

/// The values that a type stores for a matrix whose rows are summed over their columns.
fn rounded(tensor: &HostTensor, dtype: DType) -> HostTensor {
    let &[rows, width] = tensor.shape() else { return tensor.clone() };
    let in_groups = dtype != DType::Rows8 && width > 32 && width % 32 == 0;
    let laid = if in_groups { tensor.clone().in_groups(&[rows, width / 32, 32]).unwrap() } else { tensor.clone() };
    HostTensor::f32([rows, width], &laid.stored_as(dtype).unwrap().to_f32()).unwrap()
}

fn floats(name: &str, shape: &[usize]) -> (String, HostTensor) {
    (name.to_owned(), Noise::new(9, name).floats(DType::F32, shape, 1.0))
}

/// Layers of the same operand, which are joined when they are loaded, and a table that is also a weight.
fn layers(depth: usize, columns: usize) -> Graph {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), depth.into()]);
    let ids = scope.input("ids", DType::U32, &[scope.size("ids")]);
    let weight = |name: &str| scope.parameter(name, DType::F32, [columns, depth]);
    let [a, b, tied] = ["a", "b", "tied"].map(weight);
    let outputs = [
        ("silu", x.linear(&a, None).silu() * x.linear(&b, None)),
        ("tied", x.relu().linear(&tied, None)),
        ("rows", tied.gather(&ids)),
    ];
    scope.finish(&outputs).unwrap()
}

#[test]
fn groups_of_a_row_have_their_own_scales() {
    for dtype in ROW_TYPES {
        for (depth, columns) in [(96, 37), (64, 8), (40, 37), (32, 5)] {
            let (graph, what) = (layers(depth, columns), format!("{dtype} of {columns}x{depth}"));
            let plan = stored(&graph, dtype);
            let in_groups = dtype != DType::Rows8 && depth > 32 && depth % 32 == 0;
            let names: Vec<&str> = plan.parameters_in_groups().collect();
            assert_eq!(names.len(), if in_groups { 3 } else { 0 }, "{what}: {names:?}");
            let given: Tensors = ["a", "b", "tied"].map(|name| floats(name, &[columns, depth])).into();
            for (kernel, options) in kernels() {
                let mut session = load_plan(plan.clone(), &given, options).unwrap();
                for rows in [1, 3, 17, 64] {
                    let mut inputs: Tensors = [floats("x", &[rows, depth])].into();
                    inputs.insert("ids".to_owned(), HostTensor::u32([3], &[4, 0, 2]).unwrap());
                    let rounded = given.iter().map(|(name, tensor)| (name.clone(), rounded(tensor, dtype))).collect();
                    let expected = oracle(&graph, &inputs, &rounded).unwrap();
                    let found = run(&mut session, &inputs).unwrap();
                    let found = differences(&found, &expected, Tolerance { relative: 2e-5, floor: 1e-3 });
                    assert!(found.is_empty(), "{what}, {rows} rows on {kernel}: {found:?}");
                }
            }
        }
    }
}

/// Weights that are already in the groups of a package, new weights, and weights of other shapes.
#[test]
fn parameters_are_bound_with_and_without_groups() {
    let graph = layers(96, 37);
    let plan = stored(&graph, DType::Rows4);
    let given: Tensors = ["a", "b", "tied"].map(|name| floats(name, &[37, 96])).into();
    let in_groups =
        |tensor: &HostTensor| tensor.clone().in_groups(&[37, 3, 32]).unwrap().stored_as(DType::Rows4).unwrap();
    let packed: Tensors = given.iter().map(|(name, tensor)| (name.clone(), in_groups(tensor))).collect();
    let on_cpu = || ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut inputs: Tensors = [floats("x", &[2, 96])].into();
    inputs.insert("ids".to_owned(), HostTensor::u32([1], &[36]).unwrap());
    let mut session = load_plan(plan.clone(), &given, on_cpu()).unwrap();
    let expected = run(&mut session, &inputs).unwrap();
    assert_eq!(run(&mut load_plan(plan.clone(), &packed, on_cpu()).unwrap(), &inputs).unwrap(), expected);

    let other: Tensors = ["a", "b", "tied"].map(|name| (name.to_owned(), floats("other", &[37, 96]).1)).into();
    session.model().update(other.iter().map(|(name, tensor)| (name, tensor.clone()))).unwrap();
    let changed = run(&mut session, &inputs).unwrap();
    assert_eq!(run(&mut load_plan(plan.clone(), &other, on_cpu()).unwrap(), &inputs).unwrap(), changed);
    assert_ne!(changed, expected);

    let mut wrong = given;
    wrong.insert("a".to_owned(), floats("a", &[37, 64]).1);
    let error = load_plan(plan, &wrong, on_cpu()).unwrap_err();
    assert!(error.contains("[37, 96]") && error.contains("[37, 64]"), "{error}");
}

/// The device computes the first steps of such a plan while the others are recorded.
#[test]
fn plans_of_many_steps_are_submitted_in_parts() {
    let scope = Scope::new();
    let weight = scope.parameter("weight", DType::F32, [64, 64]);
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    let y = (0..70).fold(x, |x, _| x.linear(&weight, None).softmax(1));
    let graph = scope.finish(&[("y", y)]).unwrap();
    let plan = stored(&graph, DType::Rows4);
    assert!(plan.steps.len() > 64, "{} steps", plan.steps.len());
    let (inputs, given): (Tensors, Tensors) = ([floats("x", &[5, 64])].into(), [floats("weight", &[64, 64])].into());
    let rounded = given.iter().map(|(name, tensor)| (name.clone(), rounded(tensor, DType::Rows4))).collect();
    let expected = oracle(&graph, &inputs, &rounded).unwrap();
    for (kernel, options) in kernels().into_iter().take(2) {
        let found = run(&mut load_plan(plan.clone(), &given, options).unwrap(), &inputs).unwrap();
        let found = differences(&found, &expected, Tolerance { relative: 1e-4, floor: 1e-3 });
        assert!(found.is_empty(), "{kernel}: {found:?}");
    }
}

/// Layers that are joined when a model is loaded are computed as floats in whole rows, whatever type they are stored as.
#[test]
fn joined_layers_are_computed_before_they_are_divided() {
    let joined = |plan: &Plan| {
        let computed = plan.when_loading();
        let loaded = plan.buffers.iter().zip(&computed.buffers).filter(|(buffer, _)| buffer.source == Source::Load);
        let shapes =
            loaded.map(|(stored, computed)| (stored.dtype, stored.shape.len(), computed.dtype, computed.shape.len()));
        shapes.collect::<Vec<_>>()
    };
    let graph = layers(64, 8);
    assert_eq!(joined(&stored(&graph, DType::Rows4)), [(DType::Rows4, 3, DType::F32, 2)]);
    assert_eq!(joined(&stored(&graph, DType::Rows8)), [(DType::Rows8, 2, DType::F32, 2)]);
    assert_eq!(joined(&stored(&graph, DType::F16)), [(DType::F16, 2, DType::F16, 2)]);
}
