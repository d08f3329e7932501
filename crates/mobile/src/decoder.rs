use crate::ranker::given;
use crate::{CancellationToken, Options, RewireError};
use rewire::generate::decoder;
use rewire::generate::{Found, GenerateError, Sampling};
use rewire::package::Package;
use rewire::rank::RankOptions;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A language model, ready to generate. Calls from several threads run one after the other.
#[derive(Debug, uniffi::Object)]
pub struct Decoder(Mutex<decoder::Decoder>);

/// A generated sequence of tokens.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct Generated {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The sum of their log-probabilities.
    pub score: f64,
    /// Indices of the items with these tokens in `items`.
    pub items: Vec<i64>,
}

/// Receives progress after each token.
#[uniffi::export(with_foreign)]
pub trait TokenListener: Send + Sync {
    /// Receives the index of a prompt and the tokens of its best prefix. If it returns false, the prompt ends without a
    /// result.
    fn on_token(&self, prompt: u32, tokens: Vec<u32>) -> bool;
}

#[uniffi::export]
impl Decoder {
    /// Loads a model: a package of a language model or, unless the library was built only for packages, a Hugging Face
    /// folder with `config.json` and `model.safetensors` or its index. Without options it runs on a hardware GPU if one
    /// exists, otherwise on the CPU. Blocks.
    #[uniffi::constructor(default(options = None))]
    pub fn load(path: String, options: Option<Options>) -> Result<Self, RewireError> {
        let opened = open(Path::new(&path), &given(options));
        opened.map(Self::of).map_err(|error| RewireError::of_loading(&error))
    }

    /// Loads a package from memory; otherwise like `load`.
    #[uniffi::constructor(default(options = None))]
    pub fn from_bytes(bytes: Vec<u8>, options: Option<Options>) -> Result<Self, RewireError> {
        let package = Package::parse(bytes).map_err(RewireError::of_model)?;
        let opened = decoder::Decoder::from_package(&package, &given(options));
        opened.map(Self::of).map_err(|error| RewireError::of_loading(&error))
    }

    /// Number of tokens of the vocabulary.
    pub fn vocab_size(&self) -> u32 {
        let vocabulary = self.with(|decoder| decoder.config().vocabulary());
        u32::try_from(vocabulary).unwrap_or(u32::MAX)
    }

    /// Name of the GPU that it uses, or `cpu`.
    pub fn device(&self) -> String {
        self.with(|decoder| decoder.report().adapter).unwrap_or_else(|| "cpu".to_owned())
    }

    /// The best sequences for each prompt, best first. With `items`, token lists of any length, it finds items by beam
    /// search with `num_beams` beams. Without, it samples up to `max_new_tokens` tokens; `temperature` 0 selects the
    /// most likely ones. Prompts run together and do not affect each other's results. A cancelled `token` ends the call
    /// before its next run. Blocks.
    #[uniffi::method(default(items = None, num_beams = 10, max_new_tokens = 32, temperature = 0.0, top_k = None, top_p = 1.0,
                             seed = 0, stop = [], on_token = None, token = None))]
    #[allow(clippy::too_many_arguments, reason = "they are named")]
    pub fn generate(
        &self,
        prompts: Vec<Vec<u32>>,
        items: Option<Vec<Vec<u32>>>,
        num_beams: u32,
        max_new_tokens: u32,
        temperature: f64,
        top_k: Option<u32>,
        top_p: f64,
        seed: u64,
        stop: Vec<u32>,
        on_token: Option<Arc<dyn TokenListener>>,
        token: Option<Arc<CancellationToken>>,
    ) -> Result<Vec<Vec<Generated>>, RewireError> {
        let (tokens, top_k) = (max_new_tokens as usize, top_k.map(|count| count as usize));
        let sampling = Sampling { tokens, temperature, top_k, top_p, seed, stop };
        let is_cancelled = || token.as_deref().is_some_and(CancellationToken::is_cancelled);
        let goes_on = |prompt: usize, tokens: &[u32]| {
            !is_cancelled()
                && on_token.as_deref().is_none_or(|listener| listener.on_token(prompt as u32, tokens.to_vec()))
        };
        let watch = |prompt: usize, tokens: &[u32]| match goes_on(prompt, tokens) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        if is_cancelled() {
            return Err(RewireError::Cancelled);
        }
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let found = self.with(|decoder| decoder.answer(&prompts, (items, num_beams as usize), sampling, watch));
        match is_cancelled() {
            true => Err(RewireError::Cancelled),
            false => Ok(found?.into_iter().map(|found| found.into_iter().map(Generated::from).collect()).collect()),
        }
    }
}

impl Decoder {
    fn of(decoder: decoder::Decoder) -> Self {
        Self(Mutex::new(decoder))
    }

    fn with<T>(&self, work: impl FnOnce(&mut decoder::Decoder) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn open(path: &Path, options: &RankOptions) -> Result<decoder::Decoder, GenerateError> {
    #[cfg(feature = "folders")]
    return decoder::Decoder::open(path, options);
    #[cfg(not(feature = "folders"))]
    {
        let package = Package::read_mapping(path, options.mapping).map_err(rewire::rank::RankError::from)?;
        decoder::Decoder::from_package(&package, options)
    }
}

impl From<Found> for Generated {
    fn from(Found { codes, items, score }: Found) -> Self {
        Self { tokens: codes, score, items }
    }
}
