//! Requests that run together: each run computes the prompts of new requests, and one code of all others.

use super::beam::{Beam, Search};
use super::draw::Draw;
use super::resident::{ResidentSearch, Selection, Winner};
use super::rows::FreeRows;
use super::{Found, GenerateError};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// A model whose keys and values are in rows of caches.
pub(super) trait Autoregressive {
    /// The token of a code at a level.
    fn token(&self, level: usize, code: u32) -> u32;

    /// The start token of a decoder with an encoder; `None` where sequences continue their prompt.
    fn start(&self) -> Option<u32>;

    /// Grows the caches to at least this many rows.
    async fn reserve(&mut self, rows: usize) -> Result<(), GenerateError>;

    /// Encodes prompts, and computes the query of every sequence and all selections.
    async fn run(
        &mut self,
        sequences: &[Sequence],
        prompts: &[Encoded],
        selections: &[Selection],
    ) -> Result<Answers, GenerateError>;
}

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Per sequence, the values that it asks for.
    pub sequences: Vec<Vec<f32>>,
    /// Per selection, the continuations, best first.
    pub selections: Vec<Vec<Winner>>,
}

/// The part of a sequence that a run computes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub tokens: Vec<u32>,
    /// The cache rows for the keys and values of the tokens.
    pub kept: Vec<u32>,
    /// The cache rows of the tokens before.
    pub before: Vec<u32>,
    /// The cache rows of the encoder's tokens.
    pub memory: Vec<u32>,
    pub asked: Asked,
}

/// The query of a sequence's next code.
#[derive(Clone, Debug, Default)]
pub(super) enum Asked {
    /// The logits of all tokens.
    #[default]
    Logits,
    /// The log-probabilities of some codes of a level, normalized over the level.
    Codes { level: usize, codes: Vec<u32> },
    /// Nothing: a selection has the codes that may follow.
    Selection,
}

/// A prompt for the encoder, and the cache rows of its tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Encoded {
    pub tokens: Vec<u32>,
    pub rows: Vec<u32>,
}

/// A request of a [`Queue`](super::decoder::Queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) usize);

/// The progress of a request by one token.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The request.
    pub request: RequestId,
    /// The tokens of its best prefix.
    pub tokens: Vec<u32>,
    /// The results, best first, if it has ended.
    pub found: Option<Vec<Found>>,
}

/// How a request continues.
#[derive(Debug)]
pub(super) enum Work<'a> {
    Search(Search<'a>),
    Resident(ResidentSearch<'a>),
    Draw(Draw),
}

#[derive(Debug)]
struct Request<'a> {
    id: RequestId,
    /// The tokens of its first run.
    tokens: Vec<u32>,
    /// The prompt of an encoder, until it has run.
    prompt: Option<Encoded>,
    work: Work<'a>,
    /// The cache rows that it holds, and those of the encoder's tokens.
    held: [Vec<u32>; 2],
    /// The cache rows of its first tokens, after their run.
    first: Option<Vec<u32>>,
    /// Its unused cache rows.
    left: VecDeque<u32>,
}

/// Requests, and the rows of caches that they share.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    rows: usize,
    /// Rows of sequences and of encoders' tokens.
    free: [FreeRows; 2],
    waiting: VecDeque<Request<'a>>,
    running: Vec<Request<'a>>,
    /// Number of requests that were submitted, and of those that [`Requests::submitted`] returned.
    count: usize,
    seen: usize,
}

impl<'a> Requests<'a> {
    /// An empty list of requests, for caches with this many rows.
    pub async fn new<M: Autoregressive>(model: &mut M, rows: usize) -> Result<Self, GenerateError> {
        model.reserve(rows.max(1).next_power_of_two()).await?;
        let free = [FreeRows::new(rows), FreeRows::new(rows)];
        Ok(Self { rows, free, waiting: VecDeque::new(), running: vec![], count: 0, seen: 0 })
    }

    /// The next codes of a prompt.
    pub fn submit<M: Autoregressive>(
        &mut self,
        model: &M,
        prompt: Vec<u32>,
        work: Work<'a>,
    ) -> Result<RequestId, GenerateError> {
        let id = RequestId(self.count);
        let request = Request::new(id, model.start(), prompt, work);
        let needed = request.needed().into_iter().max().unwrap_or(0);
        if needed > self.rows {
            return Err(GenerateError::Rows { needed, rows: self.rows });
        }
        self.count += 1;
        self.waiting.push_back(request);
        Ok(id)
    }

    /// Ends a request and frees its rows; false if it has already ended.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let waiting = self.waiting.iter().position(|request| request.id == id).map(|at| self.waiting.remove(at));
        let running = self.running.iter().position(|request| request.id == id).map(|at| self.running.remove(at));
        if let Some(request) = running {
            self.free(request.held);
            return true;
        }
        waiting.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Rows that requests hold, of sequences and of encoders' tokens.
    pub fn held(&self) -> [usize; 2] {
        self.free.each_ref().map(|free| self.rows - free.count())
    }

    /// Runs once. An error ends all requests.
    pub async fn step<M: Autoregressive>(&mut self, model: &mut M) -> Result<Vec<Progress>, GenerateError> {
        let ran = self.run(model).await;
        if ran.is_err() {
            self.clear();
        }
        ran
    }

    /// Ends all requests.
    pub fn clear(&mut self) {
        self.waiting.clear();
        std::mem::take(&mut self.running).into_iter().for_each(|request| self.free(request.held));
    }

    /// Requests that were submitted since the last call.
    pub fn submitted(&mut self) -> impl Iterator<Item = &mut Work<'a>> {
        let first = std::mem::replace(&mut self.seen, self.count);
        self.waiting.iter_mut().filter(move |request| request.id.0 >= first).map(|request| &mut request.work)
    }

    async fn run<M: Autoregressive>(&mut self, model: &mut M) -> Result<Vec<Progress>, GenerateError> {
        self.admit();
        let (mut sequences, mut prompts, mut selections, mut counts) = (vec![], vec![], vec![], vec![]);
        for request in &mut self.running {
            let begun = sequences.len();
            match request.prompt.take() {
                Some(prompt) => prompts.push(prompt),
                None if request.work.is_done() => {}
                None => request.sequences(model, &mut sequences),
            }
            if let Work::Resident(search) = &request.work
                && sequences.len() > begun
            {
                selections.push(search.selection(begun));
            }
            counts.push(sequences.len() - begun);
        }
        let answers = match sequences.is_empty() && prompts.is_empty() {
            true => Answers::default(),
            false => model.run(&sequences, &prompts, &selections).await?,
        };
        let (mut answers, mut selected) = (answers.sequences.into_iter(), answers.selections.into_iter());
        let mut progress = vec![];
        for (request, count) in self.running.iter_mut().zip(counts) {
            let answers: Vec<Vec<f32>> = answers.by_ref().take(count).collect();
            if !answers.is_empty() {
                request.work.extend(&answers, &mut selected)?;
            }
            let found = request.work.is_done().then(|| request.work.found());
            if count > 0 || found.is_some() {
                progress.push(Progress { request: request.id, tokens: request.work.best().to_vec(), found });
            }
        }
        let ended: Vec<Request<'_>> = self.running.extract_if(.., |request| request.work.is_done()).collect();
        ended.into_iter().for_each(|request| self.free(request.held));
        Ok(progress)
    }

    /// Starts requests in their order while there are rows for them.
    fn admit(&mut self) {
        while let Some(request) = self.waiting.front() {
            let needed = request.needed();
            if self.free.iter().zip(needed).any(|(free, needed)| free.count() < needed) {
                return;
            }
            let [own, memory] = &mut self.free;
            let held = [own.take(needed[0]), memory.take(needed[1])];
            let begun = self.waiting.pop_front().map(|request| request.begin(held));
            self.running.extend(begun);
        }
    }

    fn free(&mut self, held: [Vec<u32>; 2]) {
        self.free.iter_mut().zip(held).for_each(|(free, rows)| free.give_back(rows));
    }
}

impl<'a> Request<'a> {
    fn new(id: RequestId, start: Option<u32>, prompt: Vec<u32>, work: Work<'a>) -> Self {
        let (tokens, prompt) = match start {
            Some(start) => (vec![start], Some(Encoded { tokens: prompt, rows: vec![] })),
            None => (prompt, None),
        };
        Self { id, tokens, prompt, work, held: [vec![], vec![]], first: None, left: VecDeque::new() }
    }

    /// The maximum number of rows of the request.
    fn needed(&self) -> [usize; 2] {
        let encoded = self.prompt.as_ref().map_or(0, |prompt| prompt.tokens.len());
        [self.tokens.len().saturating_add(self.work.rows()), encoded]
    }

    fn begin(mut self, held: [Vec<u32>; 2]) -> Self {
        self.left = held[0].iter().copied().collect();
        self.prompt.iter_mut().for_each(|prompt| prompt.rows.clone_from(&held[1]));
        self.held = held;
        self
    }

    /// The next step that it needs.
    fn sequences<M: Autoregressive>(&mut self, model: &M, sequences: &mut Vec<Sequence>) {
        let level = self.work.level();
        let left = &mut self.left;
        let mut take = |count: usize| left.drain(..count.min(left.len())).collect::<Vec<u32>>();
        let Some(first) = &self.first else {
            let kept = take(self.tokens.len());
            let memory = self.held[1].clone();
            let tokens = self.tokens.clone();
            let of = |asked| Sequence {
                tokens: tokens.clone(),
                kept: kept.clone(),
                before: vec![],
                memory: memory.clone(),
                asked,
            };
            sequences.extend(self.work.beams().into_iter().map(|(_, asked)| of(asked)));
            self.first = Some(kept);
            return;
        };
        for (beam, asked) in self.work.beams() {
            let before = [first.as_slice(), &beam.rows].concat();
            let kept = take(1);
            beam.rows.extend(&kept);
            let tokens =
                beam.codes.last().map(|&code| model.token(level.saturating_sub(1), code)).into_iter().collect();
            sequences.push(Sequence { tokens, kept, before, memory: self.held[1].clone(), asked });
        }
    }
}

impl Work<'_> {
    /// The maximum number of cache rows, in addition to those of its prompt.
    fn rows(&self) -> usize {
        match self {
            Self::Search(search) => search.rows(),
            Self::Resident(search) => search.rows(),
            Self::Draw(draw) => draw.rows(),
        }
    }

    fn level(&self) -> usize {
        match self {
            Self::Search(search) => search.level(),
            Self::Resident(search) => search.best().len(),
            Self::Draw(draw) => draw.beam.codes.len(),
        }
    }

    /// The requests that continue, and the inputs of each.
    fn beams(&mut self) -> Vec<(&mut Beam, Asked)> {
        match self {
            Self::Search(search) => {
                let level = search.level();
                search.open().map(|(beam, codes)| (beam, Asked::Codes { level, codes })).collect()
            }
            Self::Resident(search) => search.open().collect(),
            Self::Draw(draw) => vec![(&mut draw.beam, Asked::Logits)],
        }
    }

    fn extend(
        &mut self,
        answers: &[Vec<f32>],
        selected: &mut impl Iterator<Item = Vec<Winner>>,
    ) -> Result<(), GenerateError> {
        match self {
            Self::Search(search) => {
                search.extend(answers);
                Ok(())
            }
            Self::Resident(search) => {
                search.extend(&selected.next().unwrap_or_default());
                Ok(())
            }
            Self::Draw(draw) => answers.iter().try_for_each(|logits| draw.extend(logits)),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Search(search) => search.is_done(),
            Self::Resident(search) => search.is_done(),
            Self::Draw(draw) => draw.is_done(),
        }
    }

    fn best(&self) -> &[u32] {
        match self {
            Self::Search(search) => search.best(),
            Self::Resident(search) => search.best(),
            Self::Draw(draw) => &draw.beam.codes,
        }
    }

    fn found(&self) -> Vec<Found> {
        let of = |(codes, items, score): (&[u32], &[i64], f64)| Found {
            codes: codes.to_vec(),
            items: items.to_vec(),
            score,
        };
        match self {
            Self::Search(search) => search.found().map(of).collect(),
            Self::Resident(search) => search.found(),
            Self::Draw(draw) => vec![of((&draw.beam.codes, &[], draw.beam.score))],
        }
    }
}

/// The results of all requests, in order; they run together. `watch` receives the position of each unfinished request
/// and the codes of its best prefix; if it breaks, the request has no results.
pub(super) async fn together<M: Autoregressive>(
    model: &mut M,
    mut watch: impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>,
    all: Vec<(Vec<u32>, Work<'_>)>,
) -> Result<Vec<Vec<Found>>, GenerateError> {
    let mut found = vec![vec![]; all.len()];
    let all: Vec<Request<'_>> = (0..)
        .zip(all)
        .map(|(place, (prompt, work))| Request::new(RequestId(place), model.start(), prompt, work))
        .collect();
    let needed = all.iter().map(Request::needed);
    let [own, memory] =
        needed.fold([0usize; 2], |sum, needed| [0, 1].map(|n| usize::saturating_add(sum[n], needed[n])));
    let mut requests = Requests::new(model, own.max(memory)).await?;
    requests.waiting = all.into();
    while !requests.is_empty() {
        for Progress { request, tokens, found: ended } in requests.step(model).await? {
            match (watch(request.0, &tokens).await, found.get_mut(request.0), ended) {
                (ControlFlow::Break(()), ..) => {
                    requests.cancel(request);
                }
                (ControlFlow::Continue(()), Some(place), Some(ended)) => *place = ended,
                _ => {}
            }
        }
    }
    Ok(found)
}
