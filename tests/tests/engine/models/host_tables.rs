//! Tables on the host: rows are looked up there, and results have the bits that they have with tables on the device.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::plan::{Plan, Precision, Table};
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, Report, Tables};
use rewire_tests::backend::{Tensors, load_plan, on, options, oracle, plan, run};
use rewire_tests::compare::Tolerance;
use rewire_tests::noise::Noise;

pub(super) const ITEMS: usize = 57;
pub(super) const GENRES: usize = 9;

/// A product of joined lookups, sums and means of bags, a lookup as it is, and a product with the same table.
fn model(width: usize) -> Graph {
    let scope = Scope::new();
    let bags = scope.lengths("lengths", scope.size("samples"));
    let items = scope.input("items", DType::U32, std::slice::from_ref(&bags.total));
    let genres = scope.input("genres", DType::I64, std::slice::from_ref(&bags.total));
    let candidates = scope.input("candidates", DType::I32, &[scope.size("candidates"), 3.into()]);
    let item_table = scope.parameter("item", DType::F32, [ITEMS, width]);
    let genre_table = scope.parameter("genre", DType::F32, [GENRES, 6]);
    let weight = scope.parameter("weight", DType::F32, [width + 6, 8]);
    let (item, genre) = (item_table.gather(&items), genre_table.gather(&genres));
    let joined = scope.concat(&[&item, &genre], 1);
    scope
        .finish(&[
            ("product", joined.matmul(&weight).silu()),
            ("sum", item_table.embedding_bag_sum(&items, &bags)),
            ("mean", item_table.embedding_bag_mean(&items, &bags)),
            ("rows", item_table.gather(&candidates)),
            ("doubled", &item + &item),
        ])
        .unwrap()
}

pub(super) fn floats(noise: &mut Noise, shape: &[usize]) -> HostTensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| noise.below(0, 4001) as f64 / 1000.0 - 2.0).collect();
    HostTensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
}

pub(super) fn parameters(width: usize) -> Tensors {
    let mut noise = Noise::new(3, "tables");
    let shapes = [("item", [ITEMS, width]), ("genre", [GENRES, 6]), ("weight", [width + 6, 8])];
    shapes.map(|(name, shape)| (name.to_owned(), floats(&mut noise, &shape))).into()
}

fn inputs(lengths: &[i64], candidates: usize) -> Tensors {
    let mut noise = Noise::new(lengths.len() as u64, "ids");
    let mut ids = |dtype, shape: Vec<usize>, below: usize| {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| noise.below(0, below as i64) as f64).collect();
        HostTensor::from_f64(dtype, shape, &values).unwrap()
    };
    let total = lengths.iter().sum::<i64>() as usize;
    [
        ("lengths".to_owned(), HostTensor::lengths(lengths)),
        ("items".to_owned(), ids(DType::U32, vec![total], ITEMS)),
        ("genres".to_owned(), ids(DType::I64, vec![total], GENRES)),
        ("candidates".to_owned(), ids(DType::I32, vec![candidates, 3], ITEMS)),
    ]
    .into()
}

const BATCHES: [(&[i64], usize); 5] = [(&[3, 0, 1, 5], 2), (&[0, 0], 1), (&[], 0), (&[1], 7), (&[700, 0, 2, 129], 33)];

pub(super) fn stored(width: usize, dtype: DType) -> Plan {
    let mut plan = plan(&model(width)).unwrap();
    // Rows of 6 are none that few bits have.
    let is_table = |name: &str| name == "item" || name == "genre" && dtype.format().bits >= 8;
    plan.store(Precision { tables: Some(dtype), ..Precision::default() }, |name| {
        is_table(name).then_some(Table::Pooled)
    });
    plan
}

#[test]
fn results_have_the_same_bits_wherever_tables_lie() {
    for (width, dtype) in [
        (16, DType::F32),
        (25, DType::F32),
        (50, DType::F16),
        (25, DType::BF16),
        (25, DType::Rows8),
        (28, DType::Rows4),
        (48, DType::Rows2),
    ] {
        let (plan, parameters) = (stored(width, dtype), parameters(width));
        for kernel in [Kernel::Cpu, Kernel::Wgpu] {
            let Some(options) = options(kernel) else { continue };
            let load =
                |tables| load_plan(plan.clone(), &parameters, ModelOptions { tables, ..options.clone() }).unwrap();
            let (mut device, mut host) = (load(Tables::Device), load(Tables::Host));
            // Room for some rows of each table.
            let hot = ModelOptions { tables: Tables::Host, hot_row_bytes: 1 << 15, ..options.clone() };
            let mut hot = load_plan(plan.clone(), &parameters, hot).unwrap();
            assert!(host.plan().steps.iter().filter(|step| step.name == "lookup").count() >= 3);
            for (lengths, candidates) in BATCHES {
                let inputs = inputs(lengths, candidates);
                let (expected, found) = (run(&mut device, &inputs).unwrap(), run(&mut host, &inputs).unwrap());
                assert!(found == expected, "{kernel} {dtype} {width} {lengths:?}");
                for _ in 0..2 {
                    assert!(run(&mut hot, &inputs).unwrap() == expected, "hot rows {kernel} {dtype} {width}");
                }
            }
            let copied = hot.model().report().host_bytes - host.model().report().host_bytes;
            assert!(copied > 0 && copied <= 1 << 15, "{copied} bytes of copies");
        }
    }
}

#[test]
fn results_are_those_of_the_interpreter() {
    let (graph, parameters) = (model(25), parameters(25));
    let inputs = inputs(&[4, 0, 9], 5);
    let expected = oracle(&graph, &inputs, &parameters).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let options = ModelOptions { tables: Tables::Host, ..options };
        let found = run(&mut load_plan(plan(&graph).unwrap(), &parameters, options).unwrap(), &inputs).unwrap();
        let differences = rewire_tests::compare::differences(&found, &expected, Tolerance::SINGLE);
        assert!(differences.is_empty(), "{kernel}\n{}", differences.join("\n"));
    }
}

#[test]
fn ids_beyond_a_table_are_errors_or_the_nearest_row() {
    let parameters = parameters(16);
    let mut inputs = inputs(&[2], 1);
    inputs.insert("items".to_owned(), HostTensor::from_f64(DType::U32, vec![2], &[1e9, 3.0]).unwrap());
    inputs.insert("genres".to_owned(), HostTensor::i64(vec![2], &[i64::MAX, i64::MIN]).unwrap());
    inputs.insert("candidates".to_owned(), HostTensor::from_f64(DType::I32, vec![1, 3], &[-7.0, 1e9, 2.0]).unwrap());
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let load = |tables, clamp_ids| {
            let options = ModelOptions { tables, clamp_ids, ..options.clone() };
            load_plan(stored(16, DType::F32), &parameters, options).unwrap()
        };
        assert!(run(&mut load(Tables::Host, false), &inputs).unwrap_err().contains("items"));
        let [device, host] =
            [Tables::Device, Tables::Host].map(|tables| run(&mut load(tables, true), &inputs).unwrap());
        assert!(device == host, "{kernel}");
    }
}

/// Bytes on the device, and whether rows are looked up on the host.
fn placed(kernel: Kernel, bytes: Option<u64>) -> Option<(Report, usize)> {
    let options = ModelOptions { parameter_bytes: bytes, ..options(kernel)? };
    let session = load_plan(stored(16, DType::F32), &parameters(16), options).unwrap();
    let lookups = session.plan().steps.iter().filter(|step| step.name == "lookup").count();
    Some((session.report(), lookups))
}

#[test]
fn the_largest_tables_stay_on_the_host_where_there_is_no_room() {
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some((all, none)) = placed(kernel, None) else { continue };
        assert_eq!(none, 0);
        // 57 x 16, 9 x 8 and 22 x 8 floats.
        let (enough, _) = placed(kernel, Some(4 * (912 + 72 + 176))).unwrap();
        assert_eq!(enough, all);
        let (items, one) = placed(kernel, Some(4 * (72 + 176))).unwrap();
        let (both, two) = placed(kernel, Some(4 * 72)).unwrap();
        assert_eq!((one, two), (2, 3), "{kernel}");
        if kernel == Kernel::Wgpu {
            assert_eq!((items.cpu_steps, both.cpu_steps), (2, 3));
        }
        let held = |report: &Report| report.device_bytes + report.host_bytes;
        assert!(held(&all) > held(&items) && held(&items) > held(&both), "{all:?} {items:?} {both:?}");
    }
}

#[test]
fn tables_on_the_host_are_replaced_with_other_parameters() {
    let (old, new) = (parameters(16), floats(&mut Noise::new(8, "new"), &[ITEMS, 16]));
    let inputs = inputs(&[3, 4], 2);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let load =
            |tables| load_plan(stored(16, DType::F32), &old, ModelOptions { tables, ..options.clone() }).unwrap();
        let results = [Tables::Device, Tables::Host].map(|tables| {
            let mut session = load(tables);
            let before = run(&mut session, &inputs).unwrap();
            session.model().update([("item", new.clone())]).unwrap();
            let after = run(&mut session, &inputs).unwrap();
            assert!(before != after);
            (before, after)
        });
        assert!(results[0] == results[1], "{kernel}");
    }
}

#[test]
fn a_table_of_another_type_is_converted_by_its_rows() {
    let mut halves = parameters(25);
    halves.insert("item".to_owned(), halves["item"].clone().stored_as(DType::F16).unwrap());
    let inputs = inputs(&[3, 4], 2);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(options) = options(kernel) else { continue };
        let results = [Tables::Device, Tables::Host].map(|tables| {
            let options = ModelOptions { tables, ..options.clone() };
            run(&mut load_plan(stored(25, DType::F32), &halves, options).unwrap(), &inputs).unwrap()
        });
        assert!(results[0] == results[1], "{kernel}");
    }
}

#[test]
fn a_device_with_few_bindings_takes_the_rows() {
    let Some(gpu) = rewire_tests::backend::gpu() else { return };
    let options = ModelOptions { tables: Tables::Host, ..on(gpu.restricted(&Target::BASELINE)) };
    let mut session = load_plan(stored(16, DType::Rows8), &parameters(16), options).unwrap();
    let report = session.report();
    assert_eq!(report.cpu_steps, 3);
    run(&mut session, &inputs(&[3, 4], 2)).unwrap();
}

#[test]
fn what_is_read_otherwise_is_no_table() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let both = scope.parameter("both", DType::F32, [6, 4]);
    let computed = scope.parameter("computed", DType::F32, [6, 4]);
    let given = scope.parameter("given", DType::F32, [6, 4]);
    let known = scope.parameter("known", DType::F32, [6, 4]);
    let other = scope.input("other", DType::F32, &[scope.size("rows")]).cast(DType::I32);
    let graph = scope.finish(&[
        ("both", both.gather(&ids).matmul(&both.transpose(0, 1))),
        ("computed", computed.gather(&other)),
        ("given", given.gather(&ids)),
        ("table", given),
        ("known", known.gather(&ids)),
    ]);
    let plan = plan(&graph.unwrap()).unwrap();
    let names: Vec<&str> = plan
        .tables()
        .into_iter()
        .filter_map(|id| match &plan.buffer(id)?.source {
            rewire_graph_rewrite::plan::Source::Parameter(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["known"]);
}

#[test]
fn results_stay_on_the_device_and_devices_hold_ids() {
    let Some(options) = options(Kernel::Wgpu) else { return };
    let options = ModelOptions { tables: Tables::Host, ..options };
    let parameters = parameters(16);
    let model = Model::load(stored(16, DType::F32), &parameters, options).unwrap();
    let mut session = model.session();
    let given = inputs(&[3, 4], 2);
    let expected = run(&mut session, &given).unwrap();
    let mut inputs: Inputs = given.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    inputs.insert_device("candidates", session.upload(&given["candidates"]).unwrap());
    inputs.keep_on_device("rows");
    let outputs = session.run(&inputs).unwrap();
    for (name, value) in outputs {
        let found = match value {
            rewire_runtime::RunValue::Host(tensor) => tensor,
            rewire_runtime::RunValue::Device(tensor) => session.read(&tensor).unwrap(),
        };
        assert!(expected.get(&name) == Some(&found), "{name}");
    }
}
