//! Compiled kernels that stay on disk from one process to the next.

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::device::Target;
use rewire_runtime::{
    ExpectedPlan, ExpectedRun, Gpu, Inputs, Model, ModelOptions, PipelineStore, RuntimeError, Session, ThreadPool,
    ThreadPoolOptions, wgpu,
};
use rewire_tests::backend::{Tensors, gpu, load, on, plan, run};
use std::path::{Path, PathBuf};

fn graph() -> Graph {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    let w = scope.parameter("w", DType::F32, &[8.into(), 8.into()]);
    scope.finish(&[("y", x.matmul(&w).silu())]).unwrap()
}

fn tensor() -> HostTensor {
    let values: Vec<f32> = (0..64).map(|n| (n * 5 % 7) as f32 - 3.0).collect();
    HostTensor::f32(vec![8, 8], &values).unwrap()
}

/// A session that keeps its kernels in a folder.
fn session(gpu: &Gpu, folder: &Path) -> Session {
    let options = ModelOptions { pipelines: Some(PipelineStore::at(folder)), ..on(gpu.clone()) };
    load(&graph(), &Tensors::from([("w".to_owned(), tensor())]), options).unwrap()
}

fn y(session: &mut Session) -> Vec<f32> {
    run(session, &Tensors::from([("x".to_owned(), tensor())])).unwrap()["y"].to_f32()
}

/// The result of such a session, which ends.
fn result(gpu: &Gpu, folder: &Path) -> Vec<f32> {
    y(&mut session(gpu, folder))
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("rewire-pipelines-{name}-{}", std::process::id())))
    }

    /// All but that of the device.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| *path != self.target()).collect()
    }

    fn target(&self) -> PathBuf {
        self.0.join("target.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn kernels_come_from_the_file() {
    let Some(gpu) = gpu() else { return };
    let folder = Folder::new("kept");
    let expected = result(&gpu, &folder.0);
    let [file] = &folder.files()[..] else {
        assert!(!gpu.device().features().contains(wgpu::Features::PIPELINE_CACHE) && !folder.0.exists());
        return;
    };
    let kept = std::fs::read(file).unwrap();
    let target: Target = serde_json::from_slice(&std::fs::read(folder.target()).unwrap()).unwrap();
    assert_eq!(target, *gpu.target());
    assert_eq!(result(&gpu, &folder.0), expected);
    assert_eq!(folder.files(), std::slice::from_ref(file), "no other file is left");

    let mut damaged = kept.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(folder.target(), "{").unwrap();
    for content in [&damaged[..], &kept[..kept.len() - 1], &kept[..5], b"", b"of someone else's making"] {
        std::fs::write(file, content).unwrap();
        assert_eq!(result(&gpu, &folder.0), expected, "{} bytes", content.len());
        assert_ne!(std::fs::read(file).unwrap(), content, "the file is written again");
    }
}

#[test]
fn results_do_not_depend_on_expected_runs() {
    let Some(gpu) = gpu() else { return };
    let expected = y(&mut session(&gpu, &Folder::new("unexpected").0));
    let inputs = |rows: usize| Inputs::new().with("x", HostTensor::zeros(DType::F32, vec![rows, 8]).unwrap());
    let unfit = Inputs::new().with("x", HostTensor::zeros(DType::F32, vec![8, 9]).unwrap());
    let folder = Folder::new("expected");
    for runs in [vec![inputs(8)], vec![inputs(0), inputs(1), inputs(100_000)], vec![unfit, Inputs::new()], vec![]] {
        let runs = runs.into_iter().map(|inputs| ExpectedRun { inputs, state_rows: 0 }).collect();
        let options = ModelOptions { pipelines: Some(PipelineStore::at(&folder.0)), ..on(gpu.clone()) };
        let build = || Ok::<_, RuntimeError>(ExpectedPlan { plan: plan(&graph()).unwrap(), runs });
        let parameters = [("w", tensor())];
        let mut session = Model::build(build, parameters, options).unwrap().session();
        assert_eq!(y(&mut session), expected);
        let empty = session.run(&inputs(0)).unwrap();
        assert_eq!(empty.get("y").unwrap().shape(), [0, 8]);
        drop(session);
        assert!(folder.files().len() <= 1, "the file of a plan does not depend on expected runs");
    }
}

#[test]
fn results_do_not_wait_for_the_file() {
    let Some(gpu) = gpu().filter(|gpu| gpu.device().features().contains(wgpu::Features::PIPELINE_CACHE)) else {
        return;
    };
    let folder = Folder::new("late");
    // The only thread of the pool runs the session, so that nothing else runs on the pool meanwhile.
    let pool = ThreadPool::new(ThreadPoolOptions { threads: Some(1), ..ThreadPoolOptions::default() }).unwrap();
    let session = pool.install(|| {
        let mut session = session(&gpu, &folder.0);
        for _ in 0..2 {
            assert_eq!(y(&mut session).len(), 64);
            assert_eq!(folder.files(), Vec::<PathBuf>::new());
        }
        session
    });
    drop(session);
    assert_eq!(folder.files().len(), 1);
    assert!(folder.target().exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let Some(gpu) = gpu() else { return };
    let folder = Folder::new("file");
    std::fs::write(&folder.0, "a file where a folder should be").unwrap();
    assert_eq!(result(&gpu, &folder.0).len(), 64);
}
