//! Ranks as MPI processes.

use crate::{Buffer, Buffers, CollectiveError, Collectives};
use bytes::Bytes;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Equivalence, Source};
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The maximum size of a message in bytes: MPI counts have 31 bits. A full message is followed by another one.
const LARGEST: usize = 1 << 30;
/// The tag of all messages.
const TAG: i32 = 48;
/// The pause between polls, after [`LOOKS`] polls.
const PAUSE: Duration = Duration::from_micros(20);
/// Polls without a pause.
const LOOKS: u32 = 200;

/// A rank of `MPI_COMM_WORLD`. Dropping it finalizes MPI.
pub struct Mpi {
    rank: usize,
    ranks: usize,
    timeout: Duration,
    /// Memory of received messages.
    buffers: Buffers,
    /// Locked during calls of the library.
    universe: Mutex<Universe>,
}

impl Mpi {
    /// Initializes MPI, once per process. Operations fail after `timeout`.
    ///
    /// # Errors
    /// [`CollectiveError::Library`] if MPI is initialized already, or does not support `MPI_THREAD_SERIALIZED`.
    pub fn new(timeout: Duration) -> Result<Self, CollectiveError> {
        let failed = |reason: &str| CollectiveError::Library { library: "MPI", reason: reason.to_owned() };
        let initialized = mpi::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = initialized.ok_or_else(|| failed("it is initialized already"))?;
        if threading < Threading::Serialized {
            return Err(failed("it allows calls from one thread only"));
        }
        let world = universe.world();
        let (Ok(rank), Ok(ranks)) = (usize::try_from(world.rank()), usize::try_from(world.size())) else {
            return Err(failed("it has no ranks"));
        };
        Ok(Self { rank, ranks, timeout, buffers: Buffers::default(), universe: Mutex::new(universe) })
    }

    /// Terminates the processes of all ranks with an exit code.
    pub fn abort(&self, code: i32) -> ! {
        self.universe.lock().unwrap_or_else(PoisonError::into_inner).world().abort(code)
    }
}

impl Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").field("rank", &self.rank).field("ranks", &self.ranks).finish()
    }
}

impl Collectives for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_to_all(&self, mut parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError> {
        let (actual, ranks) = (parts.len(), self.ranks);
        if actual != ranks {
            return Err(CollectiveError::Usage { expected: "one part for each rank", actual, ranks });
        }
        let universe = self.universe.lock().unwrap_or_else(PoisonError::into_inner);
        let world = universe.world();
        let own = std::mem::take(&mut parts[self.rank]);
        let mut incoming: Vec<Incoming> = (0..ranks).map(|_| Incoming::default()).collect();
        incoming[self.rank] = Incoming { messages: vec![own], is_complete: true };
        let mut sending: Vec<Sending> =
            parts.into_iter().enumerate().filter(|(rank, _)| *rank != self.rank).map(Sending::new).collect();
        let since = Instant::now();
        let mut looks = 0;
        while let Some(rank) = progress(&world, &self.buffers, &mut incoming, &mut sending) {
            if since.elapsed() >= self.timeout {
                return Err(CollectiveError::Timeout { rank, waited: self.timeout });
            }
            looks += 1;
            if looks > LOOKS {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(incoming.into_iter().map(Incoming::part).collect())
    }
}

/// Receives and sends without waiting. Returns the first rank with unfinished messages, or `None` if all are complete.
fn progress(
    world: &SimpleCommunicator,
    buffers: &Buffers,
    incoming: &mut [Incoming],
    sending: &mut [Sending],
) -> Option<usize> {
    let mut awaited = None;
    for (rank, incoming) in incoming.iter_mut().enumerate() {
        if !incoming.receive(world, buffers, rank) {
            awaited = awaited.or(Some(rank));
        }
    }
    for sending in sending {
        if !sending.send(world) {
            awaited = awaited.or(Some(sending.rank));
        }
    }
    awaited
}

/// A part that this rank receives.
#[derive(Default)]
struct Incoming {
    /// Its bytes so far.
    messages: Vec<Bytes>,
    is_complete: bool,
}

impl Incoming {
    /// Receives the messages that have arrived, and returns true if the part is complete.
    fn receive(&mut self, world: &SimpleCommunicator, buffers: &Buffers, rank: usize) -> bool {
        while !self.is_complete {
            let process = world.process_at_rank(rank as i32);
            let Some((message, status)) = process.immediate_matched_probe_with_tag(TAG) else { return false };
            let count = status.count(u8::equivalent_datatype()).max(0) as usize;
            let mut buffer: Buffer = buffers.take(count);
            message.matched_receive_into(&mut buffer[..]);
            self.messages.push(buffer.into());
            self.is_complete = count < LARGEST;
        }
        true
    }

    /// The received part.
    fn part(mut self) -> Bytes {
        match self.messages.len() {
            0 | 1 => self.messages.pop().unwrap_or_default(),
            _ => self.messages.concat().into(),
        }
    }
}

/// A part that this rank sends.
struct Sending {
    rank: usize,
    requests: VecDeque<Request<'static, [u8], StaticScope>>,
    /// The offset of the bytes that are not yet sent; `None` if all are.
    next: Option<usize>,
    bytes: Bytes,
}

impl Sending {
    fn new((rank, bytes): (usize, Bytes)) -> Self {
        Self { rank, requests: VecDeque::new(), next: Some(0), bytes }
    }

    /// Starts all sends, and returns true once all of them are complete.
    fn send(&mut self, world: &SimpleCommunicator) -> bool {
        while let Some(begin) = self.next {
            let end = (begin + LARGEST).min(self.bytes.len());
            let part = &self.bytes[begin..end];
            // SAFETY: the bytes neither move nor change, and they are freed after the requests that read them are complete,
            // or never.
            #[allow(unsafe_code)]
            let lasting: &'static [u8] = unsafe { std::slice::from_raw_parts(part.as_ptr(), part.len()) };
            let process = world.process_at_rank(self.rank as i32);
            self.requests.push_back(process.immediate_send_with_tag(StaticScope, lasting, TAG));
            self.next = (end - begin == LARGEST).then_some(end);
        }
        while let Some(request) = self.requests.pop_front() {
            if let Err(pending) = request.test() {
                self.requests.push_front(pending);
                return false;
            }
        }
        true
    }
}

impl Drop for Sending {
    /// Leaks bytes with pending requests: after a time-out the library may still read them.
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            std::mem::take(&mut self.requests).into_iter().for_each(std::mem::forget);
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}
