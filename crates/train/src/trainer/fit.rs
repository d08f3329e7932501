use super::{DataError, Prepared, Preparer, StepReport, TrainError, Trainer};
use rewire_runtime::Inputs;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder};

/// Maximum number of steps prepared in advance.
const WAITING: usize = 2;

/// A data set, as batches.
pub trait Data: Send {
    /// The batches of an epoch, counted from 0, in order. Repeated calls for an epoch return the same batches.
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_>;

    /// The batches of an epoch from a position on, for one rank. `None` is a batch of another rank, which need
    /// not be read.
    fn share(&mut self, epoch: u64, share: Share) -> Box<dyn Iterator<Item = Result<Option<Inputs>, DataError>> + '_> {
        let batches = self.epoch(epoch).enumerate().skip(usize::try_from(share.from).unwrap_or(usize::MAX));
        Box::new(batches.map(move |(position, batch)| Ok(Some(batch?).filter(|_| share.has(position as u64)))))
    }
}

/// Selects the batches of an epoch for a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Position of the first batch of the epoch to use.
    pub from: u64,
    /// The number of the rank.
    pub rank: u64,
    /// The number of ranks. Of each group of `ranks` batches from `from` on, a rank uses the batch at index `rank`.
    pub ranks: u64,
}

impl Share {
    /// True if the rank uses the batch at this position.
    pub fn has(&self, position: u64) -> bool {
        position >= self.from && (position - self.from) % self.ranks.max(1) == self.rank
    }
}

/// A position in the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Number of batches of the epoch used by steps.
    pub batch: u64,
}

/// An event of [`fit`].
#[derive(Clone, Debug)]
pub enum Event {
    /// The report of a complete step, and the position after it. Reports arrive as described in [`Trainer::submit`], at the end
    /// of an epoch, and at the end of the training. The trainer's state is later than this step unless it is the
    /// [latest](Trainer::steps) one.
    Step(StepReport, Position),
    /// An epoch, counted from 1, has ended.
    Epoch(u64),
}

/// The result of [`fit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The position in the data.
    pub position: Position,
    /// True if it was stopped before the configured steps or epochs.
    pub is_stopped: bool,
}

/// A message from the reading thread.
enum Message {
    Step(Prepared, Position),
    Epoch(u64),
    Failed(TrainError),
}

/// Trains for the configured steps or epochs, or until `on_event` breaks. A background thread reads and prepares batches.
///
/// With `gradient_accumulation_steps`, a step may continue in the next epoch. Batches of the last epoch that do not fill a step
/// are dropped.
///
/// # Errors
/// [`TrainError::Thread`] if the thread cannot be started, [`TrainError::Data`] if reading fails, [`TrainError::Empty`] if an epoch
/// has no batch, [`TrainError::NoStep`] if all epochs together have too few batches for one step, and the errors of
/// [`Trainer::step`] and `on_event`.
pub fn fit<E: From<TrainError>>(
    trainer: &mut Trainer,
    data: &mut dyn Data,
    from: Position,
    mut on_event: impl FnMut(&Trainer, Event) -> Result<ControlFlow<()>, E>,
) -> Result<Fitted, E> {
    let reader = Reader {
        preparer: trainer.preparer(),
        accumulated: trainer.config().step_batches(),
        steps: trainer.config().steps.map(|steps| steps.get().saturating_sub(trainer.steps())),
        epochs: trainer.config().epochs.map(|epochs| epochs.get()),
        is_begun: trainer.steps() > 0,
        rank: trainer.group().map_or(0, |group| group.rank()),
        ranks: trainer.group().map_or(1, |group| group.ranks()),
    };
    let (sender, messages) = sync_channel(WAITING);
    thread::scope(|scope| {
        let thread = Builder::new().name("rewire reads".to_owned());
        thread.spawn_scoped(scope, move || reader.run(data, from, &sender)).map_err(TrainError::Thread)?;
        take(trainer, messages, from, &mut on_event)
    })
}

fn take<E: From<TrainError>>(
    trainer: &mut Trainer,
    messages: Receiver<Message>,
    from: Position,
    on_event: &mut impl FnMut(&Trainer, Event) -> Result<ControlFlow<()>, E>,
) -> Result<Fitted, E> {
    let mut fitted = Fitted { position: from, is_stopped: false };
    let mut untold = Untold { positions: VecDeque::new(), on_event };
    for message in messages {
        let flow = match message {
            Message::Step(step, position) => {
                untold.positions.push_back(position);
                fitted.position = position;
                let reports = trainer.submit(step)?;
                untold.tell(trainer, reports)?
            }
            Message::Epoch(epoch) => match untold.tell_all(trainer)? {
                ControlFlow::Continue(()) => (untold.on_event)(trainer, Event::Epoch(epoch))?,
                stopped => stopped,
            },
            Message::Failed(error) => {
                let _ = untold.tell_all(trainer)?;
                return Err(error.into());
            }
        };
        if flow.is_break() {
            fitted.is_stopped = true;
            return Ok(fitted);
        }
    }
    fitted.is_stopped = untold.tell_all(trainer)?.is_break();
    Ok(fitted)
}

/// Submitted steps that are not yet reported.
struct Untold<'a, F> {
    /// The position after each step.
    positions: VecDeque<Position>,
    on_event: &'a mut F,
}

impl<E: From<TrainError>, F: FnMut(&Trainer, Event) -> Result<ControlFlow<()>, E>> Untold<'_, F> {
    fn tell(&mut self, trainer: &Trainer, reports: Vec<StepReport>) -> Result<ControlFlow<()>, E> {
        for report in reports {
            let Some(position) = self.positions.pop_front() else { break };
            if (self.on_event)(trainer, Event::Step(report, position))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn tell_all(&mut self, trainer: &mut Trainer) -> Result<ControlFlow<()>, E> {
        while !self.positions.is_empty() {
            let reports = trainer.reports()?;
            if reports.is_empty() {
                break;
            }
            if self.tell(trainer, reports)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Batches of a step.
#[derive(Default)]
struct Group {
    /// The batches of this rank.
    batches: Vec<Inputs>,
    /// The chunk of each batch.
    chunks: Vec<usize>,
    /// Number of chunks read so far.
    count: usize,
}

impl Group {
    /// Reads a chunk, one batch per rank, and returns the number of its batches: fewer at the end of an epoch, then 0.
    fn read(
        &mut self,
        batches: &mut impl Iterator<Item = Result<Option<Inputs>, DataError>>,
        (rank, ranks): (usize, usize),
        preparer: &mut Preparer,
    ) -> Result<u64, DataError> {
        let mut count = 0;
        for (position, batch) in batches.take(ranks).enumerate() {
            count += 1;
            let Some(batch) = batch? else { continue };
            // Each rank's tables grow with the ids of all ranks.
            preparer.count(&batch, position == rank);
            if position == rank {
                self.batches.push(batch);
                self.chunks.push(self.count);
            }
        }
        self.count += usize::from(count > 0);
        Ok(count)
    }
}

struct Reader {
    preparer: Preparer,
    /// Batches of a step.
    accumulated: usize,
    steps: Option<u64>,
    epochs: Option<u64>,
    /// True once a step was prepared, in this or an earlier run.
    is_begun: bool,
    /// The number of this rank. Each chunk has one batch per rank.
    rank: usize,
    ranks: usize,
}

impl Reader {
    /// Reads until the end of the training, or until the receiver is dropped.
    fn run(mut self, data: &mut dyn Data, from: Position, messages: &SyncSender<Message>) {
        let mut rest = self.steps;
        let mut group = Group::default();
        let mut position = from;
        while self.epochs.is_none_or(|epochs| position.epoch < epochs) && rest != Some(0) {
            let (rank, ranks) = if self.preparer.counts() { (0, 1) } else { (self.rank as u64, self.ranks as u64) };
            let share = Share { from: position.batch, rank, ranks };
            let mut batches = data.share(position.epoch, share);
            let mut is_empty = position.batch == 0;
            loop {
                let count = match group.read(&mut batches, (self.rank, self.ranks), &mut self.preparer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) => return drop(messages.send(Message::Failed(TrainError::Data(error)))),
                };
                is_empty = false;
                position.batch += count;
                if group.count < self.accumulated {
                    continue;
                }
                let Group { batches, chunks, count } = std::mem::take(&mut group);
                let message = match self.preparer.prepare_counted(batches) {
                    Ok(step) => Message::Step(step.of_epoch(position.epoch).of_chunks(chunks, count), position),
                    Err(error) => Message::Failed(error),
                };
                let is_failed = matches!(message, Message::Failed(_));
                self.is_begun = true;
                if messages.send(message).is_err() || is_failed {
                    return;
                }
                rest = rest.map(|rest| rest - 1);
                if rest == Some(0) {
                    return;
                }
            }
            if is_empty {
                let empty = TrainError::Empty { expected: self.accumulated };
                return drop(messages.send(Message::Failed(empty)));
            }
            position = Position { epoch: position.epoch + 1, batch: 0 };
            if messages.send(Message::Epoch(position.epoch)).is_err() {
                return;
            }
        }
        if !self.is_begun {
            let none = TrainError::NoStep { batches: group.count, expected: self.accumulated };
            drop(messages.send(Message::Failed(none)));
        }
    }
}
