//! Tables that grow with the ids of steps.

use super::ranks::{each, noise};
use rewire_distributed::Collectives;
use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, ModelOptions};
use rewire_train::tables::{Admission, Eviction, IdMap, MapState, Options};
use rewire_train::{
    Data, DataError, Event, GrowingTables, InitialRows, Objective, Position, StepError, TrainConfig, TrainError,
    Trainer, fit, loss,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

const WIDTH: usize = 3;
/// Batches of an epoch, in groups of three with common ids. The ids 5 and 6 occur in all groups.
const BATCHES: usize = 12;
const BATCH: usize = 5;

/// Raw ids of a batch: large numbers of both signs.
fn ids(batch: usize) -> Vec<i64> {
    let own = (0..BATCH).map(|place| batch / 3 * 1000 + place * 7);
    let ids = own.map(|id| (id as i64 - 1500) * 1_000_003);
    ids.chain([5, 6, 5]).take(BATCH + batch % 3).collect()
}

fn objective(rows: usize) -> Objective {
    let scope = Scope::new();
    let looked_up = scope.size("looked up");
    let values = scope.input("ids", DType::U32, [&looked_up]);
    let x = scope.parameter("table", DType::F32, [rows, WIDTH]).gather(&values);
    let y = scope.parameter("wide", DType::F32, [rows, 1]).gather(&values);
    let logit = x.matmul(&scope.parameter("out", DType::F32, [WIDTH, 1])) + y;
    let label = scope.input("label", DType::F32, [&looked_up]);
    let mean = loss::mean(&scope, &loss::binary_cross_entropy(&logit.reshape([&looked_up]), &label), None);
    Objective::new(scope.finish(&[("loss", mean)]).unwrap(), "loss").tables(["table", "wide"]).examples("label")
}

fn row(table: &str, row: u32) -> Vec<f32> {
    let width = if table == "wide" { 1 } else { WIDTH };
    (0..width).map(|column| noise(table.len(), row as usize * width + column)).collect()
}

fn growing(options: Options, trains_default: bool) -> Objective {
    let tables = GrowingTables {
        name: "map".to_owned(),
        options,
        tables: vec!["table".to_owned(), "wide".to_owned()],
        inputs: vec!["ids".to_owned()],
        trains_default,
        initial: InitialRows::new(row),
    };
    objective(options.rows as usize + 1).growing([tables])
}

fn initial(rows: usize) -> impl Fn(&str) -> Option<HostTensor> + Sync {
    move |name| match name {
        "out" => HostTensor::f32([WIDTH, 1], &[0.5, -0.75, 0.25]).ok(),
        table => {
            let values: Vec<f32> = (0..rows as u32).flat_map(|place| row(table, place)).collect();
            HostTensor::f32([rows, values.len() / rows], &values).ok()
        }
    }
}

fn config(steps: usize, accumulated: usize) -> TrainConfig {
    let config = json!({
        "batch_size": BATCH, "steps": steps, "gradient_accumulation_steps": accumulated,
        "dense_optimizer": { "sgd_optimizer": { "lr": 0.2 } },
        "sparse_optimizer": { "adam_optimizer": { "lr": 0.05 } },
    });
    TrainConfig::from_json(&config.to_string()).unwrap()
}

/// Batches with raw ids, or with rows if a map is set.
struct Batches(Option<BTreeMap<i64, u32>>);

impl Data for Batches {
    fn epoch(&mut self, _: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        Box::new((0..BATCHES).map(|batch| Ok(self.batch(batch))))
    }
}

impl Batches {
    fn batch(&self, batch: usize) -> Inputs {
        let ids = ids(batch);
        let labels: Vec<f32> = ids.iter().map(|id| (id % 2).abs() as f32).collect();
        let values = match &self.0 {
            None => HostTensor::vector(&ids),
            Some(rows) => HostTensor::vector(&ids.iter().map(|id| rows[id]).collect::<Vec<u32>>()),
        };
        Inputs::new().with("ids", values).with("label", HostTensor::vector(&labels))
    }
}

const OPTIONS: fn() -> ModelOptions = || ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };

fn trainer(objective: &Objective, rows: usize, config: &TrainConfig) -> Trainer {
    Trainer::new(objective, config, initial(rows), OPTIONS()).unwrap()
}

type States = BTreeMap<String, HostTensor>;

/// Trains until the end, or for `steps` steps.
fn run(trainer: &mut Trainer, data: Batches, from: Position, steps: usize) -> (Vec<f64>, States, Position) {
    let (mut losses, mut data) = (vec![], data);
    trainer.report_every(NonZeroU64::new(steps as u64).unwrap());
    let fitted = fit(trainer, &mut data, from, |_, event| {
        if let Event::Step(report, _) = event {
            losses.push(report.loss);
        }
        Ok::<_, TrainError>(if losses.len() == steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let position = fitted.unwrap().position;
    (losses, trainer.states().unwrap(), position)
}

fn map_of(states: &States, options: Options) -> MapState {
    MapState::load(options, |part| states[&format!("train:ids:{part}:map")].values()).unwrap()
}

/// Compares the states of two trainings, except for ids.
fn assert_equal(actual: &States, expected: &States) {
    let others = |states: &States| states.iter().filter(|(name, _)| !name.starts_with("train:ids:")).count();
    assert_eq!(others(actual), others(expected));
    for (name, tensor) in expected.iter().filter(|(name, _)| !name.starts_with("train:ids:")) {
        assert_eq!(actual[name].to_f32(), tensor.to_f32(), "{name}");
    }
}

#[test]
fn a_growing_table_trains_as_a_fixed_one_of_its_final_ids() {
    let options = Options { rows: 40, eviction: Eviction::Lru, ..Options::default() };
    for accumulated in [1, 3] {
        let config = config(30, accumulated);
        let mut grown = trainer(&growing(options, true), 41, &config);
        let (losses, states, _) = run(&mut grown, Batches(None), Position::default(), usize::MAX);
        let map = IdMap::from(&map_of(&states, options));
        let rows: BTreeMap<i64, u32> = (0..BATCHES).flat_map(ids).map(|id| (id, map.row(id).unwrap())).collect();
        assert_eq!(rows.len(), map_of(&states, options).ids().count());
        let mut fixed = trainer(&objective(41), 41, &config);
        let (expected, others, _) = run(&mut fixed, Batches(Some(rows)), Position::default(), usize::MAX);
        assert_eq!(losses, expected);
        assert!(losses.last() < losses.first());
        assert_equal(&states, &others);
    }
}

/// Tables that are too small for all ids.
fn small() -> [Options; 4] {
    let options = |eviction, admission, interval| Options { rows: 9, eviction, admission, interval };
    let count = Admission::Count { threshold: 2, capacity: 20 };
    [
        options(Eviction::Lru, Admission::All, 1),
        options(Eviction::Lfu, Admission::All, 3),
        options(Eviction::DistanceLfu { decay_exponent: 1.5 }, Admission::All, 2),
        options(Eviction::Lru, count, 1),
    ]
}

#[test]
fn a_resumed_training_with_evictions_gives_equal_bits() {
    for options in small() {
        let (config, objective) = (config(40, 2), growing(options, true));
        let new = || trainer(&objective, 10, &config);
        let (losses, expected, _) = run(&mut new(), Batches(None), Position::default(), usize::MAX);
        let (mut first, states, position) = run(&mut new(), Batches(None), Position::default(), 17);
        let mut second = new();
        second.resume(17, |name| states.get(name).cloned()).unwrap();
        assert_eq!(second.states().unwrap(), states);
        let (rest, resumed, _) = run(&mut second, Batches(None), position, usize::MAX);
        first.extend(rest);
        assert_eq!(first, losses, "{options:?}");
        assert_eq!(resumed, expected, "{options:?}");
        let damaged = |name: &str| {
            let cut = || HostTensor::vector(&[1i64, 2]);
            states.get(name).map(|tensor| if name == "train:ids:counts:map" { cut() } else { tensor.clone() })
        };
        assert!(matches!(second.resume(17, damaged).unwrap_err(), TrainError::Ids { .. }));
    }
}

#[test]
fn an_id_that_returns_begins_anew() {
    let options = Options { rows: 5, eviction: Eviction::Lru, ..Options::default() };
    let config = config(40, 1);
    let mut grown = trainer(&growing(options, true), 6, &config);
    let mut preparer = grown.preparer();
    let mut step =
        |trainer: &mut Trainer, batch| trainer.step(preparer.prepare(vec![Batches(None).batch(batch)]).unwrap());
    step(&mut grown, 0).unwrap();
    for batch in [3, 6, 9] {
        step(&mut grown, batch).unwrap();
    }
    // The step that reassigns the rows is the first step of its ids, except for bias correction by the number of steps.
    let [momentum, table] = ["train:moment:exp_avg:table", "table"].map(|name| grown.states().unwrap()[name].to_f32());
    step(&mut grown, 0).unwrap();
    let map = IdMap::from(&map_of(&grown.states().unwrap(), options));
    let place = map.row(ids(0)[0]).unwrap() as usize * WIDTH;
    let after = grown.states().unwrap();
    let moved: Vec<f32> = after["table"].to_f32()[place..place + WIDTH].to_vec();
    assert_ne!(table[place..place + WIDTH], moved);
    for (value, begin) in moved.iter().zip(row("table", (place / WIDTH) as u32)) {
        assert!((value - begin).abs() < 0.051, "{value} {begin}");
    }
    // After one step a first moment is a tenth of the gradient: the moments of evicted ids were reset.
    let moments = after["train:moment:exp_avg:table"].to_f32();
    assert_ne!(moments[place..place + WIDTH], momentum[place..place + WIDTH]);
}

#[test]
fn ids_without_a_row_share_the_last_one() {
    let options = Options { rows: 4, admission: Admission::Count { threshold: 2, capacity: 50 }, ..Options::default() };
    for trains_default in [true, false] {
        let config = config(1, 1);
        for ranks in [false, true] {
            let objective = growing(options, trains_default);
            let last = |trainer: &Trainer| trainer.states().unwrap()["table"].to_f32()[4 * WIDTH..].to_vec();
            let train = |mut trainer: Trainer| {
                let before = last(&trainer);
                run(&mut trainer, Batches(None), Position::default(), 1);
                (before, last(&trainer))
            };
            let of_rank = |group: Arc<dyn Collectives>| {
                train(Trainer::of_rank(&objective, &config, &initial(5), OPTIONS(), group).unwrap())
            };
            let (before, after) = match ranks {
                true => each(1, Duration::from_secs(60), of_rank).remove(0),
                false => train(trainer(&objective, 5, &config)),
            };
            assert_eq!(before != after, trains_default, "{ranks}");
        }
    }
}

#[test]
fn ranks_grow_tables_alike() {
    for options in small() {
        let config = config(20, 2);
        let all = each(3, Duration::from_secs(60), |group: Arc<dyn Collectives>| {
            let objective = growing(options, false);
            let mut trainer = Trainer::of_rank(&objective, &config, &initial(10), OPTIONS(), group).unwrap();
            run(&mut trainer, Batches(None), Position::default(), usize::MAX)
        });
        assert!(all.iter().all(|other| *other == all[0]), "{options:?}");
    }
}

#[test]
fn steps_of_other_preparers_are_refused() {
    let options = Options { rows: 9, ..Options::default() };
    let mut grown = trainer(&growing(options, true), 10, &config(9, 1));
    let mut preparers = [grown.preparer(), grown.preparer()];
    let [first, second] = preparers.each_mut().map(|own| own.prepare(vec![Batches(None).batch(0)]).unwrap());
    grown.step(first).unwrap();
    let error = grown.step(second).unwrap_err();
    assert!(matches!(error, TrainError::Order { expected: 2, actual: 1, .. }), "{error}");
}

/// A table with some rows replaced.
fn changed(table: &HostTensor, (rows, values): &(Vec<u32>, HostTensor)) -> HostTensor {
    let (width, values) = (table.shape()[1], values.to_f32());
    let mut all = table.to_f32();
    for (row, values) in rows.iter().zip(values.chunks(width)) {
        all[*row as usize * width..][..width].copy_from_slice(values);
    }
    HostTensor::f32(table.shape().to_vec(), &all).unwrap()
}

#[test]
fn changes_have_the_ids_of_changed_rows() {
    for (options, every) in small().into_iter().flat_map(|options| [(options, 1), (options, 5)]) {
        let (config, mut data) = (config(40, 2), Batches(None));
        let mut grown = trainer(&growing(options, true), 10, &config);
        grown.record_changes();
        let (mut tables, mut map) = (grown.states().unwrap(), MapState::new(options));
        grown.report_every(NonZeroU64::MIN);
        let mut placed = 0;
        let followed = fit(&mut grown, &mut data, Position::default(), |trainer, event| {
            if matches!(event, Event::Step(..)) && trainer.steps().is_multiple_of(every) {
                let changes = trainer.changes()?;
                placed += changes.ids["map"].placed.len();
                map.change(&changes.ids["map"]).unwrap();
                let states = trainer.states()?;
                for (name, rows) in &changes.rows {
                    tables.insert(name.clone(), changed(&tables[name], rows));
                    assert_eq!(tables[name], states[name], "{name} {options:?}");
                }
                // Except for ids that wait for admission.
                assert_eq!(map.save()[..4], map_of(&states, options).save()[..4], "{options:?}");
            }
            Ok::<_, TrainError>(ControlFlow::Continue(()))
        });
        followed.unwrap();
        assert!(placed > 9 || options.eviction == Eviction::Lfu && placed == 9, "{placed} {options:?}");
    }
}

#[test]
fn a_growing_table_is_trained_by_rows() {
    let options = Options { rows: 9, ..Options::default() };
    let scope = Scope::new();
    let pairs = scope.size("pairs");
    let x = scope.parameter("table", DType::F32, [10, 1]).gather(&scope.input("ids", DType::U32, [&pairs]));
    let graph = scope.finish(&[("loss", x.square().mean(0))]).unwrap();
    let tables = GrowingTables {
        name: "map".to_owned(),
        options,
        tables: vec!["table".to_owned()],
        inputs: vec!["ids".to_owned()],
        trains_default: true,
        initial: InitialRows::new(row),
    };
    let objective = Objective::new(graph, "loss").growing([tables]);
    let error = Trainer::new(&objective, &config(1, 1), initial(10), OPTIONS()).unwrap_err();
    let TrainError::Step(error) = error else { panic!("{error}") };
    assert!(matches!(*error, StepError::Grown { .. }), "{error}");
}
