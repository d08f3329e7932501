//! A training of ranks equals one trainer with the batches of all ranks.

use rewire_distributed::{CollectiveError, Collectives, in_process};
use rewire_graph::{DType, HostTensor, Scope, TensorSizeError};
use rewire_runtime::{Gpu, Inputs, Kernel, ModelOptions};
use rewire_train::{
    Data, DataError, Event, InitialValues, Objective, Position, Share, TrainConfig, TrainError, Trainer, fit, loss,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Rows of an epoch. With 4 ranks, the last chunk has one batch, with one row.
const ROWS: usize = 25;
const USERS: usize = 11;
const ITEMS: usize = 7;
const WIDTH: usize = 5;

/// A logit from a user and three items. Two lookups read the table of items.
pub fn objective() -> Objective {
    let scope = Scope::new();
    let pairs = scope.size("pairs");
    let table = |name: &str, rows: usize| scope.parameter(name, DType::F32, [rows, WIDTH]);
    let [users, items] = [table("user.weight", USERS), table("item.weight", ITEMS)];
    let user = users.gather(&scope.input("user", DType::U32, [&pairs]));
    let seen = scope.input("seen", DType::U32, (&pairs, 2));
    let last = items.gather(&scope.input("last", DType::U32, [&pairs]));
    let seen = items.gather(&seen).sum(1).reshape((&pairs, WIDTH));
    let x = scope.concat(&[&user, &(last + seen)], 1).matmul(&scope.parameter("hidden", DType::F32, [2 * WIDTH, 3]));
    let x = (x + scope.parameter("bias", DType::F32, [3])).tanh();
    let logit = x.matmul(&scope.parameter("out", DType::F32, [3, 1])).reshape([&pairs]);
    let label = scope.input("label", DType::F32, [&pairs]);
    let mean = loss::mean(&scope, &loss::binary_cross_entropy(&logit, &label), None);
    let objective = Objective::new(scope.finish(&[("loss", mean)]).unwrap(), "loss");
    objective.tables(["user.weight", "item.weight"]).examples("label")
}

/// A pseudorandom number for a seed and an index.
pub fn noise(seed: usize, place: usize) -> f32 {
    let x = (seed * 7919 + place * 104_729 + 13) as f32;
    (x * 0.618_034).fract() - 0.5
}

struct Rows {
    batch_size: usize,
    /// The position of a batch that cannot be read.
    unreadable: Option<usize>,
}

impl Data for Rows {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        let rows: Vec<usize> = (0..ROWS).map(|row| row * 3 + epoch as usize * 5).collect();
        let batches: Vec<Vec<usize>> = rows.chunks(self.batch_size).map(<[usize]>::to_vec).collect();
        let unreadable = self.unreadable;
        Box::new(batches.into_iter().enumerate().map(move |(position, rows)| match unreadable {
            Some(batch) if batch == position => Err("it is damaged".into()),
            _ => Ok(inputs(&rows)),
        }))
    }
}

pub fn inputs(rows: &[usize]) -> Inputs {
    let ids =
        |factor: usize, count: usize| rows.iter().map(|row| ((row * factor + 1) % count) as u32).collect::<Vec<_>>();
    let seen: Vec<u32> = ids(5, ITEMS).into_iter().zip(ids(2, ITEMS)).flat_map(|(a, b)| [a, b]).collect();
    let labels: Vec<f32> = rows.iter().map(|row| if noise(3, *row) > 0.0 { 1.0 } else { 0.0 }).collect();
    Inputs::new()
        .with("user", HostTensor::vector(&ids(4, USERS)))
        .with("last", HostTensor::vector(&ids(3, ITEMS)))
        .with("seen", HostTensor::u32([rows.len(), 2], &seen).unwrap())
        .with("label", HostTensor::vector(&labels))
}

pub fn initial(name: &str) -> Option<HostTensor> {
    let shape = match name {
        "user.weight" => vec![USERS, WIDTH],
        "item.weight" => vec![ITEMS, WIDTH],
        "hidden" => vec![2 * WIDTH, 3],
        "bias" => vec![3],
        "out" => vec![3, 1],
        _ => return None,
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|place| noise(name.len(), place)).collect();
    HostTensor::f32(shape, &values).ok()
}

/// A configuration with additional keys.
pub fn config(keys: Value) -> TrainConfig {
    let mut config = json!({
        "batch_size": 2, "epochs": 3,
        "dense_optimizer": { "adam_optimizer": { "lr": 0.02 } },
        "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.1, "initial_accumulator_value": 0.1 } },
    });
    config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    TrainConfig::from_json(&config.to_string()).unwrap()
}

/// Losses of steps, and states by name.
#[derive(Debug, PartialEq)]
struct Trained {
    losses: Vec<f64>,
    states: BTreeMap<String, HostTensor>,
    averages: BTreeMap<String, HostTensor>,
    position: Position,
}

pub const OPTIONS: fn() -> ModelOptions = || ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };

fn run(trainer: &mut Trainer, mut data: Rows, from: Position, steps: Option<u64>) -> Result<Trained, TrainError> {
    let mut losses = vec![];
    let fitted = fit(trainer, &mut data, from, |_, event| {
        if let Event::Step(report, _) = event {
            losses.push(report.loss);
        }
        let is_over = steps.is_some_and(|steps| losses.len() as u64 == steps);
        Ok::<_, TrainError>(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(Trained { losses, states: trainer.states()?, averages: trainer.averages()?, position: fitted.position })
}

fn rows(batch_size: usize) -> Rows {
    Rows { batch_size, unreadable: None }
}

/// The results of one trainer with `batch_size` rows per batch.
fn alone(config: &TrainConfig, batch_size: usize) -> Trained {
    alone_on(OPTIONS(), config, batch_size)
}

fn alone_on(options: ModelOptions, config: &TrainConfig, batch_size: usize) -> Trained {
    let mut trainer = Trainer::new(&objective(), config, initial, options).unwrap();
    run(&mut trainer, rows(batch_size), Position::default(), None).unwrap()
}

/// The results of all ranks of a training with two rows per batch, resumed from `begin` if it is set.
fn of_ranks(
    ranks: usize,
    config: &TrainConfig,
    begin: Option<(u64, &Trained)>,
    steps: Option<u64>,
) -> Vec<Result<Trained, TrainError>> {
    of_ranks_on(&OPTIONS(), ranks, config, begin, steps)
}

fn of_ranks_on(
    options: &ModelOptions,
    ranks: usize,
    config: &TrainConfig,
    begin: Option<(u64, &Trained)>,
    steps: Option<u64>,
) -> Vec<Result<Trained, TrainError>> {
    each(ranks, TIMEOUT, |group| {
        let mut trainer = Trainer::of_rank(&objective(), config, &initial, options.clone(), group)?;
        let from = begin.map(|(done, trained)| {
            trainer.resume(done, |name| trained.states.get(name).cloned()).map(|()| trained.position)
        });
        run(&mut trainer, rows(2), from.transpose()?.unwrap_or_default(), steps)
    })
}

pub fn each<T: Send>(ranks: usize, timeout: Duration, run: impl Fn(Arc<dyn Collectives>) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads = in_process(ranks, timeout).into_iter().map(|rank| scope.spawn(|| run(Arc::new(rank))));
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The results of the ranks, which must be equal.
fn trained(ranks: usize, config: &TrainConfig) -> Trained {
    trained_on(&OPTIONS(), ranks, config)
}

fn trained_on(options: &ModelOptions, ranks: usize, config: &TrainConfig) -> Trained {
    let all = of_ranks_on(options, ranks, config, None, None);
    let mut all: Vec<Trained> = all.into_iter().map(Result::unwrap).collect();
    let last = all.pop().unwrap();
    assert!(all.iter().all(|other| *other == last), "ranks differ");
    last
}

fn assert_near(actual: &Trained, expected: &Trained, what: &str) {
    assert_eq!(actual.losses.len(), expected.losses.len(), "{what}");
    for (step, (a, b)) in actual.losses.iter().zip(&expected.losses).enumerate() {
        assert!((a - b).abs() < 1e-6, "{what}: step {step}: {a}, not {b}");
    }
    for (own, others) in [(&actual.states, &expected.states), (&actual.averages, &expected.averages)] {
        for (name, tensor) in own {
            let other = others[name].to_f32();
            let worst = tensor.to_f32().iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-5, "{what}: `{name}` differs by {worst}");
        }
    }
}

#[test]
fn ranks_train_as_one_trainer_with_the_batches_of_all() {
    let all = [
        json!({}),
        json!({ "dense_optimizer": { "sgd_optimizer": { "lr": 0.1, "momentum": 0.9 } },
                "sparse_optimizer": { "adam_optimizer": { "lr": 0.02 } } }),
        json!({ "grad_clipping": { "clipping_type": "norm", "max_gradient": 0.05 }, "ema": { "decay": 0.9 } }),
        json!({ "gradient_accumulation_steps": 3 }),
        json!({ "gradient_accumulation_steps": 2, "fused_tables": true }),
        json!({ "mixed_precision": "FP16", "grad_scaler": { "init_scale": 1024.0, "growth_interval": 3 } }),
    ];
    for keys in all {
        let config = config(keys.clone());
        for ranks in [2, 4] {
            let expected = alone(&config, 2 * ranks);
            assert!(expected.losses.last() < expected.losses.first(), "{keys}");
            assert_near(&trained(ranks, &config), &expected, &format!("{ranks} ranks, {keys}"));
        }
    }
}

/// A device; `None` if there is none.
fn device() -> Option<ModelOptions> {
    let gpu = Some(Gpu::open(None).ok()?);
    Some(ModelOptions { kernel: Kernel::Wgpu, gpu, checked: true, ..ModelOptions::default() })
}

#[test]
fn ranks_train_on_a_device_as_one_trainer_there() {
    let Some(device) = device() else { return };
    let all = [
        json!({ "gradient_accumulation_steps": 3, "sparse_optimizer": { "adam_optimizer": { "lr": 0.02 } },
                "grad_clipping": { "clipping_type": "norm", "max_gradient": 0.05 }, "ema": { "decay": 0.9 } }),
        json!({ "mixed_precision": "FP16", "grad_scaler": { "init_scale": 1024.0, "growth_interval": 3 } }),
    ];
    for keys in all {
        let config = config(keys.clone());
        let found = trained_on(&device, 2, &config);
        assert_near(&found, &alone_on(device.clone(), &config, 4), &keys.to_string());
        let divided = TrainConfig { sharding: rewire_train::config::Sharding::RowWise, ..config.clone() };
        assert_near(&trained_on(&device, 2, &divided), &found, &format!("row_wise, {keys}"));
    }
    // A resumed training continues with the same bits, and a rank on the CPU exchanges with one on a device.
    let config = config(json!({ "epochs": 1 }));
    let whole = trained_on(&device, 2, &config);
    let begun = of_ranks_on(&device, 2, &config, None, Some(3)).remove(0).unwrap();
    let rest = of_ranks_on(&device, 2, &config, Some((3, &begun)), None).remove(0).unwrap();
    assert_eq!((&rest.losses[..], &rest.states), (&whole.losses[3..], &whole.states));
    let mixed = each(2, TIMEOUT, |group| {
        let options = if group.rank() == 0 { OPTIONS() } else { device.clone() };
        let mut trainer = Trainer::of_rank(&objective(), &config, &initial, options, group).unwrap();
        run(&mut trainer, rows(2), Position::default(), None).unwrap()
    });
    mixed.iter().for_each(|rank| assert_near(rank, &whole, "a rank on the CPU"));
}

#[test]
fn ranks_give_equal_bits_from_run_to_run_however_tables_are_divided() {
    let plain = trained(4, &config(json!({})));
    assert_eq!(trained(4, &config(json!({}))), plain);
    for sharding in ["table_wise", "row_wise"] {
        assert_eq!(trained(4, &config(json!({ "sharding": sharding }))), plain, "{sharding}");
        assert_eq!(trained(3, &config(json!({ "sharding": sharding }))), trained(3, &config(json!({}))), "{sharding}");
    }
}

#[test]
fn a_training_is_resumed_by_another_number_of_ranks() {
    let config = config(json!({ "ema": { "decay": 0.9 }, "sharding": "row_wise" }));
    let begun = of_ranks(4, &config, None, Some(2)).remove(0).unwrap();
    assert_eq!(begun.position, Position { epoch: 0, batch: 8 });
    // With the same number of ranks, results equal those of a training without interruption.
    let whole = trained(4, &config);
    let rest = of_ranks(4, &config, Some((2, &begun)), None).remove(0).unwrap();
    assert_eq!((&rest.losses[..], &rest.states), (&whole.losses[2..], &whole.states));
    // With another number of ranks it continues at the same row, as one trainer with larger batches.
    let rest = of_ranks(2, &config, Some((2, &begun)), None).remove(0).unwrap();
    let mut alone = Trainer::new(&objective(), &config, initial, OPTIONS()).unwrap();
    alone.resume(2, |name| begun.states.get(name).cloned()).unwrap();
    let from = Position { epoch: 0, batch: 4 };
    assert_near(&rest, &run(&mut alone, rows(4), from, None).unwrap(), "after a resume");
}

#[test]
fn tables_in_files_train_as_those_in_memory() {
    let adam = json!({ "sparse_optimizer": { "adam_optimizer": { "lr": 0.02 } }, "gradient_accumulation_steps": 2 });
    for keys in [json!({}), adam] {
        let in_memory = config(keys);
        let folder = Some(std::env::temp_dir());
        let in_files = TrainConfig { tables_folder: folder.clone(), ..in_memory.clone() };
        let expected = of_ranks(1, &in_memory, None, None).remove(0).unwrap();
        let found = alone(&in_files, 2);
        assert_eq!(found, expected);
        assert_near(&found, &alone(&in_memory, 2), "as one trainer");
        // A tensor read from a state does not change with later steps, and a training can be resumed.
        let mut trainer = Trainer::new(&objective(), &in_files, initial, OPTIONS()).unwrap();
        let begun = run(&mut trainer, rows(2), Position::default(), Some(2)).unwrap();
        let kept = begun.states["item.weight"].to_f32();
        run(&mut trainer, rows(2), begun.position, Some(1)).unwrap();
        assert_eq!(begun.states["item.weight"].to_f32(), kept);
        let mut resumed = Trainer::new(&objective(), &in_files, initial, OPTIONS()).unwrap();
        resumed.resume(2, |name| begun.states.get(name).cloned()).unwrap();
        let rest = run(&mut resumed, rows(2), begun.position, None).unwrap();
        assert_eq!((&rest.losses[..], &rest.states), (&expected.losses[2..], &expected.states));
        let sharded =
            TrainConfig { tables_folder: folder, sharding: rewire_train::config::Sharding::RowWise, ..in_memory };
        assert_near(&trained(2, &sharded), &alone(&in_files, 4), "ranks");
    }
    let nowhere = TrainConfig { tables_folder: Some("/nowhere".into()), ..config(json!({})) };
    let refused = Trainer::new(&objective(), &nowhere, initial, OPTIONS()).map(drop);
    assert!(matches!(refused, Err(TrainError::Folder { .. })), "{refused:?}");
}

#[test]
fn a_rank_that_ends_ends_the_others() {
    let config = config(json!({}));
    let all = each(3, TIMEOUT, |group| {
        let unreadable = (group.rank() == 1).then_some(4);
        let mut trainer = Trainer::of_rank(&objective(), &config, &initial, OPTIONS(), group)?;
        run(&mut trainer, Rows { unreadable, ..rows(2) }, Position::default(), None)
    });
    assert!(matches!(all[1], Err(TrainError::Data(_))), "{all:?}");
    for rank in [0, 2] {
        assert!(matches!(all[rank], Err(TrainError::Ranks(CollectiveError::Lost { rank: 1 }))), "{all:?}");
    }
}

#[test]
fn an_id_outside_of_its_table_is_an_error_of_a_rank() {
    let found = each(1, TIMEOUT, |group| {
        let trainer = Trainer::of_rank(&objective(), &config(json!({})), &initial, OPTIONS(), group).unwrap();
        let prepare =
            |last: u32| trainer.preparer().prepare(vec![inputs(&[1, 2]).with("last", HostTensor::vector(&[3, last]))]);
        (prepare(ITEMS as u32 - 1).is_ok(), prepare(ITEMS as u32).map(drop))
    });
    assert!(matches!(found[..], [(true, Err(TrainError::Id { id: 7, rows: ITEMS }))]), "{found:?}");
}

/// Initial values that provide tables only as ranges of rows.
struct Parts;

impl InitialValues for Parts {
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        assert!(!name.ends_with(".weight"), "the whole of {name} is asked for");
        Ok(initial(name))
    }

    fn rows(&self, name: &str, shape: &[usize], rows: Range<usize>) -> Result<Option<HostTensor>, TensorSizeError> {
        assert!(rows.len() <= shape[0].div_ceil(4), "{rows:?} of {name}");
        initial.rows(name, shape, rows)
    }
}

#[test]
fn ranks_hold_and_pass_on_parts_of_divided_tables() {
    let config = config(json!({ "sharding": "row_wise", "epochs": 1 }));
    let whole = trained(4, &config).states;
    let all = each(4, TIMEOUT, |group| {
        let mut trainer = Trainer::of_rank(&objective(), &config, &Parts, OPTIONS(), group.clone()).unwrap();
        fit(&mut trainer, &mut rows(2), Position::default(), |_, _| Ok::<_, TrainError>(ControlFlow::Continue(())))
            .unwrap();
        trainer.check_parameters().unwrap();
        assert!(trainer.is_divided());
        let mut streamed: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        for (name, _) in trainer.state_shapes() {
            let elements = streamed.entry(name.to_owned()).or_default();
            let mut take = |part: &HostTensor| {
                elements.extend(part.to_f32());
                Ok(())
            };
            trainer.stream(name, &mut take).unwrap();
        }
        let held = trainer.held().into_iter().filter(|held| held.moment.is_none() && held.parameter == "user.weight");
        let held = held.map(|held| (held.rows.clone(), held.part(held.rows.clone()).unwrap().to_f32()));
        (streamed, held.collect::<Vec<_>>(), trainer.held().len())
    });
    let expected: BTreeMap<String, Vec<f32>> =
        whole.iter().map(|(name, state)| (name.clone(), state.to_f32())).collect();
    assert_eq!(all[0].0, expected);
    assert!(all[1..].iter().all(|(streamed, ..)| streamed.values().all(Vec::is_empty)));
    // Two tables with a moment each.
    assert!(all.iter().all(|(_, held, count)| held.len() == 1 && *count == 4));
    let users: Vec<f32> = all.iter().flat_map(|(_, held, _)| held[0].1.clone()).collect();
    assert_eq!(users, expected["user.weight"]);
    assert_eq!(all.iter().map(|(_, held, _)| held[0].0.len()).collect::<Vec<_>>(), [3, 3, 3, 2]);
}

#[test]
fn a_rank_uses_its_share_of_the_batches() {
    for (from, ranks) in [(0, 1), (0, 3), (5, 3), (13, 4), (40, 2)] {
        let rest = ROWS.div_ceil(2).saturating_sub(from as usize);
        let mut users = vec![vec![]; rest];
        for rank in 0..ranks {
            let mut data = rows(2);
            let share: Vec<_> = data.share(1, Share { from, rank, ranks }).map(Result::unwrap).collect();
            assert_eq!(share.len(), rest, "{from}, {ranks}");
            let own = users.iter_mut().zip(&share).filter(|(_, batch)| batch.is_some());
            own.for_each(|(users, _)| users.push(rank));
        }
        assert_eq!(users, (0..rest as u64).map(|position| vec![position % ranks]).collect::<Vec<_>>());
    }
}
