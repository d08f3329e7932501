//! Plans that store floats in 16 bits: parameters and values between kernels, not inputs and outputs.

use rewire_graph::{DType, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Computation, Precision, Table};
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load_plan, on, oracle, plan, run};
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::golden::{Golden, cases, hold, sample};
use rewire_tests::noise::Noise;
use std::path::Path;

const TOLERANCE: f64 = 5e-3;

/// The types, and how far results may be off.
const STORED: [(DType, f64); 2] = [(DType::F16, TOLERANCE), (DType::BF16, 8.0 * TOLERANCE)];

fn check(golden: &Golden, options: &ModelOptions) -> Result<(), String> {
    let replay = golden.trace()?;
    let mut found = vec![];
    for (dtype, tolerance) in STORED {
        let mut plan = plan(&replay.graph)?;
        plan.store_floats_as(dtype);
        let mut session = load_plan(plan, &golden.parameters(&replay.graph), options.clone())?;
        let differences = golden.differences(&run(&mut session, &golden.inputs(&replay.graph))?, tolerance);
        found.extend(differences.into_iter().map(|difference| format!("{dtype}: {difference}")));
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n  ")) }
}

#[test]
fn the_cpu_stores_16_bits() {
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    hold(&cases(), |golden| check(golden, &options));
}

#[test]
fn the_gpu_stores_16_bits() {
    hold(&sample(), |golden| match gpu().filter(|gpu| gpu.target().f16) {
        Some(gpu) => check(golden, &on(gpu)),
        None => Ok(()),
    });
}

#[test]
fn the_gpu_packs_halves_without_the_feature() {
    hold(&sample(), |golden| match gpu() {
        Some(gpu) => check(golden, &on(gpu.restricted(&Target { f16: false, ..gpu.target().clone() }))),
        None => Ok(()),
    });
}

/// The bytes of device memory that three chained matmuls use in a storage type.
#[test]
fn halves_take_half_the_memory() {
    let Some(gpu) = gpu() else { return };
    let (rows, width) = (500, 128);
    let scope = Scope::new();
    let mut x = scope.input("ids", DType::U32, &[scope.size("rows")]);
    x = scope.parameter("table", DType::F32, &[2000.into(), width.into()]).gather(&x);
    for name in ["a", "b", "c"] {
        x = x.matmul(&scope.parameter(name, DType::F32, &[width.into(), width.into()])).softmax(1);
    }
    x = x.matmul(&scope.parameter("d", DType::F32, &[width.into(), 4.into()]));
    let graph = scope.finish(&[("last", x)]).unwrap();
    let mut noise = Noise::new(3, "memory");
    let mut parameters = Tensors::from([("table".to_owned(), noise.floats(DType::F32, &[2000, width], 1.0))]);
    parameters.insert("d".to_owned(), noise.floats(DType::F32, &[width, 4], 5.0));
    parameters.extend(["a", "b", "c"].map(|name| (name.to_owned(), noise.floats(DType::F32, &[width, width], 0.2))));
    let ids: Vec<u32> = (0..rows).map(|n| (n * 37) % 2000).collect();
    let inputs = Tensors::from([("ids".to_owned(), HostTensor::u32(vec![ids.len()], &ids).unwrap())]);
    let expected = oracle(&graph, &inputs, &parameters).unwrap();
    let bytes = |storage: DType| {
        let mut plan = plan(&graph).unwrap();
        plan.store_floats_as(storage);
        let mut session = load_plan(plan, &parameters, on(gpu.clone())).unwrap();
        let found =
            differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance { relative: TOLERANCE, floor: 1.0 });
        assert!(found.is_empty(), "{storage}: {found:?}");
        session.report().device_bytes as f64
    };
    let ratio = bytes(DType::F16) / bytes(DType::F32);
    assert!((0.48..0.53).contains(&ratio), "f16 takes {ratio} of the memory");
}

/// Widths of tables: whole groups, odd ones, one element.
const WIDTHS: [usize; 8] = [1, 4, 8, 25, 44, 50, 64, 130];

/// Types that tables are stored in.
const TABLES: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::Rows8, DType::Rows4, DType::Rows2];

/// Every kernel: the CPU, and the GPU with and without `f16`.
fn kernels() -> Vec<ModelOptions> {
    let cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let plain = |gpu: rewire_runtime::Gpu| on(gpu.restricted(&Target { f16: false, ..gpu.target().clone() }));
    [Some(cpu), gpu().map(on), gpu().map(plain)].into_iter().flatten().collect()
}

/// Holds a graph against the interpreter on every kernel.
fn computes(graph: &rewire_graph::Graph, inputs: &Tensors, parameters: &Tensors, relative: f64, what: &str) {
    let expected = oracle(graph, inputs, parameters).unwrap();
    for options in kernels() {
        let kernel = options.kernel;
        let mut session = load_plan(plan(graph).unwrap(), parameters, options).unwrap();
        let found = differences(&run(&mut session, inputs).unwrap(), &expected, Tolerance { relative, floor: 1e-3 });
        assert!(found.is_empty(), "{what} on {kernel}: {found:?}");
    }
}

#[test]
fn tables_are_looked_up_in_any_type() {
    for dtype in TABLES {
        for width in WIDTHS.into_iter().filter(|&width| dtype.format().has_rows_of(width)) {
            let scope = Scope::new();
            let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
            let table = scope.parameter("table", dtype, &[37.into(), width.into()]);
            let rows = table.gather(&ids);
            let outputs = [
                ("rows", rows.cast(DType::F32)),
                ("scaled", &(&rows * 0.75) + &rows.gather(&scope.constant(HostTensor::u32(vec![1], &[0]).unwrap()))),
                ("turned", rows.cast(DType::F32).permute(&[1, 0])),
            ];
            let graph = scope.finish(&outputs).unwrap();
            let values = Noise::new(5, "table").floats(DType::F32, &[37, width], 3.0).stored_as(dtype).unwrap();
            let parameters = Tensors::from([("table".to_owned(), values)]);
            for count in [1, 3, 300] {
                let ids: Vec<u32> = (0..count).map(|n| n * 29 % 37).collect();
                let ids = HostTensor::u32(vec![ids.len()], &ids).unwrap();
                let inputs = Tensors::from([("ids".to_owned(), ids)]);
                computes(&graph, &inputs, &parameters, 1e-6, &format!("{dtype} {count}x{width}"));
            }
        }
    }
}

/// Small tables of one type share a buffer.
#[test]
fn small_tables_are_looked_up_side_by_side() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let tables = [("a", 9, 24), ("b", 5, 8), ("c", 7, 16), ("d", 3, 40)];
    let rows = tables.map(|(name, rows, width)| scope.parameter(name, DType::F32, [rows, width]).gather(&ids));
    let [a, b, c, d] = &rows;
    let joined = scope.concat(&[a, b, c, d], 1);
    let graph = scope.finish(&[("joined", &joined * 2.0), ("turned", d.permute(&[1, 0]))]).unwrap();
    let inputs: Tensors = [("ids".to_owned(), HostTensor::u32([4], &[2, 0, 1, 2]).unwrap())].into();
    let given: Tensors = tables
        .iter()
        .map(|&(name, rows, width)| (name.to_owned(), Noise::new(6, name).floats(DType::F32, &[rows, width], 2.0)))
        .collect();
    for dtype in TABLES {
        let rounded = |tensor: &HostTensor| tensor.clone().stored_as(dtype).unwrap().stored_as(DType::F32).unwrap();
        let rounded = given.iter().map(|(name, tensor)| (name.clone(), rounded(tensor))).collect();
        let expected = oracle(&graph, &inputs, &rounded).unwrap();
        for options in kernels() {
            let kernel = options.kernel;
            let mut plan = plan(&graph).unwrap();
            plan.store(Precision { tables: Some(dtype), ..Precision::default() }, |_| Some(Table::Pooled));
            let found = run(&mut load_plan(plan, &given, options).unwrap(), &inputs).unwrap();
            let found = differences(&found, &expected, Tolerance { relative: 1e-6, floor: 1e-3 });
            assert!(found.is_empty(), "{dtype} on {kernel}: {found:?}");
        }
    }
}

#[test]
fn no_rows_are_looked_up() {
    for dtype in TABLES {
        let scope = Scope::new();
        let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
        let rows = scope.parameter("table", dtype, &[3.into(), 24.into()]).gather(&ids);
        let graph = scope.finish(&[("rows", &rows * 2.0)]).unwrap();
        let values = Noise::new(5, "table").floats(DType::F32, &[3, 24], 3.0).stored_as(dtype).unwrap();
        let inputs = Tensors::from([("ids".to_owned(), HostTensor::u32(vec![0], &[]).unwrap())]);
        computes(&graph, &inputs, &Tensors::from([("table".to_owned(), values)]), 0.0, &dtype.to_string());
    }
}

#[test]
fn weights_multiply_in_any_type() {
    for dtype in TABLES {
        let takes =
            |&(depth, columns): &(usize, usize)| [depth, columns].iter().all(|&n| dtype.format().has_rows_of(n));
        for (depth, columns) in [(25, 50), (50, 1), (1, 25), (64, 32), (8, 136)].into_iter().filter(takes) {
            let scope = Scope::new();
            let x = scope.input("x", DType::F32, &[scope.size("rows"), depth.into()]);
            let weight = scope.parameter("weight", dtype, &[columns.into(), depth.into()]);
            let flat = scope.parameter("flat", dtype, &[depth.into(), columns.into()]);
            let graph = scope
                .finish(&[("linear", x.linear(&weight.cast(DType::F32), None)), ("product", x.matmul(&flat))])
                .unwrap();
            let mut noise = Noise::new(7, "weights");
            let mut values = |shape: &[usize]| noise.floats(DType::F32, shape, 1.0);
            let x = values(&[9, depth]);
            let parameters = Tensors::from([
                ("weight".to_owned(), values(&[columns, depth]).stored_as(dtype).unwrap()),
                ("flat".to_owned(), values(&[depth, columns]).stored_as(dtype).unwrap()),
            ]);
            let inputs = Tensors::from([("x".to_owned(), x)]);
            computes(&graph, &inputs, &parameters, 2e-5, &format!("{dtype} {depth}x{columns}"));
        }
    }
}

/// Results in a narrow type equal the interpreter's rounded results, bit for bit.
#[test]
fn results_are_rounded_alike() {
    for dtype in [DType::F16, DType::BF16] {
        for (rows, width) in [(1, 1), (7, 25), (3, 50), (5, 64)] {
            let scope = Scope::new();
            let x = scope.input("x", DType::F32, &[scope.size("rows"), width.into()]);
            let graph = scope.finish(&[("y", (&x * 0.5).maximum(&x).cast(dtype))]).unwrap();
            let x = Noise::new(11, "x").floats(DType::F32, &[rows, width], 100.0);
            let inputs = Tensors::from([("x".to_owned(), x)]);
            let expected = oracle(&graph, &inputs, &Tensors::new()).unwrap();
            assert_eq!(expected["y"].dtype(), dtype);
            computes(&graph, &inputs, &Tensors::new(), 0.0, &format!("{dtype} {rows}x{width}"));
        }
    }
}

#[test]
fn rows_with_a_scale_are_not_written() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    let error = scope.finish(&[("y", x.cast(DType::Rows8))]).unwrap_err().to_string();
    assert!(error.contains("a type that kernels write"), "{error}");
}

/// Rows and what they give back, byte for byte as fbgemm has them.
#[test]
fn rows_are_quantized_as_fbgemm_does() {
    let cases = rewire_verify::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/quantize_rows")).unwrap();
    assert_eq!(cases.len(), 18);
    for case in cases {
        let golden = Golden::read(&case);
        let [table, rows, back] = ["in.table", "out.rows", "out.table"].map(|name| golden.tensors[name].clone());
        assert_eq!(table.stored_as(rows.dtype()).unwrap().bytes(), rows.bytes(), "{}", golden.name);
        assert_eq!(rows.stored_as(DType::F32).unwrap(), back, "{}", golden.name);
    }
}

#[test]
fn rows_of_other_widths_are_refused() {
    for (dtype, widths) in [(DType::Rows4, [1, 25, 50]), (DType::Rows2, [4, 25, 12])] {
        for width in widths {
            assert!(Noise::new(1, "x").floats(DType::F32, &[3, width], 1.0).stored_as(dtype).is_err());
            let graph = |dtype| {
                let scope = Scope::new();
                let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
                let rows = scope.parameter("table", dtype, [3, width]).gather(&ids);
                scope.finish(&[("rows", rows)])
            };
            let error = graph(dtype).unwrap_err().to_string();
            assert!(error.contains("a multiple of"), "{error}");
            let mut plan = plan(&graph(DType::F32).unwrap()).unwrap();
            plan.store_floats_as(dtype);
            let error = plan.check_limits().unwrap_err().to_string();
            assert!(error.contains("parameter `table`") && error.contains(&format!("rows of {width}")), "{error}");
        }
    }
}

#[test]
fn the_parameters_that_are_wanted_change_their_type() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let rows = scope.parameter("table", DType::F32, [9, 12]).gather(&ids);
    let y = rows.matmul(&scope.parameter("weight", DType::F32, [12, 5]));
    let graph = scope.finish(&[("y", y)]).unwrap();
    let floats = |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(4, name).floats(DType::F32, shape, 1.0));
    let given: Tensors = [floats("table", &[9, 12]), floats("weight", &[12, 5])].into();
    let inputs: Tensors = [("ids".to_owned(), HostTensor::u32([3], &[8, 0, 8]).unwrap())].into();
    let tables = |dtype| Precision { tables: Some(dtype), ..Precision::default() };
    for (wanted, dtype) in [("table", DType::Rows8), ("table", DType::Rows4), ("weight", DType::F16)] {
        let mut plan = plan(&graph).unwrap();
        plan.store(tables(dtype), |name| (name == wanted).then_some(Table::Pooled));
        let mut rounded = given.clone();
        for parameter in plan.parameters() {
            assert_eq!(parameter.dtype, if parameter.name == wanted { dtype } else { DType::F32 });
            let stored = given[parameter.name].clone().stored_as(parameter.dtype).unwrap();
            rounded.insert(parameter.name.to_owned(), stored.stored_as(DType::F32).unwrap());
        }
        let expected = oracle(&graph, &inputs, &rounded).unwrap();
        let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let found = run(&mut load_plan(plan, &given, options).unwrap(), &inputs).unwrap();
        assert!(differences(&found, &expected, Tolerance::SINGLE).is_empty(), "{wanted}");
        assert!(!differences(&found, &oracle(&graph, &inputs, &given).unwrap(), Tolerance::SINGLE).is_empty());
    }
}

/// Values as rows with a scale hold them, a row a column of the matrices.
fn rounded_by_column(tensor: &HostTensor, dtype: DType) -> HostTensor {
    tensor.clone().transposed().unwrap().stored_as(dtype).unwrap().transposed().unwrap()
}

/// A scale belongs to a column of the product, whichever way a weight is read.
#[test]
fn weights_have_a_scale_a_column() {
    let (depth, columns) = (36, 20);
    let scope = Scope::new();
    let (rows, dims) = (scope.size("rows"), |dims: [usize; 2]| dims.map(Into::into));
    let x = scope.input("x", DType::F32, &[rows.clone(), depth.into()]);
    let by_part = scope.input("by_part", DType::F32, &[2.into(), rows, depth.into()]);
    let flat = scope.parameter("flat", DType::F32, &dims([depth, columns]));
    let linear = scope.parameter("linear", DType::F32, &dims([columns, depth]));
    let parts = scope.parameter("parts", DType::F32, &[2.into(), depth.into(), columns.into()]);
    // A weight that is looked up as well has to lie by row.
    let both = scope.parameter("both", DType::F32, &dims([depth, columns]));
    let ids = scope.input("ids", DType::U32, &[scope.size("ids")]);
    let outputs = [
        ("flat", x.silu().matmul(&flat)),
        ("linear", x.linear(&linear, None)),
        ("parts", by_part.matmul(&parts)),
        ("both", x.matmul(&both)),
        ("rows", both.gather(&ids)),
    ];
    let graph = scope.finish(&outputs).unwrap();
    let floats = |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(6, name).floats(DType::F32, shape, 1.0));
    let mut given: Tensors = [
        floats("flat", &[depth, columns]),
        floats("linear", &[columns, depth]),
        floats("parts", &[2, depth, columns]),
        floats("both", &[depth, columns]),
    ]
    .into();
    let mut inputs: Tensors = [floats("x", &[9, depth]), floats("by_part", &[2, 9, depth])].into();
    inputs.insert("ids".to_owned(), HostTensor::u32(vec![3], &[7, 0, 35]).unwrap());
    let mut plan = plan(&graph).unwrap();
    plan.store(Precision { weights: Some(DType::Rows8), ..Precision::default() }, |_| None);
    assert_eq!(plan.parameters_by_column().collect::<Vec<_>>(), ["flat", "parts"]);
    for options in kernels() {
        let mut session = load_plan(plan.clone(), &given, options).unwrap();
        for changed in [false, true] {
            if changed {
                let (name, tensor) =
                    ("flat".to_owned(), Noise::new(7, "flat").floats(DType::F32, &[depth, columns], 1.0));
                session.model().update([(&name, tensor.clone())]).unwrap();
                given.insert(name, tensor);
            }
            let rounded = given.iter().map(|(name, tensor)| {
                let by_row = tensor.clone().stored_as(DType::Rows8).unwrap();
                let by_column = rounded_by_column(tensor, DType::Rows8);
                (name.clone(), if ["flat", "parts"].contains(&name.as_str()) { by_column } else { by_row })
            });
            let expected = oracle(&graph, &inputs, &rounded.collect()).unwrap();
            let found = run(&mut session, &inputs).unwrap();
            let found = differences(&found, &expected, Tolerance { relative: 2e-5, floor: 1e-3 });
            assert!(found.is_empty(), "changed {changed}: {found:?}");
        }
        given.insert("flat".to_owned(), floats("flat", &[depth, columns]).1);
    }
}

/// f16 by weights of 8 bits, on matrix hardware where a device has some, with f32 accumulators, with f16 ones where it has those, and
/// of integers where it has no matrices.
#[test]
fn weights_of_8_bits_multiply_halves() {
    for (rows, depth, columns) in [(1, 64, 64), (37, 50, 40), (150, 128, 136), (9, 25, 50)] {
        let scope = Scope::new();
        let rows_of = |name| scope.input(name, DType::F16, &[scope.size("rows"), depth.into()]);
        let flat = scope.parameter("flat", DType::F32, &[depth.into(), columns.into()]);
        let linear = scope.parameter("linear", DType::F32, &[columns.into(), depth.into()]);
        let outputs = [("flat", rows_of("x").matmul(&flat)), ("linear", rows_of("z").linear(&linear, None))];
        let graph = scope.finish(&outputs).unwrap();
        let floats =
            |name: &str, shape: &[usize]| (name.to_owned(), Noise::new(8, name).floats(DType::F32, shape, 1.0));
        let given: Tensors = [floats("flat", &[depth, columns]), floats("linear", &[columns, depth])].into();
        let halves = |name: &str| (name.to_owned(), Noise::new(8, name).floats(DType::F16, &[rows, depth], 1.0));
        let inputs: Tensors = [halves("x"), halves("z")].into();
        let rounded = [
            ("flat".to_owned(), rounded_by_column(&given["flat"], DType::Rows8)),
            ("linear".to_owned(), given["linear"].clone().stored_as(DType::Rows8).unwrap()),
        ];
        let expected = oracle(&graph, &inputs, &rounded.into()).unwrap();
        for options in kernels() {
            for (sums, relative) in [(DType::F32, 1e-3), (DType::F16, 4e-3)] {
                let mut plan = plan(&graph).unwrap();
                let precision = Precision { weights: Some(DType::Rows8), sums: Some(sums), ..Precision::default() };
                plan.store(precision, |_| None);
                let in_f16 = plan.steps.iter().all(|step| match &step.computation {
                    Computation::Nest(nest) => nest.accumulations.iter().all(|sum| sum.dtype == sums),
                    Computation::Custom(_) => false,
                });
                assert!(in_f16, "sums are not {sums}");
                let found = run(&mut load_plan(plan, &given, options.clone()).unwrap(), &inputs).unwrap();
                let found = differences(&found, &expected, Tolerance { relative, floor: 1.0 });
                assert!(found.is_empty(), "{rows}x{depth}x{columns} sums {sums} on {}: {found:?}", options.kernel);
            }
        }
    }
}
