mod input;
mod items;
mod jsonl;
mod parquet;
mod progress;
mod report;
mod table;

pub use input::{InputError, Requests, open};
pub use items::Titles;

use crate::args::{Common, Rank};
use crate::caches;
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use progress::Progress;
use report::{SummaryLine, Tally, UserLine};
use rewire::rank::{RankError, RankOptions, Ranked, Ranker, Request};
use rewire::weights::Weights;
use std::time::Instant;

/// Rows that are read before they are ranked: few at first, so that there are scores soon.
const FIRST_CHUNK: usize = 1 << 11;
const CHUNK: usize = 1 << 14;

/// Ranks the users of the input. The program began at `begun`.
pub fn run(options: &Rank, common: &Common, begun: Instant, output: &mut Output) -> Result<(), CliError> {
    let ranker = load(options, common)?;
    let mut input = open(options.data.as_deref(), ranker.schema())?;
    let item = ranker.schema().candidates.first().map_or("item_id", |column| column.name.as_str());
    let titles = if common.json { Titles::default() } else { Titles::find(options, item) };
    let mut run = Run {
        printer: Printer { json: common.json, top: options.top, tasks: names(&ranker), titles },
        tally: Tally::new(ranker.tasks(), begun),
        progress: Progress::new(),
    };
    if let Err(error) = run.all(&mut *input, &ranker, options, output) {
        if !common.json && run.tally.users > 0 {
            let users = table::count(run.tally.users, "user");
            output.line(format_args!("INCOMPLETE: an error ended the run after {users}"))?;
            output.flush()?;
        }
        return Err(error);
    }
    let summary = run.tally.summary(&ranker.report());
    drop(run.progress);
    run.tally.notes(ranker.max_seq_len());
    match common.json {
        true => output.json(&SummaryLine { summary: &summary })?,
        false => table::print_summary(&summary, output)?,
    }
    Ok(())
}

fn load(options: &Rank, common: &Common) -> Result<Ranker, RankError> {
    let with = RankOptions {
        kernel: common.kernel,
        adapter: common.adapter.clone(),
        tuning: options.tuning,
        allow_unread: options.weights.allow_unread,
        tunings: caches::tunings(),
        pipelines: caches::pipelines(),
        ..RankOptions::default()
    };
    match &options.model {
        Some(folder) => Ranker::load(folder, &with),
        None => Ranker::new(&demo::config()?, &Weights::parse(demo::WEIGHTS)?, &with),
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
        input: &mut dyn Requests,
        ranker: &Ranker,
        options: &Rank,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let file = || input::title(options.data.as_deref());
        let mut limit = FIRST_CHUNK;
        loop {
            let (requests, end) = chunk(input, ranker, limit);
            let ranked =
                ranker.rank(&requests).map_err(|source| CliError::Data { file: file(), source: Box::new(source) })?;
            for (request, ranked) in requests.iter().zip(&ranked) {
                self.tally.add(request, ranked);
            }
            self.progress.aside(|| self.printer.print(&ranked, output))?;
            match end {
                Some(Ok(())) if self.tally.users == 0 => return Err(InputError::Empty { file: file() }.into()),
                Some(end) => return Ok(end?),
                None => {}
            }
            if let Some(progress) = input.progress() {
                self.progress.update(progress, self.tally.users);
            }
            limit = CHUNK;
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

/// Reads requests until they fill a chunk of `limit` rows. With it comes how the input ended, if it did.
fn chunk(input: &mut dyn Requests, ranker: &Ranker, limit: usize) -> (Vec<Request>, Option<Result<(), InputError>>) {
    let (mut requests, mut rows) = (Vec::new(), 0);
    while rows < limit {
        match input.next(ranker.schema()) {
            Some(Ok(request)) => {
                rows += 1 + request.events() + request.len();
                requests.push(request);
            }
            Some(Err(error)) => return (requests, Some(Err(error))),
            None => return (requests, Some(Ok(()))),
        }
    }
    (requests, None)
}
