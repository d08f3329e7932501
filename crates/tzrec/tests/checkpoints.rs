//! Checkpoints of TorchEasyRec, shards of every layout, and malicious and damaged files.
#![allow(clippy::unwrap_used)]

mod written;

use proptest::prelude::*;
use rewire_tzrec::{
    Checkpoint, CheckpointError, DynamicTable, ElementType, OptimizerState, Saved, StoredTensor, read_dynamic,
    write_checkpoint,
};
use std::path::{Path, PathBuf};
use written::{Shard, Tensor, metadata, save, write};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes a checkpoint with one tensor, and reads the tensor.
fn read(tensor: &Tensor) -> Result<StoredTensor, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), std::slice::from_ref(tensor));
    Checkpoint::open(folder.path())?.read(tensor.name)
}

/// The innermost error of a file.
fn cause(error: CheckpointError) -> CheckpointError {
    match error {
        CheckpointError::File { source, .. } => *source,
        other => other,
    }
}

fn matrix(shards: Vec<Shard>) -> Tensor {
    Tensor { name: "t", dtype: "float32", size: vec![2, 3], shards }
}

#[test]
fn checkpoints_of_the_reference_hold_what_its_safetensors_hold() {
    for name in ["dlrm_criteo", "hstu_match_cosine"] {
        let file = Checkpoint::open(&golden(name).join("model.safetensors")).unwrap();
        for path in ["checkpoint", "checkpoint/model.ckpt-0", "checkpoint/model.ckpt-0/model"] {
            let checkpoint = Checkpoint::open(&golden(name).join(path)).unwrap();
            assert_eq!(checkpoint.names(), file.names());
            for tensor in file.names() {
                assert_eq!(checkpoint.read(&tensor).unwrap(), file.read(&tensor).unwrap(), "{tensor}");
            }
        }
        let checkpoint = Checkpoint::open(&golden(name).join("checkpoint")).unwrap();
        let plan = checkpoint.plan().unwrap().as_object().unwrap();
        assert!(plan.keys().all(|module| module.starts_with("model.embedding_group.")) && !plan.is_empty());
        let optimizer = Checkpoint::open_optimizer(&golden(name).join("checkpoint")).unwrap().unwrap();
        let state = optimizer.names();
        assert!(state.iter().all(|name| name.starts_with("state.model.") && name.ends_with(".momentum1")));
        assert!(state.iter().all(|name| optimizer.read(name).unwrap().to_f64().iter().all(|value| *value == 0.0)));
    }
}

#[test]
fn the_largest_number_is_the_latest() {
    let folder = tempfile::tempdir().unwrap();
    for (number, value) in [(9, 9.0), (100, 100.0), (20, 20.0)] {
        let model = folder.path().join(format!("model.ckpt-{number}/model"));
        std::fs::create_dir_all(&model).unwrap();
        let shard = Shard::whole(&[], "FloatStorage", floats(&[value]));
        write(&model, &[Tensor { name: "t", dtype: "float32", size: vec![], shards: vec![shard] }]);
    }
    std::fs::create_dir(folder.path().join("model.ckpt-101")).unwrap();
    let tensor = Checkpoint::open(folder.path()).unwrap().read("t").unwrap();
    assert_eq!((tensor.to_f64(), tensor.shape), (vec![100.0], vec![]));
    let empty = folder.path().join("model.ckpt-101");
    assert!(matches!(Checkpoint::open(&empty), Err(CheckpointError::NotCheckpoint { .. })));
    assert!(matches!(Checkpoint::open(&empty.join("none")), Err(CheckpointError::Read { .. })));
}

#[test]
fn all_element_types_are_read() {
    let cases: [(&str, &str, Vec<u8>, ElementType); 6] = [
        ("float32", "FloatStorage", floats(&[1.5, -2.0]), ElementType::F32),
        ("float16", "HalfStorage", vec![0x00, 0x3e, 0x00, 0xc0], ElementType::F16),
        ("bfloat16", "BFloat16Storage", vec![0xc0, 0x3f, 0x00, 0xc0], ElementType::BF16),
        ("float64", "DoubleStorage", [1.5_f64, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect(), ElementType::F64),
        ("int64", "LongStorage", [1_i64 << 40, -2].iter().flat_map(|v| v.to_le_bytes()).collect(), ElementType::I64),
        ("int32", "IntStorage", [1_i32, -2].iter().flat_map(|v| v.to_le_bytes()).collect(), ElementType::I32),
    ];
    for (dtype, storage, data, element) in cases {
        let shard = Shard::whole(&[2], storage, data.clone());
        let tensor = read(&Tensor { name: "t", dtype, size: vec![2], shards: vec![shard] }).unwrap();
        assert_eq!((tensor.element, &tensor.bytes), (element, &data));
        assert_eq!(tensor.to_f64()[1], -2.0);
    }
}

#[test]
fn offsets_and_strides_are_honoured() {
    let data = floats(&[9.0, 1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let view = |offset, strides: &[i64], data: &[u8]| Shard {
        offset,
        strides: strides.to_vec(),
        ..Shard::whole(&[2, 3], "FloatStorage", data.to_vec())
    };
    let values = |shard| read(&matrix(vec![shard])).map(|tensor| tensor.to_f64());
    assert_eq!(values(view(1, &[1, 2], &data)).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(values(view(0, &[3, 1], &data)).unwrap(), [9.0, 1.0, 4.0, 2.0, 5.0, 3.0]);
    for (offset, strides) in
        [(2, [1, 2]), (1, [3, 2]), (0, [i64::MAX, 1]), (i64::MAX, [3, 1]), (-1, [3, 1]), (0, [-3, 1])]
    {
        assert!(values(view(offset, &strides, &data)).is_err(), "{offset} {strides:?}");
    }
    // An expanded tensor takes few bytes in the file, but could take any amount of memory.
    assert!(values(view(0, &[0, 0], &floats(&[1.0]))).is_err());
}

#[test]
fn shards_are_assembled_at_their_offsets() {
    let shard = |offsets: [usize; 2], sizes: [usize; 2], values: &[f32]| Shard {
        offsets: offsets.to_vec(),
        ..Shard::whole(&sizes, "FloatStorage", floats(values))
    };
    let expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let rows = vec![shard([1, 0], [1, 3], &[4.0, 5.0, 6.0]), shard([0, 0], [1, 3], &[1.0, 2.0, 3.0])];
    assert_eq!(read(&matrix(rows)).unwrap().to_f64(), expected);
    let columns = vec![shard([0, 0], [2, 1], &[1.0, 4.0]), shard([0, 1], [2, 2], &[2.0, 3.0, 5.0, 6.0])];
    assert_eq!(read(&matrix(columns)).unwrap().to_f64(), expected);
    let wrong = [
        vec![shard([0, 0], [1, 3], &[1.0, 2.0, 3.0])],
        vec![shard([0, 0], [1, 3], &[1.0; 3]), shard([0, 0], [1, 3], &[1.0; 3])],
        vec![shard([0, 0], [2, 2], &[1.0; 4]), shard([0, 1], [1, 2], &[1.0; 2])],
        vec![shard([1, 0], [2, 3], &[1.0; 6])],
        vec![],
    ];
    for shards in wrong {
        let error = cause(read(&matrix(shards)).unwrap_err());
        assert!(error.to_string().contains("do not cover it exactly once"), "{error}");
    }
}

#[test]
fn hostile_metadata_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shard = || Shard::whole(&[2, 3], "FloatStorage", floats(&[1.0; 6]));
    write(folder.path(), &[matrix(vec![shard()])]);
    let reread = |bytes: Vec<u8>| {
        std::fs::write(folder.path().join(".metadata"), bytes).unwrap();
        let opened = Checkpoint::open(folder.path()).and_then(|checkpoint| checkpoint.read("t"));
        opened.map(drop).map_err(cause)
    };
    let length = std::fs::metadata(folder.path().join("__0_0.distcp")).unwrap().len();
    let described =
        |file: &str, start: u64, length: u64| metadata(&[(&matrix(vec![shard()]), vec![(file, start, length)])]);
    reread(described("__0_0.distcp", 0, length)).unwrap();
    for file in ["../__0_0.distcp", "/etc/passwd", "a/b", "..", "", "c:x", "a\\b"] {
        let error = reread(described(file, 0, length)).unwrap_err();
        assert!(matches!(error, CheckpointError::Traversal { .. }), "{file}: {error}");
    }
    for (start, length) in [(1, length), (0, length + 1), (u64::MAX >> 1, length), (0, 0)] {
        let error = reread(described("__0_0.distcp", start, length)).unwrap_err();
        assert!(matches!(error, CheckpointError::Tensor { .. }), "{start} {length}: {error}");
    }
    let twice = Tensor { name: "u", ..matrix(vec![shard()]) };
    let (place, one) = (|| vec![("__0_0.distcp", 0, length)], matrix(vec![shard()]));
    assert!(matches!(reread(metadata(&[(&one, place()), (&twice, place())])), Err(CheckpointError::Tensor { .. })));
    let mut other = described("__0_0.distcp", 0, length);
    let at = other.windows(7).position(|window| window == b"float32").unwrap();
    other[at..at + 7].copy_from_slice(b"float31");
    assert!(matches!(reread(other), Err(CheckpointError::Global { name }) if name == "torch.float31"));
}

#[test]
fn pickles_that_call_anything_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[u8], &str); 6] = [
        (b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.", "`posix.system`"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", "`builtins.eval`"),
        (b"\x80\x04\x8c\x05torch\x8c\x12distributed.system\x93.", "`torch.distributed.system`"),
        (b"\x80\x01N.", "protocol 1"),
        (b"\x80\x04(i", "0x69"),
        (b"\x80\x04\x8b\xff\xff\xff\x7f", "0x8b"),
    ];
    for (pickle, name) in cases {
        std::fs::write(folder.path().join(".metadata"), pickle).unwrap();
        let error = cause(Checkpoint::open(folder.path()).unwrap_err());
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn shards_of_another_kind_are_refused() {
    let shard = Shard::whole(&[2, 3], "FloatStorage", floats(&[1.0; 6]));
    let other_type = Tensor { dtype: "int32", ..matrix(vec![shard.clone()]) };
    assert!(read(&other_type).unwrap_err().to_string().contains("expected I32 [2, 3]"));
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[matrix(vec![shard])]);
    let path = folder.path().join("__0_0.distcp");
    let whole = std::fs::read(&path).unwrap();
    let mut changed = whole.clone();
    let data = whole.windows(8).position(|window| window == [0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f]).unwrap();
    changed[data] ^= 1;
    std::fs::write(&path, changed).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap().read("t").unwrap_err();
    assert!(error.to_string().contains("data/0"), "{error}");
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(Checkpoint::open(folder.path()).is_err(), "cut at {cut}");
    }
    std::fs::write(&path, save("FloatStorage", &[2, 3], &[3, 1], 0, &floats(&[1.0; 6]))).unwrap();
    assert!(Checkpoint::open(folder.path()).unwrap().read("t").is_ok());
}

/// The tensors of two shards and a scalar.
fn sample(folder: &Path) {
    let half = |row: usize, value: f32| Shard {
        offsets: vec![row, 0],
        ..Shard::whole(&[1, 3], "FloatStorage", floats(&[value; 3]))
    };
    let step = Shard::whole(&[], "LongStorage", 7_i64.to_le_bytes().to_vec());
    let tensors = [
        matrix(vec![half(0, 1.0), half(1, 2.0)]),
        Tensor { name: "step", dtype: "int64", size: vec![], shards: vec![step] },
    ];
    write(folder, &tensors);
}

fn read_all(folder: &Path) {
    if let Ok(checkpoint) = Checkpoint::open(folder) {
        for name in checkpoint.names() {
            if let Ok(tensor) = checkpoint.read(&name) {
                let elements: usize = tensor.shape.iter().product();
                assert_eq!(tensor.bytes.len(), elements * tensor.element.bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_files_are_read_or_refused(
        file in prop::sample::select(vec![".metadata", "__0_0.distcp"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        sample(folder.path());
        let path = folder.path().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, bytes).unwrap();
        read_all(folder.path());
    }
}

/// The optimizer states. Names of the model's tensors separate parameters from keys.
fn states(model: &Checkpoint, optimizer: &Checkpoint) -> Vec<OptimizerState> {
    let parameters = model.names();
    let of = |name: String| {
        let rest = name.strip_prefix("state.").unwrap();
        let ending = |parameter: &&String| rest.strip_prefix(parameter.as_str()).and_then(|key| key.strip_prefix('.'));
        let parameter = parameters.iter().filter(|parameter| ending(parameter).is_some()).max_by_key(|name| name.len());
        let parameter = parameter.unwrap();
        let key = ending(&parameter).unwrap().to_owned();
        OptimizerState { parameter: parameter.clone(), key, tensor: optimizer.read(&name).unwrap() }
    };
    optimizer.names().into_iter().map(of).collect()
}

#[test]
fn checkpoints_of_the_reference_are_written_as_they_were_read() {
    for name in ["dlrm_criteo", "hstu_match_cosine"] {
        let path = golden(name).join("checkpoint");
        let model = Checkpoint::open(&path).unwrap();
        let optimizer = Checkpoint::open_optimizer(&path).unwrap().unwrap();
        let tensors = model.names().into_iter().map(|name| (name.clone(), model.read(&name).unwrap())).collect();
        let saved =
            Saved { model: tensors, optimizer: states(&model, &optimizer), plan: model.plan(), dynamic: vec![] };
        let folder = tempfile::tempdir().unwrap();
        let written = write_checkpoint(folder.path(), 11, &saved).unwrap();
        assert_eq!(written, folder.path().join("model.ckpt-11"));
        let again = Checkpoint::open(folder.path()).unwrap();
        assert_eq!((again.names(), again.plan()), (model.names(), model.plan()));
        assert!(model.names().iter().all(|name| again.read(name).unwrap() == model.read(name).unwrap()));
        let state = Checkpoint::open_optimizer(folder.path()).unwrap().unwrap();
        assert_eq!(state.names(), optimizer.names());
        assert!(state.names().iter().all(|name| state.read(name).unwrap() == optimizer.read(name).unwrap()));
        // No temporary files remain, and a second checkpoint of the same step replaces the first.
        let names =
            || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(names(), ["model.ckpt-11"]);
        write_checkpoint(folder.path(), 11, &Saved { plan: None, ..saved.clone() }).unwrap();
        assert!(names() == ["model.ckpt-11"] && Checkpoint::open(folder.path()).unwrap().plan().is_none());
    }
}

/// A tensor of zeros.
fn zeros(element: ElementType, shape: &[usize]) -> StoredTensor {
    let count: usize = shape.iter().product();
    StoredTensor { element, shape: shape.to_vec(), bytes: vec![0; count * element.bytes()] }
}

#[test]
fn tensors_of_every_type_and_shape_are_written() {
    use ElementType::{BF16, F16, F32, F64, I32, I64};
    let shapes = [vec![], vec![1], vec![0], vec![0, 4], vec![2, 70_000], vec![2, 0, 3], vec![1, 1, 1, 5]];
    let all = [F32, F16, BF16, F64, I64, I32]
        .into_iter()
        .flat_map(|element| shapes.iter().map(move |shape| (element, shape)));
    let all = all.filter(|(element, shape)| shape.len() != 2 || shape[0] == 0 || *element == F16);
    let model = all.map(|(element, shape)| (format!("model.{element:?} {shape:?} 字"), zeros(element, shape)));
    let saved = Saved { model: model.collect(), ..Saved::default() };
    let folder = tempfile::tempdir().unwrap();
    write_checkpoint(folder.path(), 0, &saved).unwrap();
    let read = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(read.names(), saved.model.keys().cloned().collect::<Vec<_>>());
    assert!(saved.model.iter().all(|(name, tensor)| read.read(name).unwrap() == *tensor));
    assert!(Checkpoint::open_optimizer(folder.path()).unwrap().unwrap().names().is_empty());
}

#[test]
fn what_is_no_checkpoint_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let write = |saved: &Saved| write_checkpoint(folder.path(), 3, saved).unwrap_err().to_string();
    let short = StoredTensor { bytes: vec![0; 7], ..zeros(ElementType::F32, &[2]) };
    let error = write(&Saved { model: [("model.a".to_owned(), short)].into(), ..Saved::default() });
    assert!(error.contains("`model.a`") && error.contains("7 bytes") && error.contains("F32 [2]"), "{error}");
    let state = OptimizerState {
        parameter: "model.a".to_owned(),
        key: "step".to_owned(),
        tensor: zeros(ElementType::F32, &[]),
    };
    let error = write(&Saved { optimizer: vec![state.clone(), state], ..Saved::default() });
    assert!(error.contains("`state.model.a.step`") && error.contains("twice"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let error = write_checkpoint(&folder.path().join("file"), 3, &Saved::default()).unwrap_err();
    assert!(matches!(error, CheckpointError::Write { .. }), "{error}");
}

#[test]
fn tables_of_dynamicemb_are_files_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let table = DynamicTable {
        module: "model.eg.ebc".to_owned(),
        table: "item_emb".to_owned(),
        keys: vec![7, -1, i64::MAX - 1],
        values: (0..6).map(|value| value as f32).collect(),
        scores: vec![3, 1, 2],
        states: vec![0.5; 3],
    };
    let other = DynamicTable { table: "empty".to_owned(), module: table.module.clone(), ..DynamicTable::default() };
    let saved = Saved { dynamic: vec![other.clone(), table.clone()], ..Saved::default() };
    let written = write_checkpoint(folder.path(), 5, &saved).unwrap();
    assert_eq!(read_dynamic(folder.path()).unwrap(), [other, table.clone()]);

    // Adds the files of a second rank. File names end with the number of ranks.
    let files = written.join("dynamicemb/model.eg.ebc");
    let bytes = |part: &str, rank: usize| files.join(format!("item_emb_{part}.rank_{rank}.world_size_2"));
    for part in ["emb_keys", "emb_values", "emb_scores", "opt_values"] {
        std::fs::rename(files.join(format!("item_emb_{part}.rank_0.world_size_1")), bytes(part, 0)).unwrap();
        std::fs::write(bytes(part, 1), []).unwrap();
    }
    std::fs::write(bytes("emb_keys", 1), 9i64.to_le_bytes()).unwrap();
    let error = read_dynamic(folder.path()).unwrap_err();
    assert!(
        matches!(&error, CheckpointError::File { source, .. } if source.to_string().contains("1 keys, but 0 scores")),
        "{error}"
    );
    std::fs::write(bytes("emb_scores", 1), 4i64.to_le_bytes()).unwrap();
    std::fs::write(bytes("emb_values", 1), [0; 8]).unwrap();
    let both = read_dynamic(folder.path()).unwrap().pop().unwrap();
    assert_eq!((both.keys, both.scores), (vec![7, -1, i64::MAX - 1, 9], vec![3, 1, 2, 4]));
    assert_eq!(both.values[..6], table.values);
    std::fs::write(bytes("emb_values", 1), [0; 7]).unwrap();
    assert!(matches!(read_dynamic(folder.path()), Err(CheckpointError::File { .. })));
    std::fs::remove_file(bytes("emb_scores", 1)).unwrap();
    assert!(matches!(read_dynamic(folder.path()), Err(CheckpointError::Read { .. })));
}
