mod fitted;
mod imported;
mod items;
mod report;
mod table;

pub(crate) use fitted::Fitted;
pub use items::Titles;
pub(crate) use report::{Tally, UserLine};
pub(crate) use table::count;

use crate::args::{Common, Rank};
use crate::caches;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use crate::progress::Progress;
use crate::requests::{Chunk, InputError, Reading, Requests, Sizes, chunks, expected, open, title};
use crate::spread::{self, Devices};
use crate::stages;
use report::SummaryLine;
use rewire::predict::is_imported;
use rewire::rank::{RankError, RankOptions, Ranked, Ranker, Spread};
use rewire::weights::Weights;
use std::path::Path;
use std::time::Instant;
use thiserror::Error;

/// Arguments that do not apply to an imported model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RankUsage {
    #[error("an imported model ranks the rows of a table: pass one by --data")]
    NoData,
    #[error(
        "each row is one candidate for this model: name the columns of users and items by --user-column and --item-column"
    )]
    Columns,
    #[error("a matching model has vectors, but no scores: `predict --items CATALOGUE` writes the best items of users")]
    Matching,
    #[error("--user-column and --item-column are for imported models: requests name their users and items")]
    Requests,
}

/// Ranks the users of the input. The program began at `begun`.
pub fn run(options: &Rank, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let (tuning, allow_unread) = (options.tuning, options.weights.allow_unread);
    let (precision, cache) = (options.stored.precision(), options.stored.cache());
    let with = RankOptions { tuning, allow_unread, precision, cache, ..options.placement.of_model() };
    let expected = expected(options.data.as_deref());
    let devices = Devices::new(&options.devices, RankOptions { expected, ..with_common(common, with) })?;
    if let Some(model) = options.model.as_deref().filter(|model| is_imported(model)) {
        return imported::run(model, options, &devices, common.json, begun, output);
    }
    if options.user_column.is_some() || options.item_column.is_some() {
        return Err(RankUsage::Requests.into());
    }
    let rankers = devices.load(|with| load(options.model.as_deref(), with))?;
    let ranker = rankers.first();
    let input = open(options.data.as_deref(), ranker.schema())?;
    let item = ranker.schema().candidates.first().map_or("item_id", |column| column.name.as_str());
    let titles = if common.json { Titles::default() } else { Titles::find(options, item) };
    let mut run = Run {
        printer: Printer { json: common.json, top: options.top, tasks: names(ranker), titles },
        tally: Tally::new(ranker.tasks(), begun),
        progress: Progress::new(),
    };
    if let Err(error) = run.all(input, &rankers, options, output) {
        if !common.json && run.tally.users > 0 {
            let users = count(run.tally.users, "user");
            output.line(format_args!("INCOMPLETE: an error ended the run after {users}"))?;
            output.flush()?;
        }
        return Err(error);
    }
    let summary = run.tally.summary(&spread::report(&rankers, Ranker::report));
    drop(run.progress);
    run.tally.fitted.notes(ranker.max_seq_len());
    match common.json {
        true => output.json(&SummaryLine { summary: &summary })?,
        false => table::print_summary(&summary, output)?,
    }
    Ok(())
}

/// Adds the options that all commands share.
pub(crate) fn with_common(common: &Common, with: RankOptions) -> RankOptions {
    RankOptions {
        kernel: common.kernel,
        kernel_rules: common.kernel_for.clone(),
        adapter: common.adapter.clone(),
        matrices: common.matrices,
        tunings: caches::tunings(),
        refining: common.refine,
        pipelines: caches::pipelines(),
        mapping: common.mapping,
        ..with
    }
}

/// Loads a model, or the built-in one.
pub(crate) fn load(model: Option<&Path>, with: &RankOptions) -> Result<Ranker, RankError> {
    match model {
        Some(model) => Ranker::load(model, with),
        None => Ranker::new(&demo::config()?, &Weights::parse(demo::WEIGHTS)?, with),
    }
}

fn names(ranker: &Ranker) -> Vec<String> {
    ranker.tasks().iter().map(|task| task.name.clone()).collect()
}

struct Printer {
    json: bool,
    top: usize,
    tasks: Vec<String>,
    titles: Titles,
}

struct Run {
    printer: Printer,
    tally: Tally,
    progress: Progress,
}

impl Run {
    fn all(
        &mut self,
        input: Box<dyn Requests>,
        rankers: &Spread<Ranker>,
        options: &Rank,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let ahead = 2 * rankers.members().len();
        let reading = Reading { empty: rankers.first().batch(), sizes: Sizes::default(), rejects: false, ahead };
        let rank = |chunk: Chunk| {
            let ranked = rankers.run(|ranker| ranker.rank_batch(&chunk.batch));
            (ranked, chunk)
        };
        stages::run(chunks(input, reading)?, rankers.members().len(), rank, |(ranked, chunk)| {
            let (ranked, Chunk { batch, progress, end, .. }) = (ranked?, chunk);
            for (request, ranked) in ranked.iter().enumerate() {
                self.tally.add(ranked, batch.labels(request));
            }
            self.progress.aside(|| self.printer.print(&ranked, output))?;
            if let Some(progress) = progress {
                self.progress.update(progress, format_args!("{} users", self.tally.users));
            }
            Ok(end?)
        })?;
        match self.tally.users {
            0 => Err(InputError::Empty { file: title(options.data.as_deref()) }.into()),
            _ => Ok(()),
        }
    }
}

impl Printer {
    fn print(&self, ranked: &[Ranked], output: &mut Output) -> Result<(), CliError> {
        for ranked in ranked {
            match self.json {
                true => output.json(&UserLine::new(ranked, self.top, &self.tasks))?,
                false => table::print(ranked, self.top, &self.tasks, &self.titles, output)?,
            }
        }
        Ok(output.flush()?)
    }
}
