//! Beam search on a device: beams and the trie stay in device memory, and no run waits for another.

use super::{Asked, Autoregressive, Decoder, Encoded, Sequence, ends};
use crate::generate::beam::Search;
use crate::generate::resident::{ResidentSearch, ResidentTrie, Selection, Winner};
use crate::generate::tables::TrieTables;
use crate::generate::{Found, GenerateError, Trie, joined, lengths};
use rewire_decoders::{BeamLimits, beam_step};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{DeviceTensor, Inputs, Model, ModelOptions, Outputs, RunValue, Session};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Results of a step that the next run of the decoder reads.
const OF_RUN: [&str; 4] = ["tokens", "before", "asked.rows", "asked.tokens"];

/// Results of a step that the next step reads.
const OF_STEP: [&str; 3] = ["scores", "states", "rows"];

/// The steps between runs of a decoder, and the latest trie.
#[derive(Debug)]
pub(super) struct DeviceBeams {
    session: Session,
    trie: Option<ResidentTrie>,
}

/// A search on a device.
#[derive(Debug)]
pub(super) struct DeviceSearch<'a> {
    steps: DeviceBeams,
    trie: &'a Trie,
    resident: ResidentTrie,
    /// Beams of a prompt at the start of each level, and after the last level.
    beams: Vec<usize>,
    prompts: Vec<Prompt>,
    /// Cache rows that are in use.
    rows: u32,
}

#[derive(Debug)]
struct Prompt {
    /// The tokens of its first run.
    tokens: Vec<u32>,
    /// Their cache rows.
    rows: Vec<u32>,
    /// The cache rows of the encoder's tokens.
    memory: Vec<u32>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Searching,
    /// All of its beams are items.
    Found,
    /// The caller does not want its results.
    Cancelled,
}

impl DeviceBeams {
    async fn load(decoder: &Session) -> Result<Self, GenerateError> {
        let plan = lower(&optimize(beam_step()?)?.0)?;
        let of_decoder = decoder.model().options();
        let options = ModelOptions {
            kernel: of_decoder.kernel,
            gpu: decoder.gpu().cloned(),
            workers: of_decoder.workers.clone(),
            threads: of_decoder.threads.clone(),
            pipelines: of_decoder.pipelines.clone(),
            clamp_ids: true,
            ..ModelOptions::default()
        };
        Ok(Self { session: Model::load_async(plan, (), options).await?.session(), trie: None })
    }

    async fn resident(&mut self, trie: &Trie) -> Result<ResidentTrie, GenerateError> {
        if let Some(known) = self.trie.as_ref().filter(|known| Arc::ptr_eq(&known.identity, trie.identity())) {
            return Ok(known.clone());
        }
        let tables = TrieTables::new(trie);
        let arrays =
            [("trie.offsets", &tables.offsets), ("trie.tokens", &tables.tokens), ("trie.states", &tables.states)];
        let mut tensors = vec![];
        for (name, values) in arrays {
            tensors.push((name, self.session.upload_async(&HostTensor::vector(values)).await?));
        }
        let resident = ResidentTrie { identity: trie.identity().clone(), tables: Arc::new(tables), tensors };
        Ok(self.trie.insert(resident).clone())
    }

    /// The continuations of all selections, given the probabilities of their candidates, and of others after them.
    async fn select(
        &mut self,
        asked: &RunValue,
        selections: &[Selection],
        others: usize,
    ) -> Result<Vec<Vec<Winner>>, GenerateError> {
        let mut found = vec![vec![]; selections.len()];
        while let Some(place) = found.iter().position(Vec::is_empty) {
            let Some(Selection { trie, .. }) = selections.get(place) else { break };
            let mut inputs = inputs_of(trie, selections, others)?;
            inputs.extend([("asked", asked.clone())]);
            let outputs = self.session.run_async(&inputs).await?;
            let states = outputs.get("states").map(HostTensor::to_i64).unwrap_or_default();
            let scores = scores(&outputs)?;
            let mut winners =
                states.into_iter().zip(scores).map(|(state, score)| Winner { score, state: state as u32 });
            for (found, own) in found.iter_mut().zip(selections).filter(|(_, own)| own.trie.is_same(trie)) {
                *found = winners.by_ref().take(own.winners).collect();
                if found.is_empty() {
                    return Err(missing("states"));
                }
            }
        }
        Ok(found)
    }
}

impl ResidentTrie {
    /// Beams of a prompt at the start of each level and after the last one; `None` if a step does not support that many
    /// candidates or levels.
    fn beams(&self, width: usize, prompts: usize) -> Option<Vec<usize>> {
        let (mut beams, mut last) = (vec![1], 1usize);
        for level in &self.tables.levels {
            let candidates = last.checked_mul(level.entries)?;
            let all = candidates.checked_mul(prompts)?;
            if candidates > BeamLimits::ALL.candidates || i32::try_from(all).is_err() {
                return None;
            }
            last = width.min(candidates).min(level.states);
            beams.push(last);
        }
        (beams.len() <= BeamLimits::ALL.levels).then_some(beams)
    }
}

impl Decoder {
    fn selects_on_device(&self) -> bool {
        self.session.gpu().is_some() && cfg!(feature = "emit")
    }

    /// A search of one prompt whose prefixes the device selects; `None` if there is no device, or a step does not
    /// support the search.
    pub(super) async fn resident_search<'a>(
        &mut self,
        search: &Search<'a>,
    ) -> Result<Option<ResidentSearch<'a>>, GenerateError> {
        let (trie, width) = (search.trie(), search.width(0));
        if !self.selects_on_device() || trie.ids() == 0 {
            return Ok(None);
        }
        let mut steps = self.steps().await?;
        let resident = steps.resident(trie).await?;
        self.beams = Some(steps);
        let is_supported = resident.beams(width, 1).is_some();
        Ok(is_supported.then(|| ResidentSearch::new(trie, resident, width, search.rows())))
    }

    async fn steps(&mut self) -> Result<DeviceBeams, GenerateError> {
        match self.beams.take() {
            Some(steps) => Ok(steps),
            None => DeviceBeams::load(&self.session).await,
        }
    }

    /// The continuations of selections, given the results of their run with `others` more candidates.
    pub(super) async fn select(
        &mut self,
        outputs: &Outputs,
        selections: &[Selection],
        others: usize,
    ) -> Result<Vec<Vec<Winner>>, GenerateError> {
        if selections.is_empty() {
            return Ok(vec![]);
        }
        let asked = outputs.value("asked").ok_or_else(|| missing("asked"))?;
        // After an error they are loaded again, on the current device of the decoder.
        let mut steps = self.steps().await?;
        let winners = steps.select(asked, selections, others).await?;
        self.beams = Some(steps);
        Ok(winners)
    }

    /// Begins a search of prompts on the decoder's device; `None` if there is no device, or a step does not support the
    /// search.
    pub(super) async fn device_search<'a>(
        &mut self,
        prompts: &[&[u32]],
        trie: &'a Trie,
        width: usize,
    ) -> Result<Option<DeviceSearch<'a>>, GenerateError> {
        if !self.selects_on_device() || prompts.is_empty() || trie.ids() == 0 {
            return Ok(None);
        }
        let mut steps = self.steps().await?;
        let resident = steps.resident(trie).await?;
        let Some(beams) = resident.beams(width, prompts.len()) else {
            self.beams = Some(steps);
            return Ok(None);
        };
        let mut search = DeviceSearch { steps, trie, resident, beams, prompts: vec![], rows: 0 };
        let mut encoded: Vec<Encoded> = vec![];
        let mut encoder_rows = 0;
        for &prompt in prompts {
            let (tokens, memory) = match self.start() {
                Some(start) => (vec![start], prompt.len() as u32),
                None => (prompt.to_vec(), 0),
            };
            let memory: Vec<u32> = (encoder_rows..encoder_rows + memory).collect();
            encoder_rows += memory.len() as u32;
            let rows = search.take(tokens.len());
            encoded.push(Encoded { tokens: prompt.to_vec(), rows: memory.clone() });
            search.prompts.push(Prompt { tokens, rows, memory, stage: Stage::Searching });
        }
        let rows = search.rows.max(encoder_rows) as usize + search.rows_of_beams();
        self.reserve(rows.next_power_of_two()).await?;
        if encoder_rows > 0 {
            self.run(&[], &encoded, &[]).await?;
        }
        Ok(Some(search))
    }

    /// The results of a search. With `watch`, the host waits for the results of every step.
    pub(super) async fn search_on_device(
        &mut self,
        mut search: DeviceSearch<'_>,
        mut watch: Option<impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        let mut inputs = self.first_run(&search).await?;
        let (mut level, last) = (0, search.beams.len() - 2);
        loop {
            search.insert_sizes(&mut inputs, level);
            if level < last {
                OF_RUN.iter().chain(&OF_STEP).for_each(|name| inputs.keep_on_device(*name));
            }
            let outputs = search.steps.session.run_async(&inputs).await?;
            if let Some(watch) = &mut watch {
                let states = read(&search.steps.session, &outputs, "states").await?.to_i64();
                search.report(&states, watch).await;
            }
            if level == last || search.prompts.iter().all(|prompt| prompt.stage == Stage::Cancelled) {
                let found = search.found(&outputs)?;
                // After an error they are loaded again, on the current device of the decoder.
                self.beams = Some(search.steps);
                return Ok(found);
            }
            inputs = self.next_run(&mut search, level, &outputs).await?;
            level += 1;
        }
    }

    /// Computes the prompts. Returns inputs of the first step.
    async fn first_run(&mut self, search: &DeviceSearch<'_>) -> Result<Inputs, GenerateError> {
        let of = |prompt: &Prompt| prompt.sequence(prompt.tokens.clone(), prompt.rows.clone(), 0);
        let sequences: Vec<Sequence> = search.prompts.iter().map(of).collect();
        let codes: Vec<u32> = search.resident.tables.tokens_after(0).iter().map(|&token| token as u32).collect();
        let rows: Vec<u32> = (0..sequences.len() as u32).flat_map(|row| codes.iter().map(move |_| row)).collect();
        let inputs = self.inputs(&sequences, &[], &ends(&sequences), [&rows, &codes.repeat(sequences.len())])?;
        let (count, levels) = (sequences.len(), BeamLimits::ALL.levels);
        let mut first = Inputs::new()
            .with("scores", HostTensor::zeros(DType::F32, vec![count])?)
            .with("states", HostTensor::zeros(DType::I32, vec![count])?)
            .with("rows", HostTensor::zeros(DType::I32, vec![count, levels])?)
            .with("kept", HostTensor::zeros(DType::I32, vec![count])?);
        first.extend([("asked", self.asked(inputs).await?)]);
        Ok(first)
    }

    /// Computes the latest tokens of all beams. Returns inputs of the next step.
    async fn next_run(
        &mut self,
        search: &mut DeviceSearch<'_>,
        level: usize,
        outputs: &Outputs,
    ) -> Result<Inputs, GenerateError> {
        let beams = search.beams[level + 1];
        let kept = search.take(beams * search.prompts.len());
        let prompts = search.prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, beams));
        let of = |(prompt, &row): (&Prompt, &u32)| prompt.sequence(vec![0], vec![row], prompt.rows.len() + level);
        let sequences: Vec<Sequence> = prompts.zip(&kept).map(of).collect();
        let mut inputs = self.inputs(&sequences, &[], &ends(&sequences), [&[], &[]])?;
        let value = |name: &'static str| Some((name, outputs.value(name)?.clone()));
        inputs.extend(OF_RUN.into_iter().filter_map(value));
        let kept: Vec<i32> = kept.into_iter().map(|row| row as i32).collect();
        let mut next = Inputs::new().with("kept", HostTensor::vector(&kept));
        next.extend(OF_STEP.into_iter().filter_map(value));
        next.extend([("asked", self.asked(inputs).await?)]);
        Ok(next)
    }

    /// Runs the model on these inputs. The probabilities stay on the device.
    async fn asked(&mut self, mut inputs: Inputs) -> Result<RunValue, GenerateError> {
        inputs.keep_on_device("asked");
        let outputs = self.session.run_async(&inputs).await?;
        outputs.value("asked").cloned().ok_or_else(|| missing("asked"))
    }
}

impl Prompt {
    /// A run of tokens that follow this many rows.
    fn sequence(&self, tokens: Vec<u32>, kept: Vec<u32>, before: usize) -> Sequence {
        let asked = Asked::Codes { level: 0, codes: vec![] };
        Sequence { tokens, kept, before: vec![0; before], memory: self.memory.clone(), asked }
    }
}

impl DeviceSearch<'_> {
    fn take(&mut self, rows: usize) -> Vec<u32> {
        let first = self.rows;
        self.rows += rows as u32;
        (first..self.rows).collect()
    }

    /// Cache rows of all beams. Tokens of the last level need none.
    fn rows_of_beams(&self) -> usize {
        self.beams[1..self.beams.len() - 1].iter().sum::<usize>() * self.prompts.len()
    }

    /// Adds the trie and sizes to the inputs of a step.
    fn insert_sizes(&self, inputs: &mut Inputs, level: usize) {
        let (prompts, levels) = (self.prompts.len(), &self.resident.tables.levels);
        let [beams, winners] = [level, level + 1].map(|level| self.beams[level]);
        let equal = |count: usize, length: usize| HostTensor::lengths(&vec![length as i64; count]);
        // No run follows the last step.
        let next = levels.get(level + 1).map(|next| next.entries);
        let before = |prompt: &Prompt| next.map_or(0, |_| (prompt.rows.len() + level) as i64);
        let before = self.prompts.iter().flat_map(|prompt| std::iter::repeat_n(before(prompt), winners));
        let place: Vec<bool> = (0..BeamLimits::ALL.levels).map(|column| column + 1 == level).collect();
        inputs.extend(
            [
                ("entries", equal(prompts * beams, levels[level].entries)),
                ("candidates", equal(prompts, beams * levels[level].entries)),
                ("winners", equal(prompts, winners)),
                ("next.entries", equal(prompts * winners, next.unwrap_or(0))),
                ("before.lengths", HostTensor::lengths(&before.collect::<Vec<_>>())),
                ("prompt.lengths", lengths(self.prompts.iter().map(|prompt| &prompt.rows))),
                ("prompt", joined(self.prompts.iter().map(|prompt| &prompt.rows))),
                ("place", HostTensor::vector(&place)),
            ]
            .map(|(name, tensor)| (name, RunValue::Host(tensor))),
        );
        let device = |(name, tensor): &(&'static str, DeviceTensor)| (*name, RunValue::Device(tensor.clone()));
        inputs.extend(self.resident.tensors.iter().map(device));
    }

    /// Reports the best beam of every prompt that is searched.
    async fn report(&mut self, states: &[i64], watch: &mut impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>) {
        let beams = states.len() / self.prompts.len();
        for (place, (prompt, states)) in self.prompts.iter_mut().zip(states.chunks(beams)).enumerate() {
            if prompt.stage == Stage::Searching {
                let (tables, mut states) = (&self.resident.tables, states.iter().map(|&state| state as u32));
                let codes = states.clone().next().map(|best| tables.codes(best)).unwrap_or_default();
                prompt.stage = match watch(place, &codes).await {
                    ControlFlow::Break(()) => Stage::Cancelled,
                    ControlFlow::Continue(()) if states.all(|state| tables.leaf(state).is_some()) => Stage::Found,
                    ControlFlow::Continue(()) => Stage::Searching,
                };
            }
        }
    }

    /// The items of prompts, best first.
    fn found(&self, outputs: &Outputs) -> Result<Vec<Vec<Found>>, GenerateError> {
        let scores = scores(outputs)?;
        let states = outputs.get("states").map(HostTensor::to_i64).unwrap_or_default();
        let beams = scores.len() / self.prompts.len();
        let of = |(place, prompt): (usize, &Prompt)| {
            let own = place * beams..(place + 1) * beams;
            let mut found: Vec<Found> = match prompt.stage {
                Stage::Cancelled => vec![],
                _ => own.filter_map(|beam| self.item(scores[beam], states[beam] as u32)).collect(),
            };
            found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.codes.cmp(&b.codes)));
            found
        };
        Ok(self.prompts.iter().enumerate().map(of).collect())
    }

    fn item(&self, score: f64, state: u32) -> Option<Found> {
        let tables = &self.resident.tables;
        let leaf = tables.leaf(state).filter(|_| score > f64::NEG_INFINITY)?;
        Some(Found { codes: tables.codes(state), items: self.trie.items(leaf).to_vec(), score })
    }
}

/// The inputs of a step that selects for the requests of a trie, except `asked`. Requests of other tries and `others` more
/// candidates have no winners.
fn inputs_of(trie: &ResidentTrie, selections: &[Selection], others: usize) -> Result<Inputs, GenerateError> {
    let (mut entries, mut candidates, mut winners) = (vec![], vec![], vec![]);
    let (mut scores, mut states) = (vec![], vec![]);
    for selection in selections {
        let is_own = selection.trie.is_same(trie);
        let first = entries.len();
        for beam in &selection.beams {
            entries.push(selection.trie.tables.tokens_after(beam.state).len() as i64);
            scores.push(beam.score);
            states.push(if is_own { beam.state as i32 } else { 0 });
        }
        candidates.push(entries.get(first..).unwrap_or(&[]).iter().sum::<i64>());
        winners.push(if is_own { selection.winners as i64 } else { 0 });
    }
    // Each is a request of one beam, so that sorting stays within the limits of a step.
    for first in (0..others).step_by(BeamLimits::ALL.candidates) {
        let count = (others - first).min(BeamLimits::ALL.candidates) as i64;
        entries.push(count);
        candidates.push(count);
        winners.push(0);
        scores.push(0.0);
        states.push(0);
    }
    let (beams, next) = (scores.len(), vec![0; winners.iter().sum::<i64>() as usize]);
    let levels = BeamLimits::ALL.levels;
    let mut inputs = Inputs::new()
        .with("entries", HostTensor::lengths(&entries))
        .with("candidates", HostTensor::lengths(&candidates))
        .with("winners", HostTensor::lengths(&winners))
        .with("scores", HostTensor::vector(&scores))
        .with("states", HostTensor::vector(&states))
        .with("kept", HostTensor::zeros(DType::I32, vec![beams])?)
        .with("rows", HostTensor::zeros(DType::I32, vec![beams, levels])?)
        .with("place", HostTensor::vector(&vec![false; levels]))
        .with("next.entries", HostTensor::lengths(&next))
        .with("before.lengths", HostTensor::lengths(&next))
        .with("prompt.lengths", HostTensor::lengths(&vec![0; winners.len()]))
        .with("prompt", HostTensor::vector::<u32>(&[]));
    inputs.extend(trie.tensors.iter().map(|(name, tensor)| (*name, RunValue::Device(tensor.clone()))));
    OF_RUN.into_iter().chain(["rows"]).for_each(|name| inputs.keep_on_device(name));
    Ok(inputs)
}

/// The rows and tokens of all candidates of selections.
pub(super) fn of_selections(selections: &[Selection]) -> [Vec<u32>; 2] {
    let (mut rows, mut tokens) = (vec![], vec![]);
    for selection in selections {
        for beam in &selection.beams {
            let after = selection.trie.tables.tokens_after(beam.state);
            rows.extend(std::iter::repeat_n(beam.sequence as u32, after.len()));
            tokens.extend(after.iter().map(|&token| token as u32));
        }
    }
    [rows, tokens]
}

/// An output of a run.
pub(super) async fn read(
    session: &Session,
    outputs: &Outputs,
    name: &'static str,
) -> Result<HostTensor, GenerateError> {
    match outputs.value(name) {
        Some(RunValue::Device(tensor)) => Ok(session.read_async(tensor).await?),
        Some(RunValue::Host(tensor)) => Ok(tensor.clone()),
        None => Err(missing(name)),
    }
}

/// The scores of a step.
fn scores(outputs: &Outputs) -> Result<Vec<f64>, GenerateError> {
    let scores = outputs.get("scores").map(HostTensor::to_f64).unwrap_or_default();
    if scores.iter().any(|score| score.is_nan()) { Err(not_numbers()) } else { Ok(scores) }
}

pub(super) fn not_numbers() -> GenerateError {
    GenerateError::Output { name: "asked", reason: "has values that are not numbers".to_owned() }
}

fn missing(name: &'static str) -> GenerateError {
    GenerateError::Output { name, reason: "is missing".to_owned() }
}
