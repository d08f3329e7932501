//! Models in files that are changed while they are in use, and packages whose parts are of different models.

use super::{bare, config, load, on_cpu, requests, weights};
use rewire::package::Package;
use rewire::rank::{Embedded, Embedder, PackOptions, RankError, RankOptions, Ranked, Ranker, Request, pack};
use rewire::runtime::{MAPPED_BYTES, Mapping, RunError};
use rewire::weights::Weights;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A new empty folder, removed when it goes out of scope.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rewire-files-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn package(value: &Value) -> Package {
    let weights = weights(&config(value));
    pack("test", &value.to_string(), &Weights::parse(weights).unwrap(), &PackOptions::default()).unwrap()
}

/// A model with a table of more bytes than are copied.
fn large() -> Value {
    let mut value = bare();
    value["features"]["film"]["num_embeddings"] = json!(MAPPED_BYTES / (4 * 12) + 1000);
    value
}

fn cut(path: &Path) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
}

fn overwrite(path: &Path) {
    // The system counts the time of changes in steps of some milliseconds.
    std::thread::sleep(Duration::from_millis(30));
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::End(-(MAPPED_BYTES as i64) / 2)).unwrap();
    file.write_all(&[0x3f; 1 << 20]).unwrap();
}

fn replace(path: &Path) {
    let other = path.with_extension("other");
    std::fs::write(&other, b"another file").unwrap();
    std::fs::rename(&other, path).unwrap();
}

/// Scores before and after a change of the file.
fn around(
    ranker: &Ranker,
    requests: &[Request],
    change: impl FnOnce(),
) -> (Vec<Ranked>, Result<Vec<Ranked>, RankError>) {
    let before = ranker.rank(requests).unwrap();
    change();
    (before, ranker.rank(requests))
}

#[test]
fn a_small_model_does_not_depend_on_its_files() {
    let (folder, value) = (Folder::new(), bare());
    let (file, dir) = (folder.0.join("model.rewire"), folder.0.join("model"));
    std::fs::write(&file, package(&value).bytes()).unwrap();
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("config.json"), value.to_string()).unwrap();
    std::fs::write(dir.join("model.safetensors"), weights(&config(&value))).unwrap();
    let [mapped, copied] = [Mapping::Large, Mapping::Never]
        .map(|mapping| Weights::read_mapping(&dir.join("model.safetensors"), mapping).unwrap());
    assert_eq!(copied.tensors().unwrap(), mapped.tensors().unwrap());
    for (model, path) in [(&file, file.clone()), (&dir, dir.join("model.safetensors"))] {
        let ranker = Ranker::load(model, &on_cpu()).unwrap();
        let (before, after) = around(&ranker, &requests(&ranker), || cut(&path));
        assert_eq!(after.unwrap(), before, "{}", path.display());
    }
}

#[test]
#[cfg(unix)]
fn a_mapped_model_that_is_changed_in_place_is_an_error() {
    let (folder, value) = (Folder::new(), large());
    let (file, dir) = (folder.0.join("model.rewire"), folder.0.join("model"));
    let tensors = weights(&config(&value));
    let (package, requests) = (package(&value), requests(&load(&config(&bare()), &on_cpu())));
    assert!(package.bytes().len() as u64 > MAPPED_BYTES);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("config.json"), value.to_string()).unwrap();
    for (model, path, bytes) in
        [(&file, file.clone(), package.bytes()), (&dir, dir.join("model.safetensors"), tensors.as_slice())]
    {
        let write = || std::fs::write(&path, bytes).unwrap();
        for change in [cut, overwrite] {
            write();
            let (_, after) = around(&Ranker::load(model, &on_cpu()).unwrap(), &requests, || change(&path));
            let Err(RankError::Run(error)) = after else { panic!("{}: {after:?}", path.display()) };
            assert!(matches!(&*error, RunError::FileChanged { path: changed } if *changed == path), "{error}");
            assert!(error.to_string().contains("renaming"), "{error}");
        }
        write();
        let (before, after) = around(&Ranker::load(model, &on_cpu()).unwrap(), &requests, || replace(&path));
        assert_eq!(after.unwrap(), before, "another file in its place");
        write();
        let copied = RankOptions { mapping: Mapping::Never, ..on_cpu() };
        let (before, after) = around(&Ranker::load(model, &copied).unwrap(), &requests, || cut(&path));
        assert_eq!(after.unwrap(), before, "a copy");
    }
}

/// A package with the text of another configuration.
fn with_config(package: &Package, value: &Value) -> Package {
    let weights = weights(&config(&bare()));
    Package::new(&package.plan().unwrap(), Some(&value.to_string()), &weights, &[]).unwrap()
}

#[test]
fn a_package_whose_tables_have_other_sizes_than_its_configuration_is_refused() {
    let package = package(&bare());
    assert!(Ranker::from_package(&with_config(&package, &bare()), &on_cpu()).is_ok());
    for (rows, width) in [(60, 12), (40, 12), (50, 16)] {
        let mut other = bare();
        other["features"]["film"] = json!({"num_embeddings": rows, "embedding_dim": width});
        let error = Ranker::from_package(&with_config(&package, &other), &on_cpu()).unwrap_err().to_string();
        let expected = format!(
            "its plan: has a table `embedding.film.weight` of [50, 12]: expected [{rows}, {width}] by the configuration"
        );
        assert_eq!(error, expected);
    }
    let mut other = bare();
    other["features"]["film"]["num_embeddings"] = json!(60);
    let bytes = weights(&config(&bare()));
    let error = Ranker::new(&config(&other), &Weights::parse(bytes).unwrap(), &on_cpu()).unwrap_err();
    assert!(matches!(error, RankError::Load(_)), "a folder: {error}");
    let users = Embedder::from_package(&with_config(&package, &other), Embedded::Users, &on_cpu());
    assert!(matches!(users.unwrap_err(), RankError::Load(_)), "vectors of users");
}
