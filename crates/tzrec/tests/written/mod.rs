//! Writes checkpoints in the format of `torch.distributed.checkpoint`.

use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// A tensor and its shards.
#[derive(Clone)]
pub struct Tensor {
    pub name: &'static str,
    /// Name of the `torch.dtype`.
    pub dtype: &'static str,
    pub size: Vec<usize>,
    pub shards: Vec<Shard>,
}

/// A block of a tensor, stored as a view of a storage.
#[derive(Clone)]
pub struct Shard {
    /// Offsets of the block in the tensor.
    pub offsets: Vec<usize>,
    pub sizes: Vec<usize>,
    pub storage: &'static str,
    /// Offset of the view in the storage, in elements.
    pub offset: i64,
    pub strides: Vec<i64>,
    pub data: Vec<u8>,
}

impl Shard {
    /// A shard that contains a whole contiguous tensor.
    pub fn whole(sizes: &[usize], storage: &'static str, data: Vec<u8>) -> Self {
        let stride = |axis: usize| sizes[axis + 1..].iter().product::<usize>() as i64;
        let strides = (0..sizes.len()).map(stride).collect();
        Self { offsets: vec![0; sizes.len()], sizes: sizes.to_vec(), storage, offset: 0, strides, data }
    }
}

/// Writes the folder of a checkpoint.
pub fn write(folder: &Path, tensors: &[Tensor]) {
    let mut file: Vec<u8> = vec![];
    let mut places = vec![];
    for tensor in tensors {
        let of_shard = |shard: &Shard| {
            let sizes: Vec<i64> = shard.sizes.iter().map(|size| *size as i64).collect();
            let zip = save(shard.storage, &sizes, &shard.strides, shard.offset, &shard.data);
            let place = ("__0_0.distcp", file.len() as u64, zip.len() as u64);
            file.extend(zip);
            place
        };
        places.push((tensor, tensor.shards.iter().map(of_shard).collect::<Vec<_>>()));
    }
    std::fs::write(folder.join(".metadata"), metadata(&places)).unwrap();
    std::fs::write(folder.join("__0_0.distcp"), file).unwrap();
}

/// The zip that `torch.save` writes.
pub fn save(storage: &str, sizes: &[i64], strides: &[i64], offset: i64, data: &[u8]) -> Vec<u8> {
    let mut pickle = Pickle(vec![0x80, 2]);
    pickle.line_global("torch._utils", "_rebuild_tensor_v2");
    pickle.code(b"((");
    pickle.string("storage");
    pickle.line_global("torch", storage);
    pickle.string("0");
    pickle.string("cpu");
    pickle.int(data.len() as i64);
    pickle.code(b"tQ");
    pickle.int(offset);
    pickle.tuple(sizes);
    pickle.tuple(strides);
    pickle.code(b"\x89");
    pickle.line_global("collections", "OrderedDict");
    pickle.code(b")RtR.");
    let mut zip = ZipWriter::new(Cursor::new(vec![]));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, content) in [("data.pkl", pickle.0.as_slice()), ("byteorder", b"little"), ("data/0", data)] {
        zip.start_file(format!("archive/{name}"), options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Location of a shard: file, start and length in bytes.
pub type Place<'a> = (&'a str, u64, u64);

const DCP: &str = "torch.distributed.checkpoint.metadata";

/// The metadata pickle of tensors and the locations of their shards.
pub fn metadata(tensors: &[(&Tensor, Vec<Place>)]) -> Vec<u8> {
    let mut pickle = Pickle(vec![0x80, 4]);
    pickle.instance(DCP, "Metadata", |pickle| {
        pickle.string("state_dict_metadata");
        pickle.dict(|pickle| tensors.iter().for_each(|(tensor, _)| pickle.tensor(tensor)));
        pickle.string("storage_data");
        pickle.dict(|pickle| {
            for (tensor, places) in tensors {
                tensor.shards.iter().zip(places).for_each(|(shard, place)| pickle.place(tensor.name, shard, place));
            }
        });
    });
    pickle.code(b".");
    pickle.0
}

struct Pickle(Vec<u8>);

impl Pickle {
    fn code(&mut self, code: &[u8]) {
        self.0.extend(code);
    }

    fn string(&mut self, text: &str) {
        self.code(b"X");
        self.code(&(text.len() as u32).to_le_bytes());
        self.code(text.as_bytes());
    }

    /// Writes an 8-byte integer.
    fn int(&mut self, number: i64) {
        self.code(b"\x8a\x08");
        self.code(&number.to_le_bytes());
    }

    fn tuple(&mut self, numbers: &[i64]) {
        self.code(b"(");
        numbers.iter().for_each(|number| self.int(*number));
        self.code(b"t");
    }

    fn line_global(&mut self, module: &str, name: &str) {
        self.code(format!("c{module}\n{name}\n").as_bytes());
    }

    fn global(&mut self, module: &str, name: &str) {
        self.string(module);
        self.string(name);
        self.code(b"\x93");
    }

    fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.code(b"}(");
        items(self);
        self.code(b"u");
    }

    fn instance(&mut self, module: &str, class: &str, state: impl FnOnce(&mut Self)) {
        self.global(module, class);
        self.code(b")\x81");
        self.dict(state);
        self.code(b"b");
    }

    fn size(&mut self, extents: &[usize]) {
        self.global("torch", "Size");
        self.tuple(&extents.iter().map(|extent| *extent as i64).collect::<Vec<_>>());
        self.code(b"\x85R");
    }

    fn tensor(&mut self, tensor: &Tensor) {
        self.string(tensor.name);
        self.instance(DCP, "TensorStorageMetadata", |pickle| {
            pickle.string("properties");
            pickle.global(DCP, "TensorProperties");
            pickle.code(b")\x81(");
            pickle.global("torch", tensor.dtype);
            pickle.global("torch.serialization", "_get_layout");
            pickle.string("torch.strided");
            pickle.code(b"\x85R\x89");
            pickle.global(DCP, "_MEM_FORMAT_ENCODING");
            pickle.code(b"K\x00\x85R\x89tb");
            pickle.string("size");
            pickle.size(&tensor.size);
            pickle.string("chunks");
            pickle.code(b"](");
            for shard in &tensor.shards {
                pickle.instance(DCP, "ChunkStorageMetadata", |pickle| {
                    pickle.string("offsets");
                    pickle.size(&shard.offsets);
                    pickle.string("sizes");
                    pickle.size(&shard.sizes);
                });
            }
            pickle.code(b"e");
        });
    }

    fn place(&mut self, name: &str, shard: &Shard, (file, start, length): &(&str, u64, u64)) {
        self.instance(DCP, "MetadataIndex", |pickle| {
            pickle.string("fqn");
            pickle.string(name);
            pickle.string("offset");
            pickle.size(&shard.offsets);
        });
        self.instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", |pickle| {
            pickle.string("relative_path");
            pickle.string(file);
            pickle.string("offset");
            pickle.int(*start as i64);
            pickle.string("length");
            pickle.int(*length as i64);
            pickle.string("transform_descriptors");
            pickle.code(b"N");
        });
    }
}
