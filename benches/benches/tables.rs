//! Maps from raw ids to rows, and training steps of tables that grow.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rewire::graph::{DType, HostTensor, Ragged, Scope};
use rewire::prelude::{Inputs, Kernel, ModelOptions};
use rewire::train::tables::{Eviction, IdMap, MapState, Options, Rows};
use rewire::train::{GrowingTables, InitialRows, Objective, Preparer, TrainConfig, Trainer, loss};
use std::time::Instant;

/// Ids of a map.
const IDS: i64 = 4_000_000;
/// Lookups that are timed together.
const LOOKUPS: usize = 10_000;

/// Rows of the trained table, and its columns.
const ROWS: u32 = 1 << 18;
const WIDTH: usize = 32;
/// Rows of a batch, and ids of each.
const BATCH: usize = 4096;
const BAG: usize = 16;
const BATCHES: usize = 64;
/// Steps that are timed together.
const STEPS: u64 = 16;

/// Numbers that look random, equal on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 20
    }
}

fn id(number: i64) -> i64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// CPU time of this process, which other processes do not change as much as the time on the clock.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split(' ');
    fields.skip(12).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn lookups(criterion: &mut Criterion) {
    let before = resident();
    let options = Options { rows: IDS as u32, eviction: Eviction::Lru, ..Options::default() };
    let (mut map, mut state) = (IdMap::new(options), MapState::new(options));
    for step in 0..IDS / 100_000 {
        state.apply(&map.step(&(step * 100_000..(step + 1) * 100_000).map(id).collect::<Vec<_>>()));
    }
    let bytes = (resident() - before) as f64 / IDS as f64;
    println!("a map in training takes {bytes:.1} bytes a row of {IDS}");
    let before = resident();
    let rows = Rows::from(&state);
    println!("a served map takes {:.1} bytes a row", (resident() - before) as f64 / IDS as f64);
    assert!(rows.row(id(IDS - 1)).is_some());
    let mut noise = Noise(1);
    let hot: Vec<i64> = (0..LOOKUPS).map(|_| id((noise.next() % 1000) as i64)).collect();
    let mut group = criterion.benchmark_group(format!("ids to rows, of {IDS}"));
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    let found = |ids: &[i64]| ids.iter().filter_map(|id| rows.row(*id)).map(u64::from).sum::<u64>();
    group.bench_function("hot", |bencher| bencher.iter(|| found(&hot)));
    let mut draw = |most: i64| (0..LOOKUPS).map(|_| id((noise.next() as i64) % most)).collect::<Vec<i64>>();
    group
        .bench_function("cold", |bencher| bencher.iter_batched(|| draw(IDS), |ids| found(&ids), BatchSize::LargeInput));
    group.bench_function("without a row", |bencher| {
        let absent = |ids: Vec<i64>| ids.into_iter().map(|id| id ^ 1).collect::<Vec<i64>>();
        bencher.iter_batched(|| absent(draw(IDS)), |ids| found(&ids), BatchSize::LargeInput);
    });
    let mut next = IDS;
    group.bench_function("new ids that evict others", |bencher| {
        bencher.iter_batched(
            || {
                next += LOOKUPS as i64;
                (next..next + LOOKUPS as i64).map(id).collect::<Vec<_>>()
            },
            |ids| map.step(&ids).placed.len(),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// A sum of rows, a hidden layer and a logit.
fn objective(rows: usize) -> Objective {
    let scope = Scope::new();
    let bags: Ragged = scope.lengths("lengths", scope.size("rows"));
    let ids = scope.input("ids", DType::U32, [&bags.total]);
    let x = scope.parameter("table", DType::F32, [rows, WIDTH]).gather(&ids).jagged_sum(&bags);
    let x = x.matmul(&scope.parameter("hidden", DType::F32, [WIDTH, 64])).tanh();
    let logit = x.matmul(&scope.parameter("out", DType::F32, [64, 1]));
    let label = scope.input("label", DType::F32, [logit.dim(0)]);
    let logit = logit.reshape([label.dim(0)]);
    let mean = loss::mean(&scope, &loss::binary_cross_entropy(&logit, &label), None);
    Objective::new(scope.finish(&[("loss", mean)]).unwrap(), "loss").tables(["table"])
}

fn initial(rows: usize) -> impl Fn(&str) -> Option<HostTensor> + Sync {
    move |name| {
        let shape = match name {
            "table" => vec![rows, WIDTH],
            "hidden" => vec![WIDTH, 64],
            _ => vec![64, 1],
        };
        let mut noise = Noise(name.len() as u64);
        HostTensor::generate(shape, move || (noise.next() % 1000) as f32 / 5000.0 - 0.1).ok()
    }
}

/// Batches with raw ids, or with rows. One id of twenty is new, others are the more frequent the smaller they are.
struct Batches(Vec<Inputs>);

impl Batches {
    fn new(grows: bool) -> Self {
        let (mut noise, mut new) = (Noise(7), 1 << 40);
        let mut draw = |_| {
            let number = match noise.next() % 20 {
                0 => {
                    new += 1;
                    new
                }
                _ => ((noise.next() % 1000 * (noise.next() % 1000)) % i64::from(ROWS) as u64) as i64,
            };
            id(number)
        };
        let batch = |_| {
            let ids: Vec<i64> = (0..BATCH * BAG).map(&mut draw).collect();
            let values = match grows {
                true => HostTensor::vector(&ids),
                false => {
                    HostTensor::vector(&ids.iter().map(|id| (*id as u64 % u64::from(ROWS)) as u32).collect::<Vec<_>>())
                }
            };
            let labels: Vec<f32> = ids.chunks(BAG).map(|ids| (ids[0] & 1) as f32).collect();
            Inputs::new()
                .with("ids", values)
                .with("lengths", HostTensor::lengths(&[BAG as i64; BATCH]))
                .with("label", HostTensor::vector(&labels))
        };
        Self((0..BATCHES).map(batch).collect())
    }
}

/// A training of a fixed or a growing table.
struct Training {
    trainer: Trainer,
    preparer: Preparer,
    batches: Batches,
}

impl Training {
    fn new(grows: bool) -> Self {
        let config = r#"{ "batch_size": 4096, "epochs": 1000000, "dense_optimizer": { "adam_optimizer": { "lr": 0.001 } },
                          "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.01 } } }"#;
        let config = TrainConfig::from_json(config).unwrap();
        let options = Options { rows: ROWS - 1, eviction: Eviction::Lru, ..Options::default() };
        let growing = grows.then(|| GrowingTables {
            name: "map".to_owned(),
            options,
            tables: vec!["table".to_owned()],
            inputs: vec!["ids".to_owned()],
            trains_default: true,
            initial: InitialRows::new(|_, row| vec![row as f32 * 1e-9; WIDTH]),
        });
        let objective = objective(ROWS as usize).growing(growing);
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let trainer = Trainer::new(&objective, &config, initial(ROWS as usize), on_cpu).unwrap();
        let mut own = Self { preparer: trainer.preparer(), batches: Batches::new(grows), trainer };
        // All rows are taken, so that new ids evict others.
        for _ in 0..BATCHES as u64 / STEPS {
            own.step_seconds();
        }
        own
    }

    /// CPU time of a step, among a few.
    fn step_seconds(&mut self) -> f64 {
        let used = cpu_seconds();
        for _ in 0..STEPS {
            let batch = self.batches.0[self.trainer.steps() as usize % BATCHES].clone();
            self.trainer.step(self.preparer.prepare(vec![batch]).unwrap()).unwrap();
        }
        (cpu_seconds() - used) / STEPS as f64
    }
}

/// Steps of both kinds in turns, since other programs slow both down alike.
fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("{STEPS} steps of {BATCH} x {BAG} ids, {ROWS} rows of {WIDTH}"));
    group.sample_size(30);
    let mut trainings = [false, true].map(Training::new);
    let mut used = vec![];
    group.bench_function("with a fixed and with a growing table", |bencher| {
        bencher.iter_custom(|count| {
            let start = Instant::now();
            used.extend((0..count).map(|_| trainings.each_mut().map(Training::step_seconds)));
            start.elapsed()
        });
    });
    group.finish();
    // Sums, since the system counts CPU time in ticks of 10 ms.
    let [fixed, growing] = [0, 1].map(|kind| used.iter().map(|used: &[f64; 2]| used[kind]).sum::<f64>());
    let each = used.len().max(1) as f64 / 1e3;
    println!(
        "ms of CPU time a step: fixed {:.2}, growing {:.2}; ratio {:.3}",
        fixed / each,
        growing / each,
        growing / fixed
    );
    let [_, Training { trainer, .. }] = &trainings;
    trainer.id_maps().for_each(|(_, map)| println!("the map has {} ids", map.ids().count()));
}

criterion_group!(tables, lookups, steps);
criterion_main!(tables);
