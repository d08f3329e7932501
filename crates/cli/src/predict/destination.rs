//! The output files of a run: complete or absent, and resumable after a kill.

use super::PredictError;
use super::format::Encoder;
use super::frame::Frame;
use super::journal::{Counts, Identity, Journal};
use super::partial::{Partial, beside, partial, place, unwritten};
use crate::args::Predict;
use crate::requests::{Kind, Rejected};
use serde::Serialize;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum time between checkpoints.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum bytes of buffered text.
const MOST_BYTES: usize = 1 << 26;

/// Paths of the output files.
#[derive(Clone, Debug)]
pub struct Places {
    pub out: PathBuf,
    pub rejects: Option<PathBuf>,
    /// Rows between checkpoints.
    pub save_every: u64,
}

/// The result for a part of the input.
pub struct Part {
    pub frame: Frame,
    pub users: u64,
    pub rejected: Vec<Rejected>,
    /// Lines or rows of the input up to this part.
    pub row: u64,
    pub kinds: Option<Vec<Option<Kind>>>,
}

/// The identity of a run, once it is known.
pub type Identifying = JoinHandle<Result<Identity, PredictError>>;

/// Unfinished output files.
pub struct Destination {
    places: Places,
    encoder: Box<dyn Encoder>,
    out: Partial,
    rejects: Option<Partial>,
    rejected: Vec<u8>,
    /// Why the first rejected row is invalid.
    reason: Option<String>,
    identifying: Option<Identifying>,
    journal: Option<Journal>,
    row: u64,
    counts: Counts,
    kinds: Option<Vec<Option<Kind>>>,
    /// Number of saved rows, and the time of the save.
    saved: (u64, Instant),
    /// Bytes of unsaved text.
    waiting: usize,
}

/// A line of rejected rows.
#[derive(Serialize)]
struct RejectedLine<'a> {
    row: Option<u64>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

impl Places {
    /// The paths in the options.
    pub fn of(options: &Predict) -> Result<Self, PredictError> {
        let rejects = options.rejects.as_deref().map(place).transpose()?;
        Ok(Self { out: place(&options.out)?, rejects, save_every: options.save_every.get() })
    }

    /// The temporary files of a run.
    pub fn on_the_way(&self) -> Vec<PathBuf> {
        let partials = [Some(&self.out), self.rejects.as_ref()].into_iter().flatten().map(|place| partial(place));
        partials.chain([self.journal(), Journal::new_beside(&self.journal())]).collect()
    }

    pub fn journal(&self) -> PathBuf {
        beside(&self.out, ".journal")
    }

    /// True if a run was killed after it had written everything in `journal` and moved its output into place.
    pub fn are_taken(&self, journal: &Journal) -> bool {
        let length = std::fs::metadata(&self.out).map_or(0, |found| found.len());
        let is_moved = !partial(&self.out).exists();
        journal.is_whole && is_moved && length == journal.out.bytes + journal.foot.len() as u64
    }
}

impl Destination {
    /// Creates the files.
    pub fn create(places: Places, encoder: Box<dyn Encoder>, identifying: Identifying) -> Result<Self, PredictError> {
        let mut out = Partial::create(&places.out)?;
        match std::fs::remove_file(places.journal()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritten(&places.out)(error)),
            _ => {}
        }
        let rejects = places.rejects.as_deref().map(Partial::create).transpose()?;
        let head = encoder.head().map_err(unencoded(&places.out))?;
        out.append(&head).inspect_err(|_| remove_partials(&places))?;
        Ok(Self {
            places,
            encoder,
            out,
            rejects,
            rejected: vec![],
            reason: None,
            identifying: Some(identifying),
            journal: None,
            row: 0,
            counts: Counts::default(),
            kinds: None,
            saved: (0, Instant::now()),
            waiting: 0,
        })
    }

    /// Resumes from a journal.
    pub fn resume(places: Places, encoder: Box<dyn Encoder>, journal: Journal) -> Result<Self, PredictError> {
        let out = Partial::resume(&places.out, &journal.out)?;
        let rejects = match (&places.rejects, &journal.rejects) {
            // Everything was written, and the rejected rows are in place.
            (Some(place), Some(_)) if journal.is_whole && !partial(place).exists() => None,
            (Some(place), Some(mark)) => Some(Partial::resume(place, mark)?),
            _ => None,
        };
        Ok(Self {
            row: journal.row,
            counts: journal.counts,
            kinds: journal.kinds.clone(),
            saved: (journal.counts.rows, Instant::now()),
            waiting: 0,
            identifying: None,
            journal: Some(journal),
            places,
            encoder,
            out,
            rejects,
            rejected: vec![],
            reason: None,
        })
    }

    /// Lines or rows of the input that are done.
    pub fn row(&self) -> u64 {
        self.row
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Appends the next part.
    pub fn take(&mut self, part: Part) -> Result<(), PredictError> {
        self.counts.rows += part.frame.rows as u64;
        self.counts.users += part.users;
        self.counts.rejected += part.rejected.len() as u64;
        (self.row, self.kinds) = (part.row, part.kinds);
        for Rejected { row, reason, text } in &part.rejected {
            let line = RejectedLine { row: *row, reason, text: text.as_deref() };
            self.reason.get_or_insert_with(|| reason.clone());
            serde_json::to_writer(&mut self.rejected, &line)
                .map_err(io::Error::from)
                .map_err(unencoded(&self.places.out))?;
            self.rejected.push(b'\n');
        }
        self.waiting += part.frame.bytes();
        self.encoder.add(part.frame, self.kinds.as_deref()).map_err(unencoded(&self.places.out))?;
        let (rows, since) = self.saved;
        let is_due = self.counts.rows - rows >= self.places.save_every || self.waiting >= MOST_BYTES;
        match is_due || since.elapsed() > PATIENCE {
            true => self.save(false),
            false => Ok(()),
        }
    }

    /// Makes everything so far durable and records it in the journal.
    fn save(&mut self, is_whole: bool) -> Result<(), PredictError> {
        let bytes = self.encoder.take(self.out.bytes()).map_err(unencoded(&self.places.out))?;
        self.out.append(&bytes)?;
        let mut rejects = None;
        if let Some(partial) = &mut self.rejects {
            partial.append(&self.rejected)?;
            rejects = Some(partial.sync()?);
        }
        self.rejected.clear();
        let mut journal = match (self.journal.take(), self.identifying.take()) {
            (Some(journal), _) => journal,
            (None, Some(identifying)) => Journal::new(identifying.join().unwrap_or_else(|panic| resume_unwind(panic))?),
            (None, None) => return Ok(()),
        };
        journal.row = self.row;
        journal.counts = self.counts;
        journal.kinds.clone_from(&self.kinds);
        journal.out = self.out.sync()?;
        journal.rejects = rejects.or(journal.rejects);
        journal.is_whole = is_whole;
        journal.foot = self.encoder.foot().map_err(unencoded(&self.places.out))?;
        journal.write(&self.places.journal())?;
        self.journal = Some(journal);
        (self.saved, self.waiting) = ((self.counts.rows, Instant::now()), 0);
        Ok(())
    }

    /// Moves the files into place.
    pub fn finish(mut self) -> Result<Counts, PredictError> {
        self.save(true)?;
        self.rejects.take().map_or(Ok(()), |rejects| rejects.finish(&[]))?;
        let foot = self.journal.take().map(|journal| journal.foot).unwrap_or_default();
        self.out.finish(&foot)?;
        remove_journal(&self.places)?;
        Ok(self.counts)
    }

    /// Ends without a result if every row was rejected: the rejected rows are moved into place, and the output is unchanged.
    pub fn reject_all(mut self) -> Result<PredictError, PredictError> {
        let rejects = self.places.rejects.take().unwrap_or_default();
        self.rejects.take().map_or(Ok(()), |partial| partial.finish(&self.rejected))?;
        let error = PredictError::AllRejected {
            file: self.places.out.display().to_string(),
            rejects: rejects.display().to_string(),
            rows: self.counts.rejected,
            reason: self.reason.take().unwrap_or_else(|| "of a fault that the run before found".to_owned()),
        };
        drop((self.out, std::fs::remove_file(self.places.journal())));
        remove_partials(&self.places);
        Ok(error)
    }

    /// Ends without a result. The files for resuming remain.
    pub fn abandon(self) {
        let Self { places, out, rejects, journal, .. } = self;
        drop((out, rejects));
        if journal.is_none() {
            remove_partials(&places);
        }
    }
}

/// Removes the journal of a finished run.
pub fn remove_journal(places: &Places) -> Result<(), PredictError> {
    let journal = places.journal();
    std::fs::remove_file(&journal).map_err(unwritten(&journal))
}

/// Failures are ignored.
fn remove_partials(places: &Places) {
    let places = [Some(&places.out), places.rejects.as_ref()];
    places.into_iter().flatten().for_each(|place| drop(std::fs::remove_file(partial(place))));
}

fn unencoded(out: &Path) -> impl FnOnce(io::Error) -> PredictError + use<> {
    let file = out.display().to_string();
    move |error| PredictError::Encode { file, reason: error.to_string() }
}
