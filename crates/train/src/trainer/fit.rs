use super::{DataError, Prepared, Preparer, StepReport, TrainError, Trainer};
use rewire_runtime::Inputs;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder};

/// Steps that are prepared before they are run.
const WAITING: usize = 2;

/// Batches to train on.
pub trait Data: Send {
    /// The batches of an epoch, counted from 0, in order. Asked for again, an epoch has the same batches.
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_>;
}

/// Where in the data a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Batches of the epoch that steps were made of.
    pub batch: u64,
}

/// What [`fit`] tells of.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step was made, after which the training was there. It is there still where the step is the [latest](Trainer::steps): reports are
    /// read as [`Trainer::submit`] says, at the end of an epoch, and at the very end.
    Step(StepReport, Position),
    /// An epoch, counted from 1, is at its end.
    Epoch(u64),
}

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// Where.
    pub position: Position,
    /// True if it was stopped before the steps or epochs of the configuration.
    pub is_stopped: bool,
}

/// What the thread that reads hands on.
enum Message {
    Step(Prepared, Position),
    Epoch(u64),
    Failed(TrainError),
}

/// Trains until the steps or epochs of the configuration are done, or `on_event` breaks. Batches are read and prepared on another
/// thread while steps are run.
///
/// Batches of the last epoch that do not make up a whole step, with `gradient_accumulation_steps`, are left out; at the end of
/// other epochs a step goes on with the next one.
///
/// # Errors
/// [`TrainError::Thread`] where the system refuses the thread, [`TrainError::Data`] with what reading failed with,
/// [`TrainError::Empty`] where an epoch has no batch, [`TrainError::NoStep`] where all epochs together have fewer batches than the
/// first step takes, and those of [`Trainer::step`] and `on_event`.
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

/// Steps that were made and not told of.
struct Untold<'a, F> {
    /// Where the training was after each.
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

struct Reader {
    preparer: Preparer,
    /// Batches of a step.
    accumulated: usize,
    steps: Option<u64>,
    epochs: Option<u64>,
    /// True once there is a step, also one of an earlier run.
    is_begun: bool,
}

impl Reader {
    /// Reads until the end, or nobody takes what is read.
    fn run(mut self, data: &mut dyn Data, from: Position, messages: &SyncSender<Message>) {
        let mut rest = self.steps;
        let mut group = vec![];
        let mut position = from;
        while self.epochs.is_none_or(|epochs| position.epoch < epochs) && rest != Some(0) {
            let mut batches = 0;
            for batch in data.epoch(position.epoch).skip(usize::try_from(position.batch).unwrap_or(usize::MAX)) {
                batches += 1;
                position.batch += 1;
                match batch {
                    Ok(batch) => group.push(batch),
                    Err(error) => return drop(messages.send(Message::Failed(TrainError::Data(error)))),
                }
                if group.len() < self.accumulated {
                    continue;
                }
                let message = match self.preparer.prepare(std::mem::take(&mut group)) {
                    Ok(step) => Message::Step(step.of_epoch(position.epoch), position),
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
            if batches == 0 && position.batch == 0 {
                let empty = TrainError::Empty { expected: self.accumulated };
                return drop(messages.send(Message::Failed(empty)));
            }
            position = Position { epoch: position.epoch + 1, batch: 0 };
            if messages.send(Message::Epoch(position.epoch)).is_err() {
                return;
            }
        }
        if !self.is_begun {
            let none = TrainError::NoStep { batches: group.len(), expected: self.accumulated };
            drop(messages.send(Message::Failed(none)));
        }
    }
}
