//! Figures of large tables: training and serving of a table in a file, and latency while deltas are applied.
//!
//! ```sh
//! cargo run --release -p rewire --example tables -- FOLDER [GIB] [SECONDS]
//! ```
//!
//! The folder needs disk space for the table. Run the program in a group with limited memory: it never holds the whole
//! table in memory.

use rewire::Tables;
use rewire::delta::{Delta, ModelVersion};
use rewire::graph_rewrite::plan::Plan;
use rewire::prelude::*;
use rewire::runtime::{Mapping, ParameterUpdate, block_on, read_file};
use rewire::train::tables::{Eviction, IdMap, MapChanges, MapRecorder, MapState, Options, Rows};
use rewire::train::{Objective, TrainConfig, Trainer, loss};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WIDTH: usize = 64;
/// Rows of a batch, and ids of a row.
const ROWS: usize = 512;
const IDS: usize = 8;
/// Ids of hot lookups.
const HOT: u64 = 100_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 20) % bound
    }

    /// A batch with as many distinct ids, spread over the table.
    fn ids(&mut self, count: u64, height: usize) -> Result<HostTensor> {
        let step = height as u64 / count;
        let ids: Vec<u32> = (0..ROWS * IDS).map(|_| (self.below(count) * step) as u32).collect();
        Ok(HostTensor::u32([ROWS, IDS], &ids)?)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().ok_or("expected a folder")?);
    let number = |at: usize, other: f64| arguments.get(at).map_or(Ok(other), |text| text.parse());
    let (gib, seconds) = (number(1, 10.0)?, Duration::from_secs_f64(number(2, 10.0)?));
    let height = (gib * f64::from(1 << 30)) as usize / (WIDTH * 4);
    let file = folder.join("model.safetensors");
    println!("{height} rows of {WIDTH} floats, {:.2} GB", (height * WIDTH * 4) as f64 / 1e9);
    let begun = Instant::now();
    write(&file, height)?;
    println!("wrote the weights in {:.0} s{}", begun.elapsed().as_secs_f64(), memory());
    let served = serve(&file, height, seconds);
    std::fs::remove_file(&file)?;
    served?;
    train(&folder, height, seconds)?;
    serve_on_device(seconds)?;
    deltas(seconds)
}

/// Logits of sums of rows of the table.
fn logits(scope: &Scope, height: usize) -> Tensor {
    let ids = scope.input("ids", DType::U32, (scope.size("rows"), IDS));
    let rows = scope.parameter("table", DType::F32, [height, WIDTH]).gather(&ids).sum(1);
    let rows = rows.reshape((ids.dim(0), WIDTH));
    rows.matmul(&scope.parameter("out", DType::F32, [WIDTH, 1])).reshape([ids.dim(0)])
}

fn out() -> Result<HostTensor> {
    Ok(HostTensor::f32([WIDTH, 1], &(0..WIDTH).map(|n| (n % 7) as f32 * 0.1 - 0.3).collect::<Vec<_>>())?)
}

fn options() -> ModelOptions {
    ModelOptions { kernel: Kernel::Cpu, tables: Tables::Host, ..ModelOptions::default() }
}

fn plan(height: usize) -> Result<Plan> {
    let scope = Scope::new();
    let logit = logits(&scope, height);
    Ok(rewire::lower(&rewire::optimize(scope.finish(&[("logit", logit)])?)?.0)?)
}

/// Trains from zeros.
fn train(folder: &Path, height: usize, seconds: Duration) -> Result<()> {
    let scope = Scope::new();
    let logit = logits(&scope, height);
    let label = scope.input("label", DType::F32, [logit.dim(0)]);
    let mean = loss::mean(&scope, &loss::binary_cross_entropy(&logit, &label), None);
    let objective = Objective::new(scope.finish(&[("loss", mean)])?, "loss").tables(["table"]).examples("label");
    let config = TrainConfig::from_json(
        r#"{ "batch_size": 512, "steps": 1000000000, "dense_optimizer": { "adam_optimizer": { "lr": 0.01 } },
             "sparse_optimizer": { "rowwise_adagrad_optimizer": { "lr": 0.05 } } }"#,
    )?;
    let config = TrainConfig { tables_folder: Some(folder.to_owned()), ..config };
    // A file without content, which reads as zeros.
    let zeros = folder.join("zeros");
    File::create(&zeros)?.set_len((height * WIDTH * 4) as u64)?;
    let content = read_file(&zeros, Mapping::Large)?.bytes().clone();
    let given = HostTensor::from_shared(DType::F32, vec![height, WIDTH], content)?;
    let (begun, dense) = (Instant::now(), out()?);
    let initial = |name: &str| Some(if name == "out" { dense.clone() } else { given.clone() });
    let mut trainer = Trainer::new(&objective, &config, initial, options())?;
    drop(given);
    std::fs::remove_file(&zeros)?;
    println!("training began after {:.0} s{}", begun.elapsed().as_secs_f64(), memory());
    let mut preparer = trainer.preparer();
    for (what, count) in [("cold", height as u64), ("hot", HOT.min(height as u64))] {
        let mut noise = Noise(1);
        let mut step = || -> Result<()> {
            let labels: Vec<f32> = (0..ROWS).map(|_| noise.below(2) as f32).collect();
            let batch = Inputs::new().with("ids", noise.ids(count, height)?).with("label", HostTensor::vector(&labels));
            trainer.step(preparer.prepare(vec![batch])?)?;
            Ok(())
        };
        measure(seconds, &mut step)?;
        report(&format!("training, {what} rows"), &measure(seconds, step)?, "rows looked up and updated");
    }
    Ok(())
}

/// Writes weights in parts.
fn write(file: &Path, height: usize) -> Result<()> {
    let (rest, dense) = (height * WIDTH * 4, out()?);
    let entry = |name: &str, shape: [usize; 2], start: usize| {
        let end = start + shape[0] * shape[1] * 4;
        format!(r#""{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
    };
    let entries = [entry("out", [WIDTH, 1], 0), entry("table", [height, WIDTH], WIDTH * 4)];
    let mut header = format!("{{{}}}", entries.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut written = File::create(file)?;
    written.write_all(&(header.len() as u64).to_le_bytes())?;
    written.write_all(&header)?;
    written.write_all(dense.bytes())?;
    let mut noise = Noise(6);
    let floats: Vec<u8> = (0..1 << 18).flat_map(|_| (noise.below(1000) as f32 / 1000.0).to_le_bytes()).collect();
    for start in (0..rest).step_by(floats.len()) {
        written.write_all(&floats[..floats.len().min(rest - start)])?;
    }
    Ok(written.sync_all()?)
}

/// Looks up rows of a mapped file, with and without a cache of hot rows.
fn serve(file: &Path, height: usize, seconds: Duration) -> Result<()> {
    let weights = Weights::read(file)?;
    for hot_row_bytes in [0, 256 << 20] {
        let model = Model::load(plan(height)?, &weights, ModelOptions { hot_row_bytes, ..options() })?;
        look_up(&model, height, &format!("{} MiB of copies", hot_row_bytes >> 20), seconds)?;
    }
    Ok(())
}

/// Looks up rows of a table of 256 MiB on the host for a device, without and with rows that the device keeps.
fn serve_on_device(seconds: Duration) -> Result<()> {
    let height = 1 << 20;
    let Some(gpu) = Gpu::for_kernel(Kernel::Auto, None)? else {
        println!("no device");
        return Ok(());
    };
    let table = HostTensor::f32([height, WIDTH], &vec![0.5; height * WIDTH])?;
    for device_row_bytes in [0, 64 << 20] {
        let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), device_row_bytes, ..options() };
        let model = Model::load(plan(height)?, [("table", table.clone()), ("out", out()?)], options)?;
        look_up(&model, height, &format!("{} MiB on {}", device_row_bytes >> 20, gpu.name()), seconds)?;
        println!("  {:?}", model.device_row_use());
    }
    Ok(())
}

/// Runs of random rows, of a few rows, and of both in turns.
fn look_up(model: &Model, height: usize, what: &str, seconds: Duration) -> Result<()> {
    let (mut session, all, few) = (model.session(), height as u64, HOT.min(height as u64));
    for (rows, counts) in [("cold", [all; 2]), ("half hot", [all, few]), ("hot", [few; 2])] {
        let (mut noise, mut run) = (Noise(2), 0);
        let mut step = || -> Result<()> {
            run += 1;
            session.run(&Inputs::new().with("ids", noise.ids(counts[run % 2], height)?))?;
            Ok(())
        };
        measure(seconds, &mut step)?;
        report(&format!("serving, {rows} rows, {what}"), &measure(seconds, step)?, "lookups");
    }
    Ok(())
}

/// Runs a model with a table of 256 MiB while deltas of 1000 rows are applied, with fixed rows and with rows of ids.
fn deltas(seconds: Duration) -> Result<()> {
    let height = 1 << 20;
    let table = HostTensor::f32([height, WIDTH], &vec![0.5; height * WIDTH])?;
    for tables in [Tables::Device, Tables::Host] {
        let load = || -> Result<Model> {
            let parameters = [("table", table.clone()), ("out", out()?)];
            Ok(Model::load(plan(height)?, parameters, ModelOptions { tables, ..options() })?)
        };
        let mut noise = Noise(5);
        let draw = || Ok((0..1000).map(|_| noise.below(height as u64) as u32).collect());
        let update = |model: &Model, rows: Vec<u32>| Ok(model.update(changes(rows)?)?);
        latency(&format!("table on {tables}"), (&load()?, height, seconds), draw, update)?;
        let (model, mut ids) = (load()?, NewIds::new(height));
        let none = BTreeMap::<String, ParameterUpdate>::new();
        block_on(model.update_attached_async(none, Arc::new(Rows::from(&ids.state))))?;
        let update = |model: &Model, delta: MapChanges| {
            let rows = model.attachment::<Rows>().ok_or("the model has no ids")?.with(&delta.placed)?;
            let changed = delta.placed.iter().map(|placed| placed.row).collect();
            Ok(block_on(model.update_attached_async(changes(changed)?, Arc::new(rows)))?)
        };
        latency(&format!("growing table on {tables}"), (&model, height, seconds), || Ok(ids.delta()), update)?;
    }
    Ok(())
}

/// A map whose every step has 1000 new ids, which evict others.
struct NewIds {
    map: IdMap,
    state: MapState,
    next: i64,
}

impl NewIds {
    /// Row `n` has id [`raw`]`(n)`; the last row is that of all other ids.
    fn new(height: usize) -> Self {
        let options = Options { rows: height as u32 - 1, eviction: Eviction::Lru, ..Options::default() };
        let (mut map, mut state, next) = (IdMap::new(options), MapState::new(options), height as i64 - 1);
        for id in (0..next).collect::<Vec<_>>().chunks(1000) {
            state.apply(&map.step(&id.iter().map(|number| raw(*number)).collect::<Vec<_>>()));
        }
        Self { map, state, next }
    }

    fn delta(&mut self) -> MapChanges {
        let (ids, mut recorder): (Vec<i64>, _) =
            ((self.next..self.next + 1000).map(raw).collect(), MapRecorder::default());
        self.next += 1000;
        let step = self.map.step(&ids);
        recorder.record(&step);
        self.state.apply(&step);
        recorder.take(&self.state)
    }
}

fn raw(number: i64) -> i64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)
}

/// New values of rows, as a delta holds them.
fn changes(rows: Vec<u32>) -> Result<BTreeMap<String, ParameterUpdate>> {
    let values = HostTensor::f32([rows.len(), WIDTH], &vec![0.25; rows.len() * WIDTH])?;
    let changes = BTreeMap::from([("table".to_owned(), ParameterUpdate::Rows { rows, values })]);
    let delta = Delta::new(ModelVersion::base(&BTreeMap::new()), 0, changes.into())?.0;
    Ok(delta.changes().parameters.clone())
}

/// The times of runs, alone and while 100 deltas that `prepare` makes are applied.
fn latency<D>(
    what: &str,
    (model, height, seconds): (&Model, usize, Duration),
    mut prepare: impl FnMut() -> Result<D>,
    update: impl Fn(&Model, D) -> Result<()>,
) -> Result<()> {
    let (mut session, mut noise) = (model.session(), Noise(3));
    measure(seconds / 4, || run(&mut session, &mut noise, height))?;
    let alone = measure(seconds / 2, || run(&mut session, &mut noise, height))?;
    drop(session);
    report(&format!("{what}, without deltas"), &alone, "lookups");
    let (is_done, mut took) = (AtomicBool::new(false), vec![]);
    let during = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let (mut session, mut noise, mut times) = (model.session(), Noise(4), vec![]);
            while !is_done.load(Ordering::Acquire) {
                let begun = Instant::now();
                run(&mut session, &mut noise, height).map_err(|error| error.to_string())?;
                times.push(begun.elapsed());
            }
            Ok::<_, String>(times)
        });
        let mut apply = || -> Result<()> {
            let delta = prepare()?;
            let begun = Instant::now();
            update(model, delta)?;
            took.push(begun.elapsed());
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        };
        let applied = (0..100).try_for_each(|_| apply());
        is_done.store(true, Ordering::Release);
        applied?;
        let times = running.join().unwrap_or_else(|_| Err("the thread ended".to_owned()));
        times.map_err(Box::<dyn Error>::from)
    })?;
    report(&format!("{what}, while 100 deltas are applied"), &during, "lookups");
    took.sort_unstable();
    println!("  a delta of 1000 rows takes {:.2} ms, {:.2} ms at most", millis(&took, 50), millis(&took, 99));
    Ok(())
}

/// A run with ids of rows, or with raw ids if the model has rows for them: those of the parameters of the run.
fn run(session: &mut Session, noise: &mut Noise, height: usize) -> Result<()> {
    session.hold();
    let mut ids = noise.ids(height as u64, height)?;
    if let Some(rows) = session.attachment::<Rows>() {
        let row = |number: &u32| rows.row(raw((*number).into())).unwrap_or(height as u32 - 1);
        ids =
            HostTensor::u32([ROWS, IDS], &ids.values::<u32>().unwrap_or_default().iter().map(row).collect::<Vec<_>>())?;
    }
    session.run(&Inputs::new().with("ids", ids))?;
    session.release();
    Ok(())
}

fn measure(seconds: Duration, mut step: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    let (begun, mut times) = (Instant::now(), vec![]);
    while begun.elapsed() < seconds {
        let begun = Instant::now();
        step()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// A percentile of times in ascending order.
fn millis(sorted: &[Duration], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

fn report(what: &str, times: &[Duration], of: &str) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rate = (times.len() * ROWS * IDS) as f64 / times.iter().sum::<Duration>().as_secs_f64();
    let [half, most] = [50, 99].map(|percent| millis(&sorted, percent));
    println!("{what}: {rate:.0} {of} a second, p50 {half:.2} ms, p99 {most:.2} ms{}", memory());
}

/// The memory of the process without mapped files, and all of its memory.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).map(|line| format!(", {line}"));
    ["RssAnon", "VmRSS"].iter().filter_map(|name| line(name)).collect::<String>().replace('\t', " ")
}
