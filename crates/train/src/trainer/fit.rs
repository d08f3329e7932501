use super::{DataError, Prepared, Preparer, StepReport, TrainError, Trainer};
use rewire_runtime::Inputs;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder};

/// Steps prepared in advance.
const WAITING: usize = 2;

/// Batches to train on.
pub trait Data: Send {
    /// The batches of an epoch, counted from 0, in order. Repeated calls for an epoch return the same batches.
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_>;

    /// The batches of an epoch, from a position on, of which a rank uses its share. `None` is a batch of another rank,
    /// which need not be read.
    fn share(&mut self, epoch: u64, share: Share) -> Box<dyn Iterator<Item = Result<Option<Inputs>, DataError>> + '_> {
        let batches = self.epoch(epoch).enumerate().skip(usize::try_from(share.from).unwrap_or(usize::MAX));
        Box::new(batches.map(move |(position, batch)| Ok(Some(batch?).filter(|_| share.has(position as u64)))))
    }
}

/// The batches of an epoch that a rank uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Batches that were used before.
    pub from: u64,
    /// The number of the rank.
    pub rank: u64,
    /// The number of ranks: of each group of this many batches from `from` on, a rank uses the one with its number.
    pub ranks: u64,
}

impl Share {
    /// True for the position of a batch that the rank uses.
    pub fn has(&self, position: u64) -> bool {
        position >= self.from && (position - self.from) % self.ranks.max(1) == self.rank
    }
}

/// A position in the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Batches of the epoch that steps have used.
    pub batch: u64,
}

/// An event of [`fit`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A step is complete; the training was at this position after it. The training is still in this state if the step is the
    /// [latest](Trainer::steps): reports arrive as described in [`Trainer::submit`], at the end of an epoch, and at the very end.
    Step(StepReport, Position),
    /// An epoch, counted from 1, has ended.
    Epoch(u64),
}

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// The position in the data.
    pub position: Position,
    /// True if it was stopped before the configured steps or epochs.
    pub is_stopped: bool,
}

/// A message of the reading thread.
enum Message {
    Step(Prepared, Position),
    Epoch(u64),
    Failed(TrainError),
}

/// Trains for the configured steps or epochs, or until `on_event` breaks. Another thread reads and prepares batches while steps
/// run.
///
/// With `gradient_accumulation_steps`, batches of the last epoch that do not fill a step are dropped; a step at the end of
/// other epochs continues with the next one.
///
/// # Errors
/// [`TrainError::Thread`] if the thread cannot be started, [`TrainError::Data`] with the error of reading, [`TrainError::Empty`]
/// if an epoch has no batch, [`TrainError::NoStep`] if all epochs together have fewer batches than the first step needs, and the
/// errors of [`Trainer::step`] and `on_event`.
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

/// Completed steps that are not yet reported.
struct Untold<'a, F> {
    /// The position after each of them.
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
    /// Those of this rank.
    batches: Vec<Inputs>,
    /// The chunk of each of them.
    chunks: Vec<usize>,
    /// Chunks so far.
    count: usize,
}

impl Group {
    /// Reads a chunk, and returns the number of its batches: 0 at the end of an epoch, where a chunk can be smaller than others.
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
            // The ids of all ranks grow the tables of each.
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
    /// True once a step exists, also one of an earlier run.
    is_begun: bool,
    /// Each group of batches has one batch per rank; this rank uses its own.
    rank: usize,
    ranks: usize,
}

impl Reader {
    /// Reads until the end, or until the receiver is dropped.
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
