//! Pipelines whose tables grow: training, its checkpoints, predictions and packages.

use super::{Noise, RankOptions};
use rewire::delta::{Changes, Delta, DeltaError, MapChanges, ModelVersion, Placed, apply};
use rewire::graph::{DType, HostTensor};
use rewire::predict::{Column, Evaluator, Imported, OwnedCell, Predicted, Predictor};
use rewire::rank::{PackOptions, Precision, RankError, pack};
use rewire::runtime::Inputs;
use rewire::train::{
    Begin, Checkpoint, Data, DataError, Event, PipelineTask, Position, RankTrainError, Tensors, TrainConfig, Trainer,
    fit,
};
use rewire::weights::{Weights, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const USERS: &str = "embedding_group.emb_impls.__BASE__.mc_ebc._embedding_module.embedding_bags.user_emb.weight";
const MANAGED: &str =
    "embedding_group.emb_impls.__BASE__.mc_ebc._managed_collision_collection._managed_collision_modules.user_emb.";
const ITEMS: &str = "embedding_group.emb_impls.__BASE__.ebc.embedding_bags.item.";
const CLICKS: &str = "embedding_group.seq_emb_impls.__BASE__.ec_dict.4.embeddings.item.";

/// Users by strings, and items whose ids a sequence shares; `growing` or fixed.
fn pipeline(growing: bool) -> Value {
    let (zch, dynamic) = match growing {
        true => (
            json!({ "zch": { "zch_size": 20, "eviction_interval": 2, "lru": {} } }),
            json!({ "dynamicemb": { "max_capacity": 12, "frequency_admission_strategy": { "threshold": 2 },
                                    "initializer_args": { "mode": "NORMAL", "std_dev": 0.3 } } }),
        ),
        false => (json!({ "num_buckets": 20 }), json!({ "num_buckets": 13 })),
    };
    let feature = |keys: Value, grows: &Value| {
        let keys = keys.as_object().unwrap().iter().chain(grows.as_object().unwrap());
        Value::Object(keys.map(|(key, value)| (key.clone(), value.clone())).collect())
    };
    let user = feature(json!({ "feature_name": "user", "embedding_dim": 4 }), &zch);
    let item = feature(json!({ "feature_name": "item", "embedding_dim": 4, "embedding_name": "item" }), &dynamic);
    let clicks = feature(json!({ "feature_name": "clicks", "embedding_dim": 4, "embedding_name": "item" }), &dynamic);
    json!({
        "train_config": {
            "sparse_optimizer": { "adam_optimizer": { "lr": 0.05 }, "constant_learning_rate": {} },
            "dense_optimizer": { "adam_optimizer": { "lr": 0.01 }, "constant_learning_rate": {} },
            "num_steps": 40
        },
        "data_config": { "batch_size": 8, "label_fields": ["clk"] },
        "feature_configs": [{ "id_feature": user }, { "id_feature": item }, { "sequence_id_feature": clicks }],
        "model_config": {
            "feature_groups": [{
                "group_name": "deep", "feature_names": ["user", "item"],
                "sequence_groups": [{ "group_name": "seq", "feature_names": ["clicks"] }],
                "sequence_encoders": [{ "pooling_encoder": { "input": "seq" } }]
            }],
            "multi_tower": { "towers": [{ "input": "deep", "mlp": { "hidden_units": [8] } }] },
            "losses": [{ "binary_cross_entropy": {} }],
            "metrics": [{ "auc": {} }, { "grouped_auc": { "grouping_key": "user" } }]
        }
    })
}

fn text(pipeline: &Value) -> String {
    json!({ "pipeline": pipeline }).to_string()
}

/// Rows of one batch: users come and go, some items are frequent.
struct Rows {
    users: Vec<String>,
    items: Vec<i64>,
    clicks: Vec<Vec<i64>>,
    labels: Vec<i64>,
}

const ITEM: fn(i64) -> i64 = |n| (n - 6) * 9_000_000_000_007;

impl Rows {
    fn new(batch: usize) -> Self {
        let mut noise = Noise(batch as u64 * 77 + 5);
        let users: Vec<i64> = (0..8).map(|_| batch as i64 / 2 * 3 + noise.below(9)).collect();
        let mut item = || ITEM(noise.below(6) * noise.below(5));
        let items: Vec<i64> = (0..8).map(|_| item()).collect();
        Self {
            labels: items.iter().zip(&users).map(|(item, user)| (item ^ user) & 1).collect(),
            clicks: (0..8).map(|row| (0..row % 4).map(|_| item()).collect()).collect(),
            users: users.iter().map(|user| format!("user {user}")).collect(),
            items,
        }
    }

    fn columns(&self) -> Vec<(&'static str, Column<'_>)> {
        let list = |ids: &Vec<i64>| OwnedCell::List(ids.iter().map(|id| OwnedCell::Int(*id)).collect());
        let of = |cells: Vec<OwnedCell>| Column::of_cells(cells).unwrap();
        vec![
            ("user", of(self.users.iter().map(|user| OwnedCell::Text(user.clone())).collect())),
            ("item", of(self.items.iter().map(|item| OwnedCell::Int(*item)).collect())),
            ("clicks", of(self.clicks.iter().map(list).collect())),
            ("clk", of(self.labels.iter().map(|label| OwnedCell::Int(*label)).collect())),
        ]
    }
}

struct Batches<'a>(&'a PipelineTask);

impl Data for Batches<'_> {
    fn epoch(&mut self, _: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        Box::new((0..15).map(|batch| Ok(self.0.inputs(8, &Rows::new(batch).columns(), None)?)))
    }
}

const SEED: Begin = Begin::Seed(3);

fn options() -> RankOptions {
    RankOptions { kernel: rewire::Kernel::Cpu, ..RankOptions::default() }
}

fn task(pipeline: &Value) -> PipelineTask {
    let task = PipelineTask::new(pipeline, None, options()).unwrap();
    let config = TrainConfig { shuffle_seed: Some(3), ..task.config().clone() };
    task.with_config(config)
}

/// Trains for some steps, or until the end.
fn train(task: &PipelineTask, trainer: &mut Trainer, from: Position, steps: u64) -> Position {
    trainer.report_every(NonZeroU64::new(steps).unwrap());
    let fitted = fit(trainer, &mut Batches(task), from, |_, event| {
        let is_over = matches!(event, Event::Step(report, _) if report.step == steps);
        Ok::<_, RankTrainError>(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    fitted.unwrap().position
}

fn trained() -> (Value, Tensors) {
    let pipeline = pipeline(true);
    let task = task(&pipeline);
    let mut trainer = task.trainer(&SEED).unwrap();
    train(&task, &mut trainer, Position::default(), 1000);
    (pipeline, task.tensors(&trainer, &SEED).unwrap())
}

fn stored(tensors: &Tensors) -> Weights<'static> {
    Weights::parse(serialize(tensors, &BTreeMap::new()).unwrap()).unwrap()
}

fn predicted(pipeline: &Value, tensors: &Tensors, rows: &Rows) -> Predicted {
    let predictor = Predictor::new("", &text(pipeline), &stored(tensors), &options()).unwrap();
    predictor.predict(8, &rows.columns()).unwrap()
}

fn integers(tensors: &Tensors, name: &str) -> Vec<i64> {
    tensors[name].values().unwrap()
}

#[test]
fn predictions_are_those_of_fixed_tables_with_the_rows_of_ids() {
    let (pipeline, tensors) = trained();
    let items: BTreeMap<i64, i64> = integers(&tensors, &format!("{ITEMS}ids")).into_iter().zip(0..).collect();
    assert_eq!(tensors[&format!("{ITEMS}ids")], tensors[&format!("{CLICKS}ids")]);
    let [ids, rows] = ["_mch_sorted_raw_ids", "_mch_remapped_ids_mapping"].map(|part| format!("{MANAGED}{part}"));
    let (ids, rows) = (integers(&tensors, &ids), integers(&tensors, &rows));
    assert!(ids.is_sorted() && ids.len() == 20 && rows[19] == 19);
    let users: BTreeMap<i64, i64> = ids.into_iter().zip(rows).filter(|(id, _)| *id != i64::MAX).collect();
    assert_eq!((users.len(), tensors[USERS].shape()), (19, &[20, 4][..]));
    assert!((3..=12).contains(&items.len()), "{items:?}");

    let fixed = super::growing::pipeline(false);
    let renamed: Tensors = tensors
        .iter()
        .map(|(name, tensor)| (name.replace("mc_ebc._embedding_module.", "ebc."), tensor.clone()))
        .collect();
    let of_item = |id: &i64| items.get(id).copied().unwrap_or(12);
    for batch in [0, 14, 30] {
        let mut rows = Rows::new(batch);
        let grown = predicted(&pipeline, &tensors, &rows);
        for user in &mut rows.users {
            let id = rewire::train::tables::hash(user);
            *user = users.get(&id).copied().unwrap_or(19).to_string();
        }
        rows.items = rows.items.iter().map(of_item).collect();
        rows.clicks.iter_mut().for_each(|clicks| *clicks = clicks.iter().map(of_item).collect());
        assert_eq!(grown, predicted(&fixed, &renamed, &rows));
    }
    // Ids without a row read zeros in tables of `dynamicemb`.
    assert_eq!(tensors[&format!("{ITEMS}weight")].to_f32()[12 * 4..], [0.0; 4]);
}

#[test]
fn packages_and_evaluations_take_raw_ids() {
    let (pipeline, tensors) = trained();
    let (text, rows, weights) = (text(&pipeline), Rows::new(3), stored(&tensors));
    let package = pack("", &text, &weights, &PackOptions::default()).unwrap();
    let packed = Predictor::from_package(&package, &options()).unwrap().predict(8, &rows.columns()).unwrap();
    assert_eq!(packed, predicted(&pipeline, &tensors, &rows));
    let mut evaluation = Evaluator::new("", &text, &options()).unwrap().begin(&weights).unwrap();
    for batch in 0..15 {
        evaluation.add(8, &Rows::new(batch).columns(), None).unwrap();
    }
    for (name, value) in evaluation.evaluated().metrics {
        assert!(value.is_some_and(|auc| auc > 0.55), "{name}: {value:?}");
    }
}

#[test]
fn a_checkpoint_resumes_with_equal_bits() {
    let task = task(&pipeline(true));
    let mut whole = task.trainer(&SEED).unwrap();
    train(&task, &mut whole, Position::default(), 1000);
    let drawn = Begin::Tensors(task.initial(3).unwrap());
    let mut first = task.trainer(&drawn).unwrap();
    let position = train(&task, &mut first, Position::default(), 17);
    let mut bytes = vec![];
    Checkpoint::write(&first, position, &BTreeMap::new(), &mut bytes).unwrap();
    let checkpoint = Checkpoint::from_weights("", &Weights::parse(bytes).unwrap()).unwrap();
    let mut second = task.trainer(&SEED).unwrap();
    checkpoint.resume(&mut second).unwrap();
    train(&task, &mut second, position, 1000);
    assert_eq!(second.states().unwrap(), whole.states().unwrap());
    assert_eq!(task.tensors(&second, &drawn).unwrap(), task.tensors(&whole, &SEED).unwrap());

    // A training that begins with a model has its ids.
    let tensors = task.tensors(&whole, &SEED).unwrap();
    let begin = Begin::Tensors(tensors.clone());
    let next = task.trainer(&begin).unwrap();
    assert_eq!(task.tensors(&next, &begin).unwrap(), tensors);
    let mut file = vec![];
    task.write_weights(&next, &begin, &BTreeMap::new(), &mut file).unwrap();
    assert_eq!(file, serialize(&tensors, &BTreeMap::new()).unwrap());
}

#[test]
fn models_without_valid_ids_are_refused() {
    let (pipeline, tensors) = trained();
    let refused = |name: String, tensor: Option<HostTensor>| {
        let mut tensors = tensors.clone();
        assert!(tensors.remove(&name).is_some(), "{name}");
        tensors.extend(tensor.map(|tensor| (name.clone(), tensor)));
        Predictor::new("", &text(&pipeline), &stored(&tensors), &options()).unwrap_err()
    };
    for name in [format!("{ITEMS}ids"), format!("{ITEMS}steps"), format!("{MANAGED}_mch_sorted_raw_ids")] {
        assert!(matches!(refused(name.clone(), None), RankError::Ids { .. }), "{name}");
        assert!(matches!(refused(name.clone(), Some(HostTensor::vector(&[7i64; 3]))), RankError::Ids { .. }), "{name}");
    }
    let ids = integers(&tensors, &format!("{CLICKS}ids"));
    let others = HostTensor::vector(&ids.iter().map(|id| id + 1).collect::<Vec<i64>>());
    let error = refused(format!("{CLICKS}ids"), Some(others));
    assert!(matches!(error, RankError::UnequalIds { .. }), "{error}");
}

#[test]
fn ids_in_the_layout_of_the_reference() {
    let (pipeline, mut tensors) = trained();
    let rows = Rows::new(2);
    let expected = predicted(&pipeline, &tensors, &rows);
    // The reference fills rows from the last but one on, and has no use of ids of other policies.
    let mapping = format!("{MANAGED}_mch_remapped_ids_mapping");
    let swapped: Vec<i64> =
        integers(&tensors, &mapping).iter().map(|row| if *row < 19 { 18 - row } else { *row }).collect();
    let table: Vec<f32> = tensors[USERS].to_f32();
    let row = |row: usize| table[row * 4..row * 4 + 4].to_vec();
    let table: Vec<f32> = (0..20).flat_map(|place| row(if place < 19 { 18 - place } else { place })).collect();
    tensors.insert(mapping, HostTensor::vector(&swapped));
    tensors.insert(USERS.to_owned(), HostTensor::f32([20, 4], &table).unwrap());
    assert!(tensors.remove(&format!("{MANAGED}_mch_last_access_iter")).is_some());
    assert!(!tensors.contains_key(&format!("{MANAGED}_mch_counts")));
    assert_eq!(tensors[&format!("{MANAGED}_output_segments_tensor")].shape(), [1025]);
    assert_eq!(predicted(&pipeline, &tensors, &rows), expected);

    // Tables of `dynamicemb` are files of ids and rows there.
    let task = task(&pipeline);
    let (mut others, imported) = (tensors.clone(), Imported::new(&pipeline).unwrap());
    let identified = task.take_identified(&mut others).unwrap();
    let names: Vec<&str> = identified.iter().map(|rows| rows.module.as_str()).collect();
    assert_eq!(names, ["embedding_group.emb_impls.__BASE__.ebc", "embedding_group.seq_emb_impls.__BASE__.ec_dict.4"]);
    assert!(others.keys().all(|name| !name.starts_with(ITEMS) && !name.starts_with(CLICKS)));
    others.extend(imported.identified(&identified).unwrap());
    assert_eq!(predicted(&pipeline, &others, &rows), expected);
    for (part, count) in [("ids", identified[0].ids.len()), ("last", identified[0].ids.len()), ("steps", 1)] {
        let name = format!("{ITEMS}{part}");
        assert_eq!(
            (integers(&others, &name).len(), part == "steps" || others[&name] == tensors[&name]),
            (count, true),
            "{part}"
        );
    }
    let mut many = identified.clone();
    many[0].ids.extend(100..120);
    assert!(matches!(imported.identified(&many).unwrap_err(), RankError::Ids { .. }));
}

/// The model at the start of a training with its version, the deltas of all steps, and the model at some steps.
struct WithDeltas {
    pipeline: Value,
    first: Vec<u8>,
    deltas: Vec<(Delta, Vec<u8>)>,
    models: BTreeMap<usize, Tensors>,
}

impl WithDeltas {
    fn new() -> Self {
        let pipeline = pipeline(true);
        let task = task(&pipeline);
        let mut trainer = task.trainer(&SEED).unwrap();
        trainer.record_changes();
        trainer.report_every(NonZeroU64::MIN);
        let tensors = task.tensors(&trainer, &SEED).unwrap();
        let mut version = ModelVersion::base(&tensors);
        let first = serialize(&tensors, &version.metadata()).unwrap();
        let (mut deltas, mut models) = (vec![], BTreeMap::new());
        let fitted = fit(&mut trainer, &mut Batches(&task), Position::default(), |trainer, event| {
            if matches!(event, Event::Step(..)) {
                let made = Delta::new(version, trainer.steps(), task.changes(trainer, &SEED)?).unwrap();
                version = made.0.version();
                deltas.push(made);
                if [11, 26, 40].contains(&deltas.len()) {
                    models.insert(deltas.len(), task.tensors(trainer, &SEED)?);
                }
            }
            Ok::<_, RankTrainError>(ControlFlow::Continue(()))
        });
        fitted.unwrap();
        assert_eq!(deltas.len(), 40);
        let evictions = |name: &str| {
            let placed =
                deltas.iter().filter_map(|(delta, _)| delta.changes().ids.get(name)).flat_map(|own| &own.placed);
            placed.filter(|placed| placed.evicted.is_some()).count()
        };
        assert!(evictions("user_emb") > 20 && evictions("item") > 3, "{} {}", evictions("user_emb"), evictions("item"));
        Self { pipeline, first, deltas, models }
    }

    fn predictor(&self) -> Predictor {
        let weights = Weights::parse(self.first.clone()).unwrap();
        Predictor::new("", &text(&self.pipeline), &weights, &options()).unwrap()
    }

    /// A folder with the first model, and the files of the deltas.
    fn in_files(&self) -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        std::fs::create_dir(&model).unwrap();
        std::fs::write(model.join("config.json"), text(&self.pipeline)).unwrap();
        std::fs::write(model.join("model.safetensors"), &self.first).unwrap();
        let file = |(at, (_, bytes)): (usize, &(Delta, Vec<u8>))| {
            let path = folder.path().join(format!("{at}.safetensors"));
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let deltas = self.deltas.iter().enumerate().map(file).collect();
        (folder, model, deltas)
    }
}

/// Rows of all batches, more than a run computes.
fn many() -> (usize, Rows) {
    let batches = || (0..75).map(|batch| Rows::new(batch % 15));
    let rows = Rows {
        users: batches().flat_map(|rows| rows.users).collect(),
        items: batches().flat_map(|rows| rows.items).collect(),
        clicks: batches().flat_map(|rows| rows.clicks).collect(),
        labels: batches().flat_map(|rows| rows.labels).collect(),
    };
    (rows.users.len(), rows)
}

#[test]
fn requests_see_the_ids_and_rows_of_one_version() {
    let trained = WithDeltas::new();
    let (count, rows) = many();
    let columns = rows.columns();
    let (alone, mut expected) = (trained.predictor(), vec![]);
    expected.push(alone.predict(count, &columns).unwrap());
    for (number, (delta, _)) in (1..).zip(&trained.deltas) {
        alone.update(delta).unwrap();
        expected.push(alone.predict(count, &columns).unwrap());
        if let Some(tensors) = trained.models.get(&number) {
            let loaded = Predictor::new("", &text(&trained.pipeline), &stored(tensors), &options()).unwrap();
            assert_eq!(expected[number], loaded.predict(count, &columns).unwrap(), "{number}");
        }
    }
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]), "a delta changes nothing");

    let (served, predicted, done) = (trained.predictor(), AtomicUsize::new(0), AtomicUsize::new(0));
    let predict = || {
        let (mut version, mut seen) = (0, 0);
        loop {
            let is_last = done.load(Ordering::Acquire) == 1;
            let found = served.predict(count, &columns).unwrap();
            let own = (version..expected.len()).find(|at| expected[*at] == found);
            let own = own.expect("a result of several versions, or of one before the last");
            seen += usize::from(own != version);
            version = own;
            predicted.fetch_add(1, Ordering::AcqRel);
            if is_last {
                assert_eq!(version, trained.deltas.len(), "the last delta is applied");
                return seen;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(predict));
        for (at, (delta, _)) in trained.deltas.iter().enumerate() {
            while predicted.load(Ordering::Acquire) < at {
                std::thread::yield_now();
            }
            served.update(delta).unwrap();
        }
        done.store(1, Ordering::Release);
        let seen = threads.map(|thread| thread.join().unwrap());
        assert!(seen.iter().all(|versions| *versions > 3), "{seen:?}");
    });
}

#[test]
fn files_with_deltas_have_the_ids_of_the_training() {
    let trained = WithDeltas::new();
    let (folder, model, deltas) = trained.in_files();
    let (out, package) = (folder.path().join("out"), folder.path().join("model.rewire"));
    let weights = Weights::parse(trained.first.clone()).unwrap();
    let packed = pack("", &text(&trained.pipeline), &weights, &PackOptions::default()).unwrap();
    std::fs::write(&package, packed.bytes()).unwrap();
    let rows = Rows::new(9);
    for (from, to) in [(0, 11), (11, 26), (26, 40)] {
        let version = apply(if from == 0 { &model } else { &out }, &deltas[from..to], &out).unwrap();
        let expected = serialize(&trained.models[&to], &version.metadata()).unwrap();
        assert!(std::fs::read(out.join("model.safetensors")).unwrap() == expected, "{to}");
        assert_eq!(apply(&package, &deltas[from..to], &package).unwrap(), version);
        let found = Predictor::load(&package, &options()).unwrap().predict(8, &rows.columns()).unwrap();
        assert_eq!(found, predicted(&trained.pipeline, &trained.models[&to], &rows), "{to}");
    }

    // New rows of quantised tables are quantised.
    let precision = Precision { tables: Some(DType::Rows8), ..Precision::default() };
    let options_of_pack = PackOptions { precision, ..PackOptions::default() };
    let packed = pack("", &text(&trained.pipeline), &weights, &options_of_pack).unwrap();
    std::fs::write(&package, packed.bytes()).unwrap();
    let served = Predictor::load(&package, &options()).unwrap();
    trained.deltas.iter().for_each(|(delta, _)| served.update(delta).unwrap());
    apply(&package, &deltas, &package).unwrap();
    let loaded = Predictor::load(&package, &options()).unwrap();
    let [served, loaded] = [served, loaded].map(|model| model.predict(8, &rows.columns()).unwrap());
    assert_eq!(served, loaded);
    assert_ne!(loaded, predicted(&trained.pipeline, &trained.models[&40], &rows));
}

#[test]
fn deltas_of_other_ids_are_refused() {
    let trained = WithDeltas::new();
    let (folder, model, deltas) = trained.in_files();
    let (served, rows) = (trained.predictor(), Rows::new(3));
    served.update(&trained.deltas[0].0).unwrap();
    apply(&model, &deltas[..1], &model).unwrap();
    let files = || std::fs::read(model.join("model.safetensors")).unwrap();
    let (before, predicted) = (files(), served.predict(8, &rows.columns()).unwrap());
    let version = trained.deltas[0].0.version();
    let with = |table: &str, placed: Placed| {
        let ids = MapChanges { placed: vec![placed], steps: 2, ..MapChanges::default() };
        let parameters = trained.deltas[1].0.changes().parameters.clone();
        Delta::new(version, 2, Changes { parameters, ids: [(table.to_owned(), ids)].into() }).unwrap()
    };
    let placed = |row, evicted| Placed { row, id: 1 << 50, evicted };
    let wrong = [
        (with("user_emb", placed(0, Some(77))), "differs from the one in the change"),
        (with("user_emb", placed(19, None)), "is not one of 19 rows"),
        (with("none", placed(0, None)), "which has no ids in the model"),
        (trained.deltas[2].clone(), "needs delta 2"),
    ];
    let path = folder.path().join("wrong");
    for ((delta, bytes), part) in wrong {
        std::fs::write(&path, bytes).unwrap();
        let errors: [&dyn std::error::Error; 2] =
            [&served.update(&delta).unwrap_err(), &apply(&model, std::slice::from_ref(&path), &model).unwrap_err()];
        for error in errors {
            assert!(rewire::describe(error).contains(part), "{}", rewire::describe(error));
        }
        assert!(files() == before && served.predict(8, &rows.columns()).unwrap() == predicted, "{part}");
    }
    assert!(matches!(served.update(&trained.deltas[0].0), Err(DeltaError::Applied { .. })));
    served.update(&trained.deltas[1].0).unwrap();
}
