//! Scores of all candidates of a file, or vectors, as a table.

mod batch;
mod destination;
mod error;
mod format;
mod frame;
mod imported;
mod journal;
mod partial;
mod report;
mod scores;
mod task;
mod towers;
mod vectors;

pub use destination::Places;
pub use error::PredictError;
pub use imported::{encoded, in_file};

use crate::args::{Common, Predict};
use crate::continued::hash_files;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::rank::{Fitted, load, with_common};
use crate::requests::{Carry, Chunk, InputError, Reading, Requests, chunks, open_with, title};
use crate::spread::Devices;
use crate::stages;
use batch::{BatchSize, MOST};
use destination::{Destination, Identifying, Part, remove_journal};
use format::{Field, Format};
use frame::Data;
use journal::{Counts, Identity, Journal};
use report::{Meter, Summary};
use rewire::predict::{Predictor, is_imported};
use rewire::rank::{Embedded, Embedder, RankError, RankOptions};
use rewire::weights::Weights;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::Builder;
use std::time::Instant;
use task::{Rows, Task, by_row};
use towers::Towers;
use vectors::{Catalogue, Retrieval};

/// Writes the scores of all candidates of the input. The program began at `begun`.
pub fn run(options: &Predict, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let places = Places::of(options)?;
    let format = Format::of(&options.out)?;
    let with = RankOptions {
        batch_rows: options.batch.map_or(MOST, |batch| batch.get()),
        allow_unread: options.weights.allow_unread,
        precision: options.stored.precision(),
        cache: options.stored.cache(),
        ..options.placement.of_model()
    };
    let devices = Devices::new(&options.devices, with_common(common, with))?;
    let origin = Origin { options, places, format };
    if let Some(model) = options.model.as_deref().filter(|model| is_imported(model)) {
        return tell(&of_imported(model, origin, &devices, begun)?, options, common, output);
    }
    if options.item_column.is_some() {
        return Err(PredictError::ItemColumn.into());
    }
    let task = task(options, &devices)?;
    let workers = WORKERS * devices.count();
    let run = Run { origin, task, workers, batch: BatchSize::new(options.batch, workers) };
    let (counts, resumed_rows) = run.all()?;
    let report = run.task.report();
    let seconds = begun.elapsed().as_secs_f64();
    let summary = Summary {
        rows: counts.rows,
        users: counts.users,
        rejected: counts.rejected,
        resumed_rows,
        seconds,
        rows_per_second: (counts.rows - resumed_rows) as f64 / seconds,
        batch: run.batch.get(),
        kernel: report.kernel.to_string(),
        adapter: report.adapter.unwrap_or_else(|| "cpu".into()),
    };
    tell(&summary, options, common, output)
}

fn tell(summary: &Summary, options: &Predict, common: &Common, output: &mut Output) -> Result<(), CliError> {
    match common.json {
        true => output.json(summary)?,
        false => output.line(summary.text(&options.out.display().to_string()))?,
    }
    Ok(())
}

/// Writes the predictions of an imported model for the rows of a table.
fn of_imported(model: &Path, origin: Origin<'_>, devices: &Devices, begun: Instant) -> Result<Summary, CliError> {
    let options = origin.options;
    let tower = |embedded| move |with: &RankOptions| Predictor::load_tower(model, embedded, with);
    match (&options.items, options.embeddings) {
        (Some(file), _) => {
            let items = tower(Embedded::Items)(devices.first())?;
            let catalogue = Catalogue::of_table(&items, file, options.item_column.as_deref())?;
            let users = tower(Embedded::Users);
            let towers = |with: &RankOptions| Towers::new(users(with)?, &catalogue, options.top.get(), with);
            imported::Run { models: devices.load(towers)?, origin }.all(begun)
        }
        (None, Some(embedded)) => imported::Run { models: devices.load(tower(embedded))?, origin }.all(begun),
        (None, None) => {
            let load = |with: &RankOptions| Predictor::load(model, with);
            imported::Run { models: devices.load(load)?, origin }.all(begun)
        }
    }
}

/// The task that the options select.
fn task(options: &Predict, devices: &Devices) -> Result<Box<dyn Task>, CliError> {
    let model = options.model.as_deref();
    Ok(match (&options.items, options.embeddings) {
        (Some(items), _) => {
            let catalogue = Catalogue::read(&embedder(model, Embedded::Items, devices.first())?, items)?;
            let retrieval = |with: &RankOptions| {
                Retrieval::new(embedder(model, Embedded::Users, with)?, &catalogue, options.top.get(), with)
            };
            Box::new(devices.load(retrieval)?)
        }
        (None, Some(embedded)) => Box::new(devices.load(|with| embedder(model, embedded, with))?),
        (None, None) => Box::new(devices.load(|with| load(model, with))?),
    })
}

fn embedder(model: Option<&Path>, embedded: Embedded, with: &RankOptions) -> Result<Embedder, RankError> {
    match model {
        Some(model) => Embedder::load(model, embedded, with),
        None => {
            let weights = Weights::parse(demo::WEIGHTS)?;
            Embedder::new("the built-in model", demo::CONFIG, &weights, embedded, with)
        }
    }
}

/// Compute threads per device: kernels of one thread fill the gaps of the other.
const WORKERS: usize = 2;

/// Inputs, outputs and options of a run.
struct Origin<'a> {
    options: &'a Predict,
    places: Places,
    format: Format,
}

struct Run<'a> {
    origin: Origin<'a>,
    task: Box<dyn Task>,
    /// Compute threads.
    workers: usize,
    batch: BatchSize,
}

/// The result for a chunk.
struct Computed {
    part: Part,
    fitted: Fitted,
    progress: Option<crate::requests::Progress>,
    end: Result<(), InputError>,
}

impl Run<'_> {
    /// Writes all rows. Returns the counts, and the number of rows that already existed.
    fn all(&self) -> Result<(Counts, u64), CliError> {
        let Origin { options, places, format } = &self.origin;
        let adapter = self.task.report().adapter.unwrap_or_else(|| "cpu".into());
        let fields = self.fields()?;
        let journal = if options.resume { Journal::read(&places.journal())? } else { None };
        let journal = journal.map(|journal| self.origin.same(journal, &adapter)).transpose()?;
        if let Some(journal) = journal.as_ref().filter(|journal| places.are_taken(journal)) {
            remove_journal(places)?;
            return Ok((journal.counts, journal.counts.rows));
        }
        let kinds = format.has_types().then(|| vec![None; options.columns.len() + 1]);
        let carry = Carry {
            names: options.columns.clone(),
            separator: options.list_separator,
            kinds: journal.as_ref().map_or(kinds, |journal| journal.kinds.clone()),
        };
        let mut input = open_with(options.data.as_deref(), self.task.schema(), carry)?;
        let file = places.out.display().to_string();
        let foot = journal.as_ref().map(|journal| journal.foot.as_slice());
        let encoder = format.encoder(fields, foot, options.list_separator, &file)?;
        let destination = match journal {
            Some(journal) => {
                input.skip(journal.row)?;
                Destination::resume(places.clone(), encoder, journal)?
            }
            None => Destination::create(places.clone(), encoder, self.origin.identify(&adapter)?)?,
        };
        let before = destination.counts().rows;
        Ok((self.write(input, destination)?, before))
    }

    /// The columns of the output.
    fn fields(&self) -> Result<Vec<Field>, PredictError> {
        let columns = self.task.columns().into_iter().map(|(name, data)| Field { name, data });
        let mut fields: Vec<Field> = columns.collect();
        for name in &self.origin.options.columns {
            if fields.iter().any(|field| field.name == *name) {
                return Err(PredictError::Column { column: name.clone() });
            }
            fields.push(Field { name: name.clone(), data: Data::Values(vec![]) });
        }
        Ok(fields)
    }

    fn write(&self, input: Box<dyn Requests>, mut destination: Destination) -> Result<Counts, CliError> {
        let sizes = self.batch.sizes();
        let (rejects, ahead) = (self.origin.options.rejects.is_some(), self.workers);
        let reading = Reading { empty: self.task.batch(), sizes, rejects, ahead };
        let (mut meter, mut fitted) = (Meter::new(destination.counts().rows), Fitted::default());
        let compute = |chunk| self.compute(chunk);
        let taken = stages::run(chunks(input, reading)?, self.workers, compute, |computed| {
            let Computed { part, fitted: own, progress, end } = computed?;
            fitted.join(&own);
            destination.take(part)?;
            if let Some(progress) = progress {
                meter.update(progress, destination.counts().rows);
            }
            Ok(end?)
        });
        drop(meter);
        let Counts { users, rejected, .. } = destination.counts();
        let empty = || Err(InputError::Empty { file: title(self.origin.options.data.as_deref()) }.into());
        if let Err(error) = taken.and_then(|()| if users + rejected == 0 { empty() } else { Ok(()) }) {
            destination.abandon();
            return Err(error);
        }
        if users == 0 {
            return Err(destination.reject_all()?.into());
        }
        fitted.notes(self.task.max_seq_len());
        Ok(destination.finish()?)
    }

    fn compute(&self, chunk: Chunk) -> Result<Computed, CliError> {
        let Chunk { batch, carried, kinds, rejected, size, row, progress, end } = chunk;
        let Rows { mut frame, counts, fitted } = self.task.compute(&batch)?;
        frame.columns.extend(by_row(carried, &counts));
        self.batch.done(size, batch.len() + batch.entries(), Instant::now());
        let part = Part { frame, users: batch.len() as u64, rejected, row, kinds };
        Ok(Computed { part, fitted, progress, end })
    }
}

impl Origin<'_> {
    /// A journal, if it belongs to the same run.
    fn same(&self, journal: Journal, adapter: &str) -> Result<Journal, PredictError> {
        let identity = self.identify(adapter)?.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        journal.check(&identity, &self.places.journal())?;
        Ok(journal)
    }

    /// Hashes the model and the data on a separate thread, which reads all of them.
    fn identify(&self, adapter: &str) -> Result<Identifying, PredictError> {
        let adapter = adapter.to_owned();
        let Self { options, format, .. } = self;
        let text = format!(
            "{format:?} columns {:?} list separator {} rejects {} embeddings {:?} top {} item column {:?} {:?} {:?}",
            options.columns,
            options.list_separator,
            options.rejects.is_some(),
            options.embeddings,
            options.top,
            options.item_column,
            options.stored.precision(),
            options.stored.cache()
        );
        let (model, data, items) = ((*options.model).clone(), options.data.clone(), options.items.clone());
        let identify = move || {
            let data = match &data {
                None => Some(format!("the data in the program {}", hash_files(items.as_deref())?)),
                Some(path) if path == Path::new("-") => None,
                Some(path) => Some(hash_files([path.as_path()].into_iter().chain(items.as_deref()))?),
            };
            let version = env!("CARGO_PKG_VERSION").to_owned();
            Ok(Identity { model: model_hash(model.as_deref())?, data, options: text, adapter, version })
        };
        Builder::new().name("rewire hashes".to_owned()).spawn(identify).map_err(PredictError::Thread)
    }
}

fn model_hash(model: Option<&Path>) -> Result<String, PredictError> {
    let Some(model) = model else { return Ok("the model in the program".to_owned()) };
    let files: Vec<PathBuf> = match model.is_dir() {
        true => ["config.json", "model.safetensors"].map(|name| model.join(name)).to_vec(),
        false => vec![model.to_owned()],
    };
    Ok(hash_files(files.iter().map(PathBuf::as_path))?)
}
