//! Readers of files.

use rewire::rank::{Batch, RankOptions, Ranker, Schema, parse_config, trace};
use rewire::weights::Weights;
use rewire_cli::{Titles, open};
use rewire_runtime::Kernel;
use rewire_tzrec::{Checkpoint, Pipeline};
use rewire_verify::{Verifier, VerifyOptions};
use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Maximum number of users that are read from a file.
const USERS: usize = 1 << 10;

const CONFIGURATION: &str = include_str!("../../../crates/cli/demo/model/config.json");

fn demo(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/demo").join(file)
}

fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    SCHEMA.get_or_init(|| Ranker::load(&demo("model"), &options).unwrap().schema().clone())
}

/// Calls `read` with a file of this thread that holds `data`.
fn with_file(extension: &str, data: &[u8], read: impl FnOnce(&Path)) {
    thread_local! {
        static FILES: RefCell<Vec<(String, tempfile::NamedTempFile)>> = const { RefCell::new(vec![]) };
    }
    FILES.with_borrow_mut(|files| {
        let at = files.iter().position(|(known, _)| known == extension).unwrap_or_else(|| {
            let memory = Path::new("/dev/shm");
            let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            let file = tempfile::Builder::new().suffix(extension).tempfile_in(folder).unwrap();
            files.push((extension.to_owned(), file));
            files.len() - 1
        });
        let file = &mut files[at].1;
        file.as_file().set_len(0).unwrap();
        file.rewind().unwrap();
        file.write_all(data).unwrap();
        read(file.path());
    });
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(config) = parse_config("config.json", text) {
        drop(trace(&config));
    }
}

pub(super) fn configurations() -> Vec<Vec<u8>> {
    texts(&[CONFIGURATION, "{}", "{\"contextual\": {}}"])
}

pub(super) fn safetensors(data: &[u8]) {
    let Ok(weights) = Weights::parse(data) else { return };
    for name in weights.names() {
        let (dtype, shape) = weights.describe(name).unwrap();
        let tensor = weights.get(name).unwrap().unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape));
    }
}

pub(super) fn safetensors_files() -> Vec<Vec<u8>> {
    let file = |header: &str, data: &[u8]| [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    vec![
        file(r#"{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}"#, &[1; 8]),
        file(
            r#"{"__metadata__":{"op":"addmm"},"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"I64","shape":[],"data_offsets":[6,14]}}"#,
            &[7; 14],
        ),
    ]
}

pub(super) fn json_lines(data: &[u8]) {
    if !data.starts_with(b"PAR1") {
        with_file(".jsonl", data, requests);
    }
}

fn requests(path: &Path) {
    let Ok(mut requests) = open(Some(path), schema()) else { return };
    let mut batch = Batch::new(schema().clone());
    while let Ok(true) = requests.read(&mut batch, 1) {
        if batch.len() >= USERS {
            return;
        }
    }
}

pub(super) fn json_lines_files() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(demo("interactions.jsonl")).unwrap();
    let mut shortest: Vec<&str> = text.lines().collect();
    shortest.sort_by_key(|line| line.len());
    shortest.iter().take(4).map(|line| line.as_bytes().to_vec()).collect()
}

pub(super) fn parquet(data: &[u8]) {
    if !has_long_list_of_truths(data) {
        with_file(".parquet", data, requests);
    }
}

/// True if bytes may declare 2^14 bools or more in a list or map of a header. The library that reads Parquet skips those
/// without consuming bytes, so a few bytes keep it busy for hours.
fn has_long_list_of_truths(data: &[u8]) -> bool {
    let goes_on = |byte: u8| byte >= 0x80;
    let list = |bytes: &[u8; 3]| matches!(bytes[0], 0xf1 | 0xf2) && goes_on(bytes[1]) && goes_on(bytes[2]);
    let map = |bytes: &[u8; 4]| {
        goes_on(bytes[0]) && goes_on(bytes[1]) && !goes_on(bytes[2]) && matches!(bytes[3], 0x11 | 0x12 | 0x21 | 0x22)
    };
    data.array_windows().any(list) || data.array_windows().any(map)
}

pub(super) fn parquet_files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/parquet");
    std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

pub(super) fn csv(data: &[u8]) {
    if let Ok(titles) = Titles::parse(data, "item_id") {
        assert!(titles.get(3).is_none_or(|title| title.len() <= data.len() * 3));
    }
    if !data.starts_with(b"PAR1") {
        with_file(".csv", data, requests);
    }
}

pub(super) fn csv_files() -> Vec<Vec<u8>> {
    const USERS: &str = "user,age_bucket,country,history.item_id,history.genre,history.action,history.watchtime,history.timestamp,\
                         candidates.item_id,candidates.genre,candidates.timestamp\nu,1,2,3;4,5;6,7;8,9;10,11;12,13;14,1;2,3;4\n";
    texts(&[USERS, "item_id,title\n3,\"A, \"\"B\"\"\"\n4,C\r\n", "title\nx\n"])
}

pub(super) fn golden(data: &[u8]) {
    thread_local! {
        static VERIFIER: Verifier =
            Verifier::new(VerifyOptions { kernel: Kernel::Cpu, ..VerifyOptions::default() }).unwrap();
    }
    VERIFIER.with(|verifier| with_file(".safetensors", data, |path| drop(verifier.verify(path))));
}

/// The smallest case of every operator.
pub(super) fn golden_files() -> Vec<Vec<u8>> {
    let mut smallest: Vec<(PathBuf, Vec<u8>)> = vec![];
    for path in crate::golden::stored() {
        let (folder, bytes) = (path.parent().unwrap_or(&path).to_owned(), std::fs::read(&path).unwrap());
        match smallest.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, known)) if known.len() <= bytes.len() => {}
            Some((_, known)) => *known = bytes,
            None => smallest.push((folder, bytes)),
        }
    }
    smallest.into_iter().map(|(_, bytes)| bytes).filter(|bytes| bytes.len() <= 1 << 15).collect()
}

/// A file of the folders of `tests/tzrec`.
fn tzrec(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tzrec").join(path)).unwrap()
}

pub(super) fn pipelines(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(pipeline) = Pipeline::parse(text) {
        let lines = text.lines().count().max(1);
        let keys = pipeline.json().as_object().into_iter().flatten().map(|(key, _)| key);
        keys.for_each(|key| assert!((1..=lines).contains(&pipeline.line(&format!("/{key}/0")))));
    }
}

pub(super) fn pipeline_files() -> Vec<Vec<u8>> {
    let files = ["dlrm_criteo", "dlrm_hstu_kuairand", "hstu_match_cosine"];
    files.map(|name| tzrec(&format!("{name}/pipeline.config"))).to_vec()
}

/// Bytes of the metadata, the metadata, and the shards.
pub(super) fn checkpoints(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else { return };
    let Some((metadata, shards)) = rest.split_at_checked(u16::from_le_bytes(*length).into()) else { return };
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap();
    }
    FOLDER.with(|folder| {
        std::fs::write(folder.path().join(".metadata"), metadata).unwrap();
        std::fs::write(folder.path().join("__0_0.distcp"), shards).unwrap();
        let Ok(checkpoint) = Checkpoint::open(folder.path()) else { return };
        let tensors: Vec<_> = checkpoint.names().iter().filter_map(|name| checkpoint.read(name).ok()).collect();
        assert!(tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>() <= shards.len());
    });
}

pub(super) fn checkpoint_files() -> Vec<Vec<u8>> {
    let folder = "dlrm_criteo/checkpoint/model.ckpt-0/optimizer";
    let [metadata, shards] = [".metadata", "__0_0.distcp"].map(|file| tzrec(&format!("{folder}/{file}")));
    vec![[(metadata.len() as u16).to_le_bytes().as_slice(), &metadata, &shards].concat()]
}

/// Models with arbitrary operators, bodies and shapes.
pub(super) fn onnx(data: &[u8]) {
    drop(rewire_import::onnx::from_bytes(data));
}

pub(super) fn onnx_files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx");
    let names =
        ["test_if", "test_loop11", "test_scan9_sum", "test_slice_start_out_of_bounds", "test_gemm_default_scalar_bias"];
    names.iter().map(|name| std::fs::read(folder.join(name).join("model.onnx")).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read() {
        for line in json_lines_files() {
            Batch::new(schema().clone()).push_json(&line).unwrap();
        }
        for bytes in parquet_files() {
            assert!(!has_long_list_of_truths(&bytes));
            with_file(".parquet", &bytes, |path| {
                let mut batch = Batch::new(schema().clone());
                open(Some(path), schema()).unwrap().read(&mut batch, 1).unwrap();
                assert_eq!(batch.len(), 1);
            });
        }
        for bytes in safetensors_files() {
            Weights::parse(bytes).unwrap();
        }
        for bytes in pipeline_files() {
            Pipeline::parse(str::from_utf8(&bytes).unwrap()).unwrap();
        }
        checkpoint_files().iter().for_each(|bytes| checkpoints(bytes));
        assert!(Titles::parse(&csv_files()[1], "item_id").unwrap().get(3) == Some("A, \"B\""));
        assert!(trace(&parse_config("config.json", CONFIGURATION).unwrap()).is_ok());
    }
}
