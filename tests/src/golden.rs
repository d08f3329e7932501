//! Golden cases of the reference implementation.

use crate::backend::Tensors;
use crate::compare::{Results, Tolerance, difference};
use rewire_graph::op::{Input, Parameter};
use rewire_graph::{Graph, HostTensor};
use rewire_verify::GoldenCase;
use rewire_verify::replay::{Replay, trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A case: its operator, attributes and tensors with the names of the file.
#[derive(Clone, Debug)]
pub struct Golden {
    /// `<op>/<case>`.
    pub name: String,
    /// The operator.
    pub op: String,
    /// Everything except tensors.
    pub attrs: serde_json::Value,
    /// True if inputs and parameters are 16-bit floats.
    pub half: bool,
    /// By name.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl Golden {
    /// Reads a file.
    pub fn read(path: &Path) -> Self {
        let case = GoldenCase::read(path).unwrap();
        Self {
            name: format!("{}/{}", case.op(), path.file_stem().unwrap_or_default().to_string_lossy()),
            op: case.op().to_owned(),
            attrs: case.attrs().clone(),
            half: case.metadata()["dtype"] == "f16",
            tensors: case.tensors().clone(),
        }
    }

    /// The graph of the case.
    pub fn trace(&self) -> Result<Replay, String> {
        let types = self.tensors.iter().map(|(n, t)| (n.clone(), (t.dtype(), t.shape().to_vec()))).collect();
        trace(&self.op, &self.attrs, &types).map_err(|error| format!("replay: {error}"))
    }

    /// The inputs of a graph, out of all stored tensors.
    pub fn inputs(&self, graph: &Graph) -> Tensors {
        let input = |id| Some(graph.node(id)?.op.downcast_ref::<Input>()?.name.clone());
        let names: Vec<String> = graph.ids().filter_map(input).collect();
        self.named("in.").into_iter().filter(|(name, _)| names.contains(name)).collect()
    }

    /// The parameters of a graph, out of all stored tensors.
    pub fn parameters(&self, graph: &Graph) -> Tensors {
        let parameter = |id| graph.node(id)?.op.downcast_ref::<Parameter>();
        let given = |Parameter { name, ty }: &Parameter| {
            let tensor = ["param.", "in."].iter().find_map(|prefix| self.tensors.get(&format!("{prefix}{name}")))?;
            Some((name.clone(), tensor.clone().stored_as(ty.dtype).unwrap_or_else(|_| tensor.clone())))
        };
        graph.ids().filter_map(parameter).filter_map(given).collect()
    }

    /// The differences of results, output by output.
    pub fn differences(&self, results: &Results, relative: f64) -> Vec<String> {
        let tolerance = Tolerance { relative, floor: 1e-30 };
        let mut found = vec![];
        for (name, expected) in self.named("out.") {
            match results.get(&name) {
                None => found.push(format!("{name}: missing")),
                Some(actual) => {
                    let shape = if actual.len() == expected.len() { expected.shape() } else { actual.shape() };
                    let actual = actual.clone().reshape(shape.to_vec()).unwrap();
                    found.extend(difference(&actual, &expected, tolerance).map(|what| format!("{name}: {what}")));
                }
            }
        }
        found
    }

    fn named(&self, prefix: &str) -> Tensors {
        let strip =
            |(name, tensor): (&String, &HostTensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()));
        self.tensors.iter().filter_map(strip).collect()
    }
}

/// The files of all cases, in order.
pub fn stored() -> Vec<PathBuf> {
    let found = rewire_verify::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")).unwrap();
    assert!(!found.is_empty(), "no golden cases are found");
    found
}

/// The files of all cases, in order; if `REWIRE_TEST_GOLDEN` is set, those whose path contains it.
pub fn cases() -> Vec<PathBuf> {
    let mut found = stored();
    if let Ok(part) = std::env::var("REWIRE_TEST_GOLDEN") {
        found.retain(|path| path.to_string_lossy().contains(&part));
    }
    assert!(!found.is_empty(), "no golden cases are found");
    found
}

/// True if `REWIRE_TEST_ALL` is set: run all cases that compile slowly on software drivers.
pub fn is_wanted_whole() -> bool {
    std::env::var_os("REWIRE_TEST_ALL").is_some()
}

/// Every third case, which covers every operator; all cases if `REWIRE_TEST_ALL` is set.
pub fn third() -> Vec<PathBuf> {
    cases().into_iter().step_by(if is_wanted_whole() { 1 } else { 3 }).collect()
}

/// The last case of every third operator; all cases if `REWIRE_TEST_ALL` is set.
pub fn sample() -> Vec<PathBuf> {
    let mut cases = cases();
    if !is_wanted_whole() {
        cases.reverse();
        cases.dedup_by_key(|path| path.parent().map(Path::to_owned));
        cases = cases.into_iter().step_by(3).collect();
    }
    cases
}

/// Runs `check` on cases, on all cores.
pub fn hold(cases: &[PathBuf], check: impl Fn(&Golden) -> Result<(), String> + Sync) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some(path) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let golden = Golden::read(path);
            if let Err(error) = check(&golden) {
                failed.lock().unwrap().push(format!("{}: {error}", golden.name));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), cases.len(), failed.join("\n"));
}
