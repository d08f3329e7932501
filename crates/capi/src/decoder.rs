//! Language models: beam search for items, and sampling of tokens.

use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::cancellation::CancellationToken;
use crate::options::{Options, given};
use rewire::generate::decoder;
use rewire::generate::{Found, GenerateError, Sampling};
use rewire::package::Package;
use rewire::rank::RankOptions;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A language model, ready to generate. Threads that share a decoder wait for each other.
#[derive(Debug)]
pub struct Decoder(Mutex<decoder::Decoder>);

/// Lists of tokens, concatenated: list `n` is `offsets[n]` to `offsets[n + 1]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TokenLists {
    /// The number of lists.
    pub count: usize,
    /// Offsets in `tokens`, one more than lists.
    pub offsets: *const usize,
    /// The tokens of all lists.
    pub tokens: *const u32,
}

/// Options of a generation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// Beam width of a search in items.
    pub num_beams: usize,
    /// Maximum number of new tokens per prompt, without items.
    pub max_new_tokens: usize,
    /// Logits are divided by it; 0 selects the most likely token.
    pub temperature: f64,
    /// Sample only from this many most likely tokens; 0 for all.
    pub top_k: usize,
    /// Sample only from the smallest set of most likely tokens whose probabilities add up to it.
    pub top_p: f64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Tokens that end a sequence, in addition to those of the model's configuration.
    pub stop: *const u32,
    /// Number of these tokens.
    pub stop_count: usize,
}

/// Receives the caller's context, the index of a prompt, and the `count` tokens of its best prefix. If it returns 0,
/// the prompt ends without a result.
pub type OnToken =
    Option<unsafe extern "C" fn(context: *mut c_void, prompt: usize, tokens: *const u32, count: usize) -> i32>;

/// Generated sequences.
#[derive(Debug, Default)]
pub struct Generation {
    offsets: Vec<usize>,
    scores: Vec<f64>,
    token_offsets: Vec<usize>,
    tokens: Vec<u32>,
    item_offsets: Vec<usize>,
    items: Vec<i64>,
}

/// The columns of a generation. The sequences of prompt `n`, best first, are `offsets[n]` to `offsets[n + 1]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// The number of prompts.
    pub prompts: usize,
    /// The number of sequences of all prompts.
    pub count: usize,
    /// Offsets of the sequences of each prompt, one more than prompts.
    pub offsets: *const usize,
    /// Per sequence, the sum of the log-probabilities of its tokens.
    pub scores: *const f64,
    /// Offsets in `tokens`, one more than sequences.
    pub token_offsets: *const usize,
    /// The tokens of all sequences.
    pub tokens: *const u32,
    /// Offsets in `items`, one more than sequences.
    pub item_offsets: *const usize,
    /// Indices of the given items with these tokens.
    pub items: *const i64,
}

/// Loads a package of a language model or, unless the library was built only for packages, a Hugging Face folder with
/// `config.json` and `model.safetensors` or its index. `options` may be null.
///
/// # Safety
/// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_decoder_load(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Decoder,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let opened = open(path, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Decoder(Mutex::new(opened)), out) }
    })
}

/// Loads a package from memory. Its bytes are copied. `options` may be null.
///
/// # Safety
/// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_decoder_from_bytes(
    bytes: *const u8,
    count: usize,
    options: *const Options,
    out: *mut *mut Decoder,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (bytes, options) = unsafe { (slice(bytes, count, "bytes")?, given(options)) };
        let package = Package::parse(bytes.to_vec()).map_err(|error| Failure::of(Status::Model)(&error))?;
        let opened = decoder::Decoder::from_package(&package, &options);
        let opened = opened.map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Decoder(Mutex::new(opened)), out) }
    })
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

/// Number of tokens of the vocabulary; 0 for null.
///
/// # Safety
/// `decoder` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_decoder_vocab_size(decoder: *const Decoder) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(decoder, "decoder") }.map_or(0, |decoder| decoder.with(|decoder| decoder.config().vocabulary()))
}

/// 10 beams; 32 new tokens, always the most likely one.
#[unsafe(no_mangle)]
pub extern "C" fn rewire_generate_options_default() -> GenerateOptions {
    let Sampling { tokens, temperature, top_p, seed, .. } = Sampling::default();
    GenerateOptions {
        num_beams: 10,
        max_new_tokens: tokens,
        temperature,
        top_k: 0,
        top_p,
        seed,
        stop: std::ptr::null(),
        stop_count: 0,
    }
}

/// Generates sequences for each prompt. With `items` it finds items by beam search; if `items` is null, it samples
/// tokens. `options` may be null. Prompts run together and do not affect each other's results. `on_token` may be null;
/// otherwise the calling thread calls it with `context` after each token of a prompt. `token` may be null; if it is
/// cancelled, the call returns `REWIRE_STATUS_CANCELLED` before its next run.
///
/// # Safety
/// `decoder` is null or a handle, `prompts` points to valid lists, `items` and `options` are null or valid, `on_token` takes `context` and does
/// not unwind, `token` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no options by name")]
pub unsafe extern "C" fn rewire_generate(
    decoder: *const Decoder,
    prompts: *const TokenLists,
    items: *const TokenLists,
    options: *const GenerateOptions,
    on_token: OnToken,
    context: *mut c_void,
    token: *const CancellationToken,
    out: *mut *mut Generation,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (decoder, prompts) = unsafe { (read(decoder, "decoder")?, lists(read(prompts, "prompts")?, "prompts")?) };
        // SAFETY: the caller's promise.
        let items = unsafe { items.as_ref().map(|items| lists(items, "items")) }.transpose()?;
        // SAFETY: the caller's promise.
        let (options, token) = unsafe { (options.as_ref().copied(), token.as_ref()) };
        let options = options.unwrap_or_else(|| rewire_generate_options_default());
        // SAFETY: the caller's promise.
        let stop = unsafe { slice(options.stop, options.stop_count, "options.stop") }?;
        let is_cancelled = || token.is_some_and(|token| token.token.is_cancelled());
        let watch = |prompt: usize, tokens: &[u32]| {
            // SAFETY: the caller's promise.
            let told = |tell: unsafe extern "C" fn(_, _, _, _) -> i32| unsafe {
                tell(context, prompt, tokens.as_ptr(), tokens.len())
            };
            match !is_cancelled() && on_token.is_none_or(|tell| told(tell) != 0) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let found = match is_cancelled() {
            true => Ok(vec![]),
            false => decoder.with(|decoder| run(decoder, &prompts, items.as_deref(), &options, stop, watch)),
        };
        if is_cancelled() {
            return Err(Failure::cancelled("the generation was cancelled"));
        }
        let found = found
            .map_err(|error| Failure::of(if error.is_of_request() { Status::Request } else { Status::Run })(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Generation::of(&found), out) }
    })
}

/// The lists of a caller.
///
/// # Safety
/// `offsets` has one entry more than lists, and its last entry is the number of tokens.
unsafe fn lists<'a>(lists: &TokenLists, name: &str) -> Result<Vec<&'a [u32]>, Failure> {
    let places = lists.count.checked_add(1).ok_or_else(|| Failure::argument(name, "fewer lists"))?;
    // SAFETY: the caller's promise.
    let offsets = unsafe { slice(lists.offsets, places, name) }?;
    // SAFETY: the caller's promise.
    let tokens = unsafe { slice(lists.tokens, offsets.last().copied().unwrap_or(0), name) }?;
    let list = |bounds: &[usize]| tokens.get(*bounds.first()?..*bounds.last()?);
    let lists = offsets.windows(2).map(list).collect::<Option<_>>();
    lists.ok_or_else(|| Failure::argument(name, "offsets that do not descend"))
}

fn run(
    decoder: &mut decoder::Decoder,
    prompts: &[&[u32]],
    items: Option<&[&[u32]]>,
    options: &GenerateOptions,
    stop: &[u32],
    watch: impl FnMut(usize, &[u32]) -> ControlFlow<()>,
) -> Result<Vec<Vec<Found>>, GenerateError> {
    let items = items.map(|items| items.iter().map(|item| item.to_vec()).collect());
    let sampling = Sampling {
        tokens: options.max_new_tokens,
        temperature: options.temperature,
        top_k: (options.top_k > 0).then_some(options.top_k),
        top_p: options.top_p,
        seed: options.seed,
        stop: stop.to_vec(),
    };
    decoder.answer(prompts, (items, options.num_beams), sampling, watch)
}

impl Decoder {
    fn with<T>(&self, work: impl FnOnce(&mut decoder::Decoder) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Generation {
    fn of(found: &[Vec<Found>]) -> Self {
        let begin = || vec![0];
        let mut all = Self { offsets: begin(), token_offsets: begin(), item_offsets: begin(), ..Self::default() };
        for found in found {
            for Found { codes, items, score } in found {
                all.scores.push(*score);
                all.tokens.extend(codes);
                all.items.extend(items);
                all.token_offsets.push(all.tokens.len());
                all.item_offsets.push(all.items.len());
            }
            all.offsets.push(all.scores.len());
        }
        all
    }
}

/// The columns of a generation, valid as long as the generation.
///
/// # Safety
/// `generation` is null or a handle, `out` points to a variable for the columns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_generation_columns(generation: *const Generation, out: *mut Generated) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (all, out) = unsafe { (read(generation, "generation")?, change(out, "out")?) };
        *out = Generated {
            prompts: all.offsets.len().saturating_sub(1),
            count: all.scores.len(),
            offsets: all.offsets.as_ptr(),
            scores: all.scores.as_ptr(),
            token_offsets: all.token_offsets.as_ptr(),
            tokens: all.tokens.as_ptr(),
            item_offsets: all.item_offsets.as_ptr(),
            items: all.items.as_ptr(),
        };
        Ok(())
    })
}

/// Frees a generation.
///
/// # Safety
/// `generation` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_generation_free(generation: *mut Generation) {
    // SAFETY: the caller's promise.
    unsafe { free(generation) }
}

/// Frees a decoder. Its generations stay valid.
///
/// # Safety
/// `decoder` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_decoder_free(decoder: *mut Decoder) {
    // SAFETY: the caller's promise.
    unsafe { free(decoder) }
}
