//! Packages that were changed and sealed again: their hashes are right, whatever they hold.

use super::plans::{ABSURD, SMALL, changed};
use crate::noise::Noise;
use rewire::package::Package;
use rewire::rank::{Batch, RankError, RankOptions, Ranker};
use rewire_graph_rewrite::emit::{Target, Tuning};
use rewire_graph_rewrite::mapping::map;
use rewire_runtime::Kernel;
use serde_json::{Value, json};
use std::sync::OnceLock;
use twox_hash::XxHash3_128;

const PACKAGE: &[u8] = include_bytes!("../../../crates/cli/tests/packages/format-1.rewire");
const USERS: &str = include_str!("../../../crates/cli/tests/packages/users.jsonl");

/// Bytes before the length of the head, and those of them that are no hash.
const HEADER: usize = 48;
const HASHED: usize = 32;
/// Parts begin at multiples of this.
const ALIGNMENT: usize = 64;

/// The parts of a package.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What it says of itself, without the places of its parts.
    pub head: Value,
    /// The plan.
    pub plan: Value,
    /// Its kernels.
    pub kernels: Value,
    /// The bytes of its weights.
    pub weights: Vec<u8>,
}

/// The parts of the package that the tests keep.
pub fn kept() -> &'static Parts {
    static KEPT: OnceLock<Parts> = OnceLock::new();
    KEPT.get_or_init(|| {
        let length = u64::from_le_bytes(PACKAGE[HEADER..HEADER + 8].try_into().unwrap()) as usize;
        let mut end = HEADER + 8 + length;
        let head: Value = serde_json::from_slice(&PACKAGE[HEADER + 8..end]).unwrap();
        let mut part = |number: usize, name: &str| {
            let told = &head["parts"][number];
            assert_eq!(told["name"], name);
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + told["bytes"].as_u64().unwrap() as usize;
            &PACKAGE[start..end]
        };
        let [plan, kernels] =
            [(0, "plan"), (1, "kernels")].map(|(at, name)| serde_json::from_slice(part(at, name)).unwrap());
        let weights = part(2, "weights").to_vec();
        assert_eq!(end, PACKAGE.len());
        let kept = Parts { plan, kernels, weights, head };
        assert_eq!(kept.sealed().len(), PACKAGE.len());
        rank(kept.sealed()).unwrap();
        kept
    })
}

impl Parts {
    /// A package of them with a hash that is right, and lengths too unless the head tells others.
    pub fn sealed(&self) -> Vec<u8> {
        let [plan, kernels] = [&self.plan, &self.kernels].map(|part| serde_json::to_vec(part).unwrap());
        let mut head = self.head.clone();
        let told = kept_parts(&head);
        for (number, (part, was)) in [plan.len(), kernels.len(), self.weights.len()].into_iter().zip(told).enumerate() {
            if was {
                head["parts"][number]["bytes"] = part.into();
            }
        }
        let head = serde_json::to_vec(&head).unwrap();
        let mut bytes = PACKAGE[..HASHED].to_vec();
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

/// By part, whether the head tells the length that it had.
fn kept_parts(head: &Value) -> [bool; 3] {
    static LENGTHS: OnceLock<Value> = OnceLock::new();
    let lengths = LENGTHS.get_or_init(|| head["parts"].clone());
    [0, 1, 2].map(|number| head["parts"].get(number).is_some() && head["parts"][number] == lengths[number])
}

/// Writes length and hash of a package into its header.
pub fn seal(bytes: &mut [u8]) {
    let length = bytes.len() as u64;
    bytes[24..32].copy_from_slice(&length.to_le_bytes());
    let mut hasher = XxHash3_128::new();
    hasher.write(&bytes[..HASHED]);
    hasher.write(&bytes[HEADER..]);
    bytes[HASHED..HEADER].copy_from_slice(&hasher.finish_128().to_le_bytes());
}

/// Emits the kernels of a package for its devices, and ranks the users of the tests with it, on the CPU.
///
/// # Errors
/// What the package or the run says.
pub fn rank(package: Vec<u8>) -> Result<usize, RankError> {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let package = Package::parse(package)?;
    drop(package.kernels());
    drop(package.tunings());
    for target in package.targets()? {
        drop(map(&package.plan()?, &target, &Tuning::default()));
    }
    let ranker = Ranker::from_package(&package, &options)?;
    let mut batch: Batch = ranker.batch();
    for line in USERS.lines() {
        if batch.push_json(line.as_bytes()).is_err() {
            break;
        }
    }
    Ok(ranker.rank_batch(&batch)?.len())
}

/// The kept package with changes, each at a place and by a choice: in its head, its plan, its kernels or its weights.
pub fn changed_package(part: usize, numbers: &[i64], choices: &[(usize, u64)]) -> Vec<u8> {
    let mut parts = kept().clone();
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

/// Tunings of a device, as a package tells them.
fn tunings() -> Value {
    let device = json!({ "name": "x", "backend": "vulkan", "driver": "1", "target": Target::BASELINE, "emitter": "0" });
    let sizes = json!({ "64x1": { "rows": 16, "columns": 32 }, "64x2": { "threads": 64, "matrices": true } });
    json!({ "device": device, "kernels": { "0": { "matrices": true, "sizes": sizes } } })
}

/// Loads and runs the kept package with the changes that the bytes say, eight bytes a change.
pub(super) fn run_changed(data: &[u8]) {
    let words = data.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let choices: Vec<(usize, u64)> = words.map(|bits| ((bits & 0xffff) as usize, bits >> 16)).collect();
    let numbers = if data.len().is_multiple_of(2) { SMALL } else { ABSURD };
    drop(rank(changed_package(data.len() / 2, numbers, &choices)));
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
