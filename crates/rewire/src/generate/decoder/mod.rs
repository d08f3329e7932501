//! Language models from Hugging Face checkpoints: logits, beam search for items inside a trie, and sampling of tokens.
//!
//! ```
//! use rewire::Kernel;
//! use rewire::generate::decoder::{Decoder, Task};
//! use rewire::generate::{Sampling, Trie};
//! use rewire::rank::RankOptions;
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/decoders/qwen3");
//! let mut decoder = Decoder::open(folder.as_ref(), &RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() })?;
//! let items = [(100, vec![319, 360, 366]), (101, vec![319, 338]), (102, vec![7, 21, 300])];
//! let trie = Trie::of_tokens(decoder.config().vocabulary(), items)?;
//! let mut queue = decoder.queue(64)?;
//! let search = queue.submit(&[87, 173, 158], Task::Search { trie: &trie, width: 2 })?;
//! let drawn = queue.submit(&[5, 1, 7, 20], Task::Sample(Sampling { tokens: 4, ..Sampling::default() }))?;
//! while !queue.is_empty() {
//!     for progress in queue.step()? {
//!         println!("{:?}: {:?}", progress.request, progress.tokens);
//!         if progress.request == search && progress.found.is_some() {
//!             queue.cancel(drawn);
//!         }
//!     }
//! }
//! assert_eq!(queue.rows(), 0);
//! # Ok::<(), rewire::generate::GenerateError>(())
//! ```

mod device;
#[cfg(feature = "files")]
mod files;
mod queue;
#[cfg(feature = "train")]
mod train;

#[cfg(feature = "files")]
pub use files::{Prompt, read_items, read_prompts};
pub use queue::{Queue, Task};
pub use rewire_decoders::{Config, ConfigError};
#[cfg(feature = "train")]
pub use train::{examples, examples_in_trie, objective, objective_in_trie};

use super::beam::Search;
use super::draw::Draw;
use super::requests::{Answers, Asked, Autoregressive, Encoded, Sequence, Work, together};
use super::resident::Selection;
use super::{Found, GenerateError, Sampling, Trie, floats, joined, lengths};
use crate::package::Package;
use crate::program::{ModelFile, config_of_package, stored};
use crate::rank::{RankError, RankOptions, config_of_decoder};
use crate::weights::Weights;
use device::{DeviceBeams, not_numbers, of_selections, read};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::Plan;
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, Report, Session, block_on};
use std::future::Ready;
use std::ops::ControlFlow;

/// Items by their tokens, and their trie.
#[derive(Debug)]
struct Items {
    tokens: Vec<Vec<u32>>,
    trie: Trie,
}

/// The type of an absent callback.
type Unwatched = fn(usize, &[u32]) -> Ready<ControlFlow<()>>;

/// A language model, ready to generate.
///
/// A prompt is computed once. Beams read its keys and values, and those of their own tokens, in place, by index.
#[derive(Debug)]
pub struct Decoder {
    config: Config,
    session: Session,
    /// The steps of searches on the device, after the first one.
    beams: Option<DeviceBeams>,
    /// The latest items of [`Decoder::answer_async`].
    items: Option<Items>,
    /// Whether logits that are not requested can stay on a device.
    has_device: bool,
}

impl Decoder {
    /// Loads a model from its configuration and checkpoint. Weights keep their stored type; weights of several types are converted to
    /// f32.
    ///
    /// # Errors
    /// [`GenerateError`] names the tensor that does not fit, or the missing feature of a device.
    pub fn load(config: &Config, weights: &Weights<'_>, options: ModelOptions) -> Result<Self, GenerateError> {
        let plan = lower(&optimize(config.trace(weights.common_float())?)?.0)?;
        let options = ModelOptions { clamp_ids: false, ..options };
        Ok(Self::new(config.clone(), Model::load(plan, weights, options)?.session()))
    }

    fn new(config: Config, session: Session) -> Self {
        let has_device = session.report().adapter.is_some();
        Self { config, session, beams: None, items: None, has_device }
    }

    /// Loads a Hugging Face folder, or a package of one.
    ///
    /// # Errors
    /// [`GenerateError`] names the invalid file, key or tensor, or the missing feature of a device.
    pub async fn from_file_async(file: &ModelFile, options: &RankOptions) -> Result<Self, GenerateError> {
        if let ModelFile::Package(package) = file {
            return Self::from_package_async(package, options).await;
        }
        let (config, plan) = (config_of_decoder(file.config())?, file.plan(options.precision)?);
        Self::load_async(config, plan, &file.weights()?, options.of_model()).await
    }

    /// Loads a package of a Hugging Face folder, without tracing or rewriting.
    ///
    /// # Errors
    /// As [`Decoder::from_file_async`].
    pub async fn from_package_async(package: &Package, options: &RankOptions) -> Result<Self, GenerateError> {
        let config = config_of_decoder(config_of_package(package))?;
        let plan = stored(package.plan().map_err(RankError::from)?, options.precision)?;
        let with = package.of_model(options).map_err(RankError::from)?;
        Self::load_async(config, plan, package.weights(), with).await
    }

    /// [`Decoder::from_package_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::from_file_async`].
    pub fn from_package(package: &Package, options: &RankOptions) -> Result<Self, GenerateError> {
        block_on(Self::from_package_async(package, options))
    }

    async fn load_async(
        config: Config,
        plan: Plan,
        weights: &Weights<'_>,
        options: ModelOptions,
    ) -> Result<Self, GenerateError> {
        let options = ModelOptions { clamp_ids: false, ..options };
        Ok(Self::new(config, Model::load_async(plan, weights, options).await?.session()))
    }

    /// Opens a Hugging Face folder, `config.json` and `model.safetensors` or its index with the files that it names, or a package of one.
    ///
    /// # Errors
    /// As [`Decoder::from_file_async`].
    #[cfg(feature = "files")]
    pub fn open(path: &std::path::Path, options: &RankOptions) -> Result<Self, GenerateError> {
        block_on(Self::from_file_async(&ModelFile::open(path, options.mapping)?, options))
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The device that runs its kernels.
    pub fn report(&self) -> Report {
        self.session.report()
    }

    /// The logits `[tokens, vocabulary]` after every token of a prompt and its continuation. With an encoder, the prompt is the encoder's, and the
    /// logits are those after the start token and every token of the continuation.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, or the error of a run.
    pub async fn logits_async(&mut self, prompt: &[u32], continuation: &[u32]) -> Result<HostTensor, GenerateError> {
        self.check(0, prompt)?;
        self.reserve((prompt.len() + continuation.len() + 1).next_power_of_two()).await?;
        let rows = |count: usize| (0..count as u32).collect::<Vec<u32>>();
        let (first, memory) = match self.start() {
            Some(start) => (vec![start], rows(prompt.len())),
            None => (prompt.to_vec(), vec![]),
        };
        if !memory.is_empty() {
            self.run(&[], &[Encoded { tokens: prompt.to_vec(), rows: memory.clone() }], &[]).await?;
        }
        let tokens = [&first, continuation].concat();
        let all = rows(tokens.len());
        let sequence = Sequence { tokens, kept: all.clone(), memory, ..Sequence::default() };
        let outputs = self.session.run_async(&self.inputs(&[sequence], &[], &all, [&[], &[]])?).await?;
        let logits = floats(outputs.get("logits"), "logits", all.len() * self.config.vocabulary())?;
        Ok(HostTensor::f32(vec![all.len(), self.config.vocabulary()], &logits)?)
    }

    /// [`Decoder::logits_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::logits_async`].
    pub fn logits(&mut self, prompt: &[u32], continuation: &[u32]) -> Result<HostTensor, GenerateError> {
        block_on(self.logits_async(prompt, continuation))
    }

    /// The best items of a trie for each prompt, best first; ties are ordered by smaller tokens.
    ///
    /// On a device, the trie and the beams stay in device memory. The trie is kept for the next search with the same
    /// trie or a clone of it.
    ///
    /// Every level keeps the `width` most likely prefixes and items, so the search is exact if these are all. A score is the sum of the
    /// log-probabilities of the tokens, normalized over the whole vocabulary.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, [`GenerateError::Widths`] for a width of 0, or the error of a run.
    pub async fn search_async(
        &mut self,
        prompts: &[&[u32]],
        trie: &Trie,
        width: usize,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        self.results(prompts, &Task::Search { trie, width }, None::<Unwatched>).await
    }

    /// [`Decoder::search_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::search_async`].
    pub fn search(&mut self, prompts: &[&[u32]], trie: &Trie, width: usize) -> Result<Vec<Vec<Found>>, GenerateError> {
        block_on(self.search_async(prompts, trie, width))
    }

    /// Samples tokens that follow each prompt. A score is the sum of their log-probabilities before temperature, `top_k` and `top_p`. The tokens of a
    /// prompt do not depend on the other prompts.
    ///
    /// # Errors
    /// [`GenerateError::Prompt`] for an empty prompt, [`GenerateError::Sampling`] for an option out of range, or the error of a run.
    pub async fn sample_async(&mut self, prompts: &[&[u32]], sampling: &Sampling) -> Result<Vec<Found>, GenerateError> {
        let task = Task::Sample(sampling.clone());
        let found = self.results(prompts, &task, None::<Unwatched>).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// [`Decoder::sample_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::sample_async`].
    pub fn sample(&mut self, prompts: &[&[u32]], sampling: &Sampling) -> Result<Vec<Found>, GenerateError> {
        block_on(self.sample_async(prompts, sampling))
    }

    /// The results of a task for each prompt. After each token, `watch` receives the index of the prompt and the tokens of its best prefix; if it
    /// breaks, the prompt ends without results and its rows are freed.
    ///
    /// # Errors
    /// As [`Decoder::search_async`] and [`Decoder::sample_async`].
    pub async fn generate_async(
        &mut self,
        prompts: &[&[u32]],
        task: &Task<'_>,
        watch: impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        self.results(prompts, task, Some(watch)).await
    }

    /// [`Decoder::generate_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::generate_async`].
    pub fn generate(
        &mut self,
        prompts: &[&[u32]],
        task: &Task<'_>,
        mut watch: impl FnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        block_on(self.generate_async(prompts, task, async |prompt, tokens| watch(prompt, tokens)))
    }

    /// [`Decoder::generate_async`] with the interface of other languages. With `items`, given as tokens, it searches
    /// them with `width` beams, and the items of results are indices into `items`. Without them it samples tokens. The
    /// trie of `items` is kept for the next call with the same items.
    ///
    /// # Errors
    /// As [`Decoder::generate_async`], and [`GenerateError::Id`] for an item that is empty or has a token outside the
    /// vocabulary.
    pub async fn answer_async(
        &mut self,
        prompts: &[&[u32]],
        (items, width): (Option<Vec<Vec<u32>>>, usize),
        sampling: Sampling,
        watch: impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        let Some(tokens) = items else {
            return self.generate_async(prompts, &Task::Sample(sampling), watch).await;
        };
        let trie = match self.items.take().filter(|known| known.tokens == tokens) {
            Some(known) => known.trie,
            None => Trie::of_tokens(self.config.vocabulary(), (0..).zip(tokens.iter().cloned()))?,
        };
        let found = self.generate_async(prompts, &Task::Search { trie: &trie, width }, watch).await;
        self.items = Some(Items { tokens, trie });
        found
    }

    /// [`Decoder::answer_async`], blocking.
    ///
    /// # Errors
    /// As [`Decoder::answer_async`].
    pub fn answer(
        &mut self,
        prompts: &[&[u32]],
        items: (Option<Vec<Vec<u32>>>, usize),
        sampling: Sampling,
        mut watch: impl FnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        block_on(self.answer_async(prompts, items, sampling, async |prompt, tokens| watch(prompt, tokens)))
    }

    async fn results(
        &mut self,
        prompts: &[&[u32]],
        task: &Task<'_>,
        mut watch: Option<impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>>,
    ) -> Result<Vec<Vec<Found>>, GenerateError> {
        let mut all = vec![];
        for (place, prompt) in prompts.iter().enumerate() {
            self.check(place, prompt)?;
            all.push((prompt.to_vec(), self.work(task.clone())?));
        }
        if let Task::Search { trie, width } = task
            && let Some(search) = self.device_search(prompts, trie, *width).await?
        {
            return self.search_on_device(search, watch).await;
        }
        let watch = async |prompt: usize, tokens: &[u32]| match &mut watch {
            Some(watch) => watch(prompt, tokens).await,
            None => ControlFlow::Continue(()),
        };
        together(self, watch, all).await
    }

    fn check(&self, prompt: usize, tokens: &[u32]) -> Result<(), GenerateError> {
        let vocabulary = self.config.vocabulary();
        if tokens.is_empty() {
            return Err(GenerateError::Prompt { prompt });
        }
        match tokens.iter().find(|&&token| token as usize >= vocabulary) {
            Some(&token) => Err(GenerateError::Token { token, vocabulary }),
            None => Ok(()),
        }
    }

    fn work<'a>(&self, task: Task<'a>) -> Result<Work<'a>, GenerateError> {
        match task {
            Task::Search { trie, width: 0 } => Err(GenerateError::Widths { levels: trie.levels(), widths: vec![0] }),
            Task::Search { trie, width } => Ok(Work::Search(Search::new(trie, vec![width]))),
            Task::Sample(mut sampling) => {
                sampling.stop.extend(self.config.stop());
                Ok(Work::Draw(Draw::new(sampling)?))
            }
        }
    }

    /// The inputs of a run, given the rows whose logits are requested, and the tokens of rows whose probabilities are
    /// requested.
    fn inputs(
        &self,
        sequences: &[Sequence],
        prompts: &[Encoded],
        wanted: &[u32],
        [rows, tokens]: [&[u32]; 2],
    ) -> Result<Inputs, GenerateError> {
        // Lists of sequences and prompts are not empty.
        let (none, no_prompt) = ([Sequence::default()], [Encoded::default()]);
        let sequences = if sequences.is_empty() { &none } else { sequences };
        let prompts = if prompts.is_empty() { &no_prompt } else { prompts };
        let all = |part: fn(&Sequence) -> &Vec<u32>| sequences.iter().map(part);
        let mut inputs = Inputs::new()
            .with("lengths", lengths(all(|sequence| &sequence.tokens)))
            .with("tokens", joined(all(|sequence| &sequence.tokens)))
            .with("kept", joined(all(|sequence| &sequence.kept)))
            .with("before.lengths", lengths(all(|sequence| &sequence.before)))
            .with("before", joined(all(|sequence| &sequence.before)))
            .with("wanted", HostTensor::vector(wanted))
            .with("asked.rows", HostTensor::vector(rows))
            .with("asked.tokens", HostTensor::vector(tokens));
        if self.has_device && !sequences.iter().any(asks_for_logits) {
            inputs.keep_on_device("logits");
        }
        match self.config.rope() {
            Some(rope) => {
                let positions = sequences.iter().flat_map(|sequence| {
                    let first = sequence.before.len() as u32;
                    first..first + sequence.tokens.len() as u32
                });
                let [cos, sin] = rope.tables(&positions.collect::<Vec<_>>())?;
                inputs = inputs.with("cos", cos).with("sin", sin);
            }
            None => {
                inputs = inputs
                    .with("memory.lengths", lengths(all(|sequence| &sequence.memory)))
                    .with("memory", joined(all(|sequence| &sequence.memory)))
                    .with("encoder.kept.lengths", lengths(prompts.iter().map(|prompt| &prompt.rows)))
                    .with("encoder.tokens", joined(prompts.iter().map(|prompt| &prompt.tokens)))
                    .with("encoder.kept", joined(prompts.iter().map(|prompt| &prompt.rows)));
            }
        }
        Ok(inputs)
    }
}

fn asks_for_logits(sequence: &Sequence) -> bool {
    matches!(sequence.asked, Asked::Logits)
}

/// The last rows of sequences.
fn ends(sequences: &[Sequence]) -> Vec<u32> {
    let ends = sequences.iter().scan(0, |end, sequence| {
        *end += sequence.tokens.len() as u32;
        Some(*end - 1)
    });
    ends.collect()
}

impl Autoregressive for Decoder {
    fn token(&self, _: usize, code: u32) -> u32 {
        code
    }

    fn start(&self) -> Option<u32> {
        self.config.start()
    }

    async fn reserve(&mut self, rows: usize) -> Result<(), GenerateError> {
        Ok(self.session.reserve_states_async(rows).await?)
    }

    async fn run(
        &mut self,
        sequences: &[Sequence],
        prompts: &[Encoded],
        selections: &[Selection],
    ) -> Result<Answers, GenerateError> {
        let wanted = ends(sequences);
        let [mut rows, mut tokens] = of_selections(selections);
        let of_device = tokens.len();
        for (row, sequence) in (0u32..).zip(sequences) {
            if let Asked::Codes { codes, .. } = &sequence.asked {
                rows.extend(std::iter::repeat_n(row, codes.len()));
                tokens.extend(codes);
            }
        }
        let mut inputs = self.inputs(sequences, prompts, &wanted, [&rows, &tokens])?;
        if !selections.is_empty() {
            inputs.keep_on_device("asked");
        }
        let outputs = self.session.run_async(&inputs).await?;
        let selections = self.select(&outputs, selections, tokens.len() - of_device).await?;
        let asked = match tokens.len() > of_device {
            true => floats(Some(&read(&self.session, &outputs, "asked").await?), "asked", tokens.len())?,
            false => vec![],
        };
        if asked.iter().any(|logarithm| logarithm.is_nan()) {
            return Err(not_numbers());
        }
        let vocabulary = self.config.vocabulary();
        let logits = match sequences.iter().any(asks_for_logits) {
            true => floats(outputs.get("logits"), "logits", wanted.len() * vocabulary)?,
            false => vec![],
        };
        let mut asked = asked.into_iter().skip(of_device);
        let answer = |(row, sequence): (usize, &Sequence)| match &sequence.asked {
            Asked::Codes { codes, .. } => asked.by_ref().take(codes.len()).collect(),
            Asked::Logits => logits.chunks_exact(vocabulary).nth(row).map(<[f32]>::to_vec).unwrap_or_default(),
            Asked::Selection => vec![],
        };
        Ok(Answers { sequences: sequences.iter().enumerate().map(answer).collect(), selections })
    }
}
