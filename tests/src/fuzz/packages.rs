//! Packages that are changed and sealed again: their hashes are valid for any content.

use super::plans::{ABSURD, SMALL, changed};
use crate::noise::Noise;
use rewire::package::Package;
use rewire::rank::{Batch, Embedded, Embedder, PackOptions, RankError, RankOptions, Ranker, pack};
use rewire::weights::{Weights, serialize};
use rewire_emit::mapping::map;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_hstu::models::hstu_match::MatchConfig;
use rewire_runtime::{Kernel, Tables};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use twox_hash::XxHash3_128;

const PACKAGE: &[u8] = include_bytes!("../../../crates/cli/tests/packages/format-1.rewire");
const APART: &[u8] = include_bytes!("../../../crates/cli/tests/packages/format-3.rewire");
const TABLES: &[u8] = include_bytes!("../../../crates/cli/tests/packages/format-3.safetensors");
const USERS: &str = include_str!("../../../crates/cli/tests/packages/users.jsonl");

/// Bytes before the length of the head, and the number of these before the hash.
const HEADER: usize = 48;
const HASHED: usize = 32;
/// Parts begin at multiples of this.
const ALIGNMENT: usize = 64;

/// The parts of a package.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Its first bytes, before the hash.
    header: Vec<u8>,
    /// The original lengths of its parts.
    lengths: Value,
    /// Its head, without the lengths of its parts.
    pub head: Value,
    /// The plan.
    pub plan: Value,
    /// Its kernels.
    pub kernels: Value,
    /// The bytes of its weights.
    pub weights: Vec<u8>,
}

/// The parts of the tests' stored package.
pub fn kept() -> &'static Parts {
    static KEPT: OnceLock<Parts> = OnceLock::new();
    KEPT.get_or_init(|| {
        let kept = Parts::of(PACKAGE);
        rank(kept.sealed()).unwrap();
        kept
    })
}

/// The parts of the tests' stored package with tables in a separate file, and that file.
pub fn kept_apart() -> &'static (Parts, Vec<u8>) {
    static KEPT: OnceLock<(Parts, Vec<u8>)> = OnceLock::new();
    KEPT.get_or_init(|| {
        let kept = (Parts::of(APART), TABLES.to_vec());
        rank_apart(kept.0.sealed(), kept.1.clone()).unwrap();
        kept
    })
}

impl Parts {
    /// The parts of a package.
    pub fn of(package: &[u8]) -> Self {
        let length = u64::from_le_bytes(package[HEADER..HEADER + 8].try_into().unwrap()) as usize;
        let mut end = HEADER + 8 + length;
        let head: Value = serde_json::from_slice(&package[HEADER + 8..end]).unwrap();
        let mut part = |number: usize, name: &str| {
            let told = &head["parts"][number];
            assert_eq!(told["name"], name);
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + told["bytes"].as_u64().unwrap() as usize;
            &package[start..end]
        };
        let [plan, kernels] =
            [(0, "plan"), (1, "kernels")].map(|(at, name)| serde_json::from_slice(part(at, name)).unwrap());
        let weights = part(2, "weights").to_vec();
        assert_eq!(end, package.len());
        let header = package[..HASHED].to_vec();
        let own = Self { header, lengths: head["parts"].clone(), plan, kernels, weights, head };
        assert_eq!(own.sealed().len(), package.len());
        own
    }

    /// Serializes them as a package with a valid hash, and valid lengths unless the head contains others.
    pub fn sealed(&self) -> Vec<u8> {
        let [plan, kernels] = [&self.plan, &self.kernels].map(|part| serde_json::to_vec(part).unwrap());
        let mut head = self.head.clone();
        let told = [0, 1, 2].map(|number| {
            let parts = [&head["parts"], &self.lengths].map(|parts| parts.get(number));
            parts[0].is_some() && parts[0] == parts[1]
        });
        for (number, (part, was)) in [plan.len(), kernels.len(), self.weights.len()].into_iter().zip(told).enumerate() {
            if was {
                head["parts"][number]["bytes"] = part.into();
            }
        }
        let head = serde_json::to_vec(&head).unwrap();
        let mut bytes = self.header.clone();
        bytes.resize(HEADER, 0);
        bytes.extend((head.len() as u64).to_le_bytes());
        bytes.extend(head);
        for part in [&plan, &kernels, &self.weights] {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            bytes.extend(part);
        }
        seal(&mut bytes);
        bytes
    }
}

/// Writes length and hash of a package into its header.
pub fn seal(bytes: &mut [u8]) {
    let length = bytes.len() as u64;
    bytes[24..32].copy_from_slice(&length.to_le_bytes());
    let hash = XxHash3_128::oneshot(&[&bytes[..HASHED], &bytes[HEADER..]].concat());
    bytes[HASHED..HEADER].copy_from_slice(&hash.to_le_bytes());
}

/// Emits the kernels of a package for its devices, and ranks the users of the tests with it, on the CPU.
///
/// # Errors
/// The error of the package or the run.
pub fn rank(package: Vec<u8>) -> Result<usize, RankError> {
    rank_with(&Package::parse(package)?, Tables::Auto)
}

/// [`rank`] with a separate file of tables.
///
/// # Errors
/// The error of the package, the file or the run.
pub fn rank_apart(package: Vec<u8>, tables: Vec<u8>) -> Result<usize, RankError> {
    let package = Package::parse_with_tables(package, tables)?;
    drop(package.check_tables());
    rank_with(&package, Tables::Host)
}

fn rank_with(package: &Package, tables: Tables) -> Result<usize, RankError> {
    let options = RankOptions { kernel: Kernel::Cpu, tables, ..RankOptions::default() };
    drop(package.kernels());
    drop(package.tunings());
    for target in package.targets()? {
        drop(map(&package.plan()?, &target, &Tuning::default()));
    }
    let ranker = Ranker::from_package(package, &options)?;
    let batch = users(ranker.batch());
    Ok(ranker.rank_batch(&batch)?.len())
}

/// The users of the tests, up to the first invalid one.
fn users(mut batch: Batch) -> Batch {
    for line in USERS.lines() {
        if batch.push_json(line.as_bytes()).is_err() {
            break;
        }
    }
    batch
}

/// A matching model of the features of the users of the tests.
fn config() -> String {
    let config = json!({
        "model": "hstu_match",
        "features": {
            "item_id": { "num_embeddings": 30, "embedding_dim": 8 }, "genre": { "num_embeddings": 5, "embedding_dim": 4 },
        },
        "feature_groups": { "uih": ["item_id", "genre"], "candidate": ["item_id", "genre"] },
        "hstu": {
            "stu": { "embedding_dim": 12, "num_heads": 2, "hidden_dim": 4, "attention_dim": 4 },
            "attn_num_layers": 1,
            "input_preprocessor": { "uih_preprocessor": {} },
            "positional_encoder": { "num_position_buckets": 16 },
            "output_postprocessor": { "l2norm_postprocessor": {} },
        },
        "output_dim": 5,
        "max_seq_len": 20,
    });
    config.to_string()
}

/// The parts of the package of a matching model with random weights.
pub fn matching() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let (text, mut noise) = (config(), Noise::new(7, "matching"));
        let mut tensor = |shape: Vec<usize>| {
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|_| (noise.bits() % 2000) as f32 / 1000.0 - 1.0).collect();
            HostTensor::f32(shape, &values).unwrap()
        };
        let specs = MatchConfig::from_json(&text).unwrap().trace().unwrap().parameters();
        let tensors: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.name, tensor(spec.shape))).collect();
        let weights = serialize(&tensors, &BTreeMap::new()).unwrap();
        let package = pack("test", &text, &Weights::parse(&weights).unwrap(), &PackOptions::default()).unwrap();
        let parts = Parts::of(package.bytes());
        embed(parts.sealed()).unwrap();
        parts
    })
}

/// Embeds the users of the tests and their candidates with the package of a matching model, on the CPU.
///
/// # Errors
/// The error of the package or the run.
pub fn embed(package: Vec<u8>) -> Result<usize, RankError> {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let package = Package::parse(package)?;
    let embedded = |of: Embedded| -> Result<usize, RankError> {
        let embedder = Embedder::from_package(&package, of, &options)?;
        Ok(embedder.embed(&users(embedder.batch()))?.of.len())
    };
    Ok(embedded(Embedded::Users)? + embedded(Embedded::Items)?)
}

/// The stored package with changes, see [`changed_parts`].
pub fn changed_package(part: usize, numbers: &[i64], choices: &[(usize, u64)]) -> Vec<u8> {
    changed_parts(kept(), part, numbers, choices)
}

/// A package with changes, each at a position and with a choice: in its head, its plan, its kernels or its weights.
pub fn changed_parts(parts: &Parts, part: usize, numbers: &[i64], choices: &[(usize, u64)]) -> Vec<u8> {
    let mut parts = parts.clone();
    match part % 4 {
        0 => parts.head = changed(&parts.head, numbers, choices),
        1 => parts.plan = changed(&parts.plan, numbers, choices),
        2 => {
            parts.kernels[0]["tunings"] = tunings();
            parts.kernels = changed(&parts.kernels, numbers, choices);
        }
        _ => {
            for &(place, choice) in choices {
                // Half of the changes are in the header of the weights.
                let end = if choice.is_multiple_of(2) { 2000 } else { parts.weights.len() };
                parts.weights[place % end] ^= (choice >> 8) as u8;
            }
        }
    }
    parts.sealed()
}

/// The stored package with a separate file of tables, and the file, with changes: in the file's header or its tensors, or in
/// the package's description of it. The hashes of the file are valid, unless the description has changed.
pub fn changed_apart(part: usize, numbers: &[i64], choices: &[(usize, u64)]) -> (Vec<u8>, Vec<u8>) {
    let (mut parts, tables) = kept_apart().clone();
    let (mut header, mut content) = safetensors(&tables);
    match part % 3 {
        0 => header = changed(&header, numbers, choices),
        1 => {
            for &(place, choice) in choices {
                match choice % 3 {
                    0 => content.truncate(place % (content.len() + 1)),
                    1 => content.extend(choice.to_le_bytes()),
                    _ => {
                        let end = content.len();
                        content
                            .iter_mut()
                            .skip(place % end.max(1))
                            .take(1)
                            .for_each(|byte| *byte ^= (choice >> 8) as u8);
                    }
                }
            }
        }
        _ => parts.head["tables"] = changed(&parts.head["tables"], numbers, choices),
    }
    let text = serde_json::to_vec(&header).unwrap();
    let header = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    if part % 3 < 2 {
        let hash = |bytes: &[u8]| format!("{:032x}", XxHash3_128::oneshot(bytes));
        let (bytes, file) = (header.len() + content.len(), parts.head["tables"]["file"].clone());
        parts.head["tables"] =
            json!({ "file": file, "bytes": bytes, "header": hash(&header), "content": hash(&content) });
    }
    (parts.sealed(), [header, content].concat())
}

/// The header of a safetensors file and the bytes after it.
fn safetensors(bytes: &[u8]) -> (Value, Vec<u8>) {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
}

/// Tunings of a device in the format of packages.
fn tunings() -> Value {
    let device = json!({ "name": "x", "backend": "vulkan", "driver": "1", "target": Target::BASELINE, "emitter": "0" });
    let sizes = json!({ "64x1": { "rows": 16, "columns": 32 }, "64x2": { "threads": 64, "matrices": true } });
    json!({ "device": device, "kernels": { "0": { "matrices": true, "sizes": sizes } } })
}

/// Decodes changes, eight bytes each: the part, the numbers to use, and the choices.
fn changes(data: &[u8]) -> (usize, &'static [i64], Vec<(usize, u64)>) {
    let words = data.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let choices = words.map(|bits| ((bits & 0xffff) as usize, bits >> 16)).collect();
    (data.len() / 2, if data.len().is_multiple_of(2) { SMALL } else { ABSURD }, choices)
}

/// Loads and runs the stored package with decoded changes.
pub(super) fn run_changed(data: &[u8]) {
    let (part, numbers, choices) = changes(data);
    drop(rank(changed_package(part, numbers, &choices)));
}

/// Loads and runs the stored package with a separate file of tables, with decoded changes.
pub(super) fn run_apart(data: &[u8]) {
    let (part, numbers, choices) = changes(data);
    let (package, tables) = changed_apart(part, numbers, &choices);
    drop(rank_apart(package, tables));
}

/// Loads the package of a matching model with decoded changes, and embeds with it.
pub(super) fn run_matching(data: &[u8]) {
    let (part, numbers, choices) = changes(data);
    drop(embed(changed_parts(matching(), part, numbers, &choices)));
}

/// One to three changes of either kind in every part.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bytes = |seed| {
        let mut noise = Noise::new(seed, "package");
        let count = 8 * noise.below(1, 4) + noise.below(0, 8);
        (0..count).map(|_| noise.bits() as u8).collect()
    };
    (0..40).map(bytes).collect()
}
