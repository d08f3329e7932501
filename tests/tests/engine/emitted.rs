//! Snapshots of the nests of golden cases, and hashes of the kernels emitted from them.
//!
//! `UPDATE_EMITTED=1 cargo test -p rewire-tests --test engine emitted` writes `tests/emitted` again after an intended change.

use rewire_emit::emit;
use rewire_graph::Graph;
use rewire_graph_rewrite::device::{SubgroupSizes, Target, Tuning};
use rewire_graph_rewrite::plan::{Computation, Plan};
use rewire_tests::backend::plan;
use rewire_tests::golden::stored;
use rewire_verify::GoldenCase;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use twox_hash::XxHash64;

/// Targets of each matrix tier, and two without matrices.
fn targets() -> [(&'static str, Target); 5] {
    let device = Target {
        f16: true,
        int64: true,
        subgroups: true,
        subgroup_size: SubgroupSizes::fixed(32),
        registers: 255,
        storage_buffers: 64,
        workgroup_bytes: 48 << 10,
        invocations: 1024,
        binding_bytes: 2 << 30,
        ..Target::BASELINE
    };
    let matrices = Target { matrix: 16, ..device.clone() };
    let elements = Target {
        half_sums: true,
        matrix_elements: true,
        workgroup_matrices: 1024,
        multiprocessors: 132,
        ..matrices.clone()
    };
    let software = Target { software: true, subgroup_size: SubgroupSizes::fixed(8), ..device.clone() };
    [
        ("baseline", Target::BASELINE),
        ("software", software),
        ("device", device),
        ("matrices", matrices),
        ("elements", elements),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("emitted")
}

/// The plans of a case, forward and, where it has gradients, with them.
pub(crate) fn plans(path: &Path) -> Result<(String, Vec<Plan>), String> {
    let case = GoldenCase::read(path).map_err(|error| error.to_string())?;
    let forward = case.trace().map_err(|error| error.to_string())?.graph;
    let backward = case.differentiate(&forward).ok();
    let plans = [Some(forward), backward].into_iter().flatten().map(|graph: Graph| plan(&graph));
    Ok((case.op().to_owned(), plans.collect::<Result<_, _>>()?))
}

/// Hashes of kernels by target; a kernel that several plans have is emitted once.
struct Hashes {
    targets: [(&'static str, Target); 5],
    known: BTreeMap<String, [u64; 5]>,
}

impl Hashes {
    fn of(&mut self, computation: &Computation) -> [u64; 5] {
        let key = serde_json::to_string(computation).unwrap();
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let hash = |(_, target): &(&str, Target)| match emit(computation, target, &Tuning::default()) {
            Ok(kernel) => hash(serde_json::to_string(&kernel).unwrap().as_bytes()),
            Err(error) => hash(error.to_string().as_bytes()),
        };
        let hashes = self.targets.each_ref().map(hash);
        self.known.insert(key, hashes);
        hashes
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(bytes);
    hasher.finish()
}

/// The pages of `tests/emitted` by name, as lines by case of the kernels, and as a text an operator of the nests of its first case.
struct Pages {
    kernels: Vec<String>,
    nests: BTreeMap<String, String>,
}

impl Pages {
    fn of(cases: &[PathBuf]) -> Self {
        let mut hashes = Hashes { targets: targets(), known: BTreeMap::new() };
        let mut pages = Self { kernels: vec![], nests: BTreeMap::new() };
        for path in cases {
            let (op, plans) = plans(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let case = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for (direction, plan) in ["forward", "backward"].into_iter().zip(&plans) {
                let all = plan.steps.iter().fold([0u64; 5], |all, step| {
                    let found = hashes.of(&step.computation);
                    std::array::from_fn(|target| all[target].rotate_left(7) ^ found[target])
                });
                let all: Vec<String> = all.iter().map(|hash| format!("{hash:016x}")).collect();
                pages.kernels.push(format!("{op}/{case}\t{direction}\t{}", all.join("\t")));
            }
            pages.nests.entry(op).or_insert_with(|| nests(&plans));
        }
        pages
    }
}

/// The nests of plans as text, each once.
fn nests(plans: &[Plan]) -> String {
    let mut texts: Vec<String> = vec![];
    for step in plans.iter().flat_map(|plan| &plan.steps) {
        let text = step.computation.nest().map_or_else(|| "custom\n".to_owned(), ToString::to_string);
        let text = format!("{}\n{text}", step.name);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("\n")
}

/// Every third case and the first one of every operator; all cases where `all`.
pub(crate) fn cases(all: bool) -> Vec<PathBuf> {
    let stored = stored();
    let is_first = |at: usize| at == 0 || stored[at].parent() != stored[at - 1].parent();
    let chosen = |(at, path): (usize, &PathBuf)| (all || at % 3 == 0 || is_first(at)).then(|| path.clone());
    stored.iter().enumerate().filter_map(chosen).collect()
}

#[test]
fn nests_and_kernels_of_golden_cases() {
    let is_update = std::env::var_os("UPDATE_EMITTED").is_some();
    let pages = Pages::of(&cases(is_update));
    let (kernels, nests) = (folder().join("kernels.tsv"), folder().join("nests"));
    if is_update {
        fs::create_dir_all(&nests).unwrap();
        let heads: Vec<&str> = targets().iter().map(|(name, _)| *name).collect();
        let head = format!("case\tdirection\t{}\n", heads.join("\t"));
        fs::write(&kernels, head + &pages.kernels.join("\n") + "\n").unwrap();
        pages.nests.iter().for_each(|(op, text)| fs::write(nests.join(format!("{op}.txt")), text).unwrap());
    }
    let known = fs::read_to_string(&kernels).unwrap();
    let known: BTreeSet<&str> = known.lines().collect();
    let mut stale: Vec<&str> = pages.kernels.iter().map(String::as_str).filter(|line| !known.contains(line)).collect();
    let is_stale = |(op, text): &(&String, &String)| {
        fs::read_to_string(nests.join(format!("{op}.txt"))).unwrap_or_default() != **text
    };
    stale.extend(pages.nests.iter().filter(is_stale).map(|(op, _)| op.as_str()));
    assert!(stale.is_empty(), "differ from tests/emitted, which UPDATE_EMITTED=1 writes again:\n{}", stale.join("\n"));
}
