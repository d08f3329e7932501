//! Writes the metadata of distributed checkpoints.

use super::ElementType;
use super::encode::{Encoder, Name};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

const DCP: &str = "torch.distributed.checkpoint.metadata";

/// A block of a tensor, and the location of its shard in a file, in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub name: String,
    /// The key path in the nested dict that the reference saves.
    pub path: Vec<String>,
    pub element: ElementType,
    /// The shape of the whole tensor.
    pub shape: Vec<usize>,
    pub offsets: Vec<usize>,
    pub sizes: Vec<usize>,
    pub file: String,
    pub start: u64,
    pub length: u64,
}

/// The metadata as a pickle.
pub(super) fn metadata(chunks: &[&Chunk]) -> Vec<u8> {
    let tensors = by_tensor(chunks);
    let mut pickle = Encoder::new(4);
    pickle.instance(Name(DCP, "Metadata"), |pickle| {
        pickle.string("state_dict_metadata");
        pickle.dict(|pickle| tensors.iter().for_each(|chunks| describe(pickle, chunks)));
        pickle.string("planner_data");
        pickle.dict(|pickle| {
            for Chunk { name, path, .. } in tensors.iter().filter_map(|chunks| chunks.first()) {
                pickle.string(name);
                pickle.tuple(|pickle| path.iter().for_each(|key| pickle.string(key)));
            }
        });
        pickle.string("storage_data");
        pickle.dict(|pickle| {
            for (index, chunk) in tensors.iter().flat_map(|chunks| chunks.iter().enumerate()) {
                locate(pickle, index, chunk);
            }
        });
        pickle.string("storage_meta");
        pickle.instance(Name(DCP, "StorageMeta"), |pickle| {
            for key in ["checkpoint_id", "save_id", "load_id"] {
                pickle.string(key);
                pickle.none();
            }
            pickle.string("modules");
            pickle.list(|_| {});
        });
        pickle.string("version");
        pickle.string("1.0.0");
    });
    pickle.finish()
}

/// Groups chunks by tensor. Tensors are in the order of their first chunks.
fn by_tensor<'a>(chunks: &[&'a Chunk]) -> Vec<Vec<&'a Chunk>> {
    let (mut tensors, mut places) = (Vec::<Vec<&Chunk>>::new(), HashMap::new());
    for chunk in chunks {
        let place = *places.entry(&chunk.name).or_insert(tensors.len());
        match tensors.get_mut(place) {
            Some(tensor) => tensor.push(chunk),
            None => tensors.push(vec![chunk]),
        }
    }
    tensors
}

/// Writes a tensor's name, element type, shape and chunks.
fn describe(pickle: &mut Encoder, chunks: &[&Chunk]) {
    let Some(Chunk { name, element, shape, .. }) = chunks.first() else { return };
    pickle.string(name);
    pickle.instance(Name(DCP, "TensorStorageMetadata"), |pickle| {
        pickle.string("properties");
        pickle.instance_of(Name(DCP, "TensorProperties"), |pickle| {
            pickle.tuple(|pickle| {
                pickle.global(Name::of(element.dtype()));
                pickle.call(Name("torch.serialization", "_get_layout"), |pickle| pickle.string("torch.strided"));
                pickle.bool(false);
                pickle.call(Name(DCP, "_MEM_FORMAT_ENCODING"), |pickle| pickle.int(0));
                pickle.bool(false);
            });
        });
        pickle.string("size");
        size(pickle, shape);
        pickle.string("chunks");
        pickle.list(|pickle| {
            for Chunk { offsets, sizes, .. } in chunks {
                pickle.instance(Name(DCP, "ChunkStorageMetadata"), |pickle| {
                    pickle.string("offsets");
                    size(pickle, offsets);
                    pickle.string("sizes");
                    size(pickle, sizes);
                });
            }
        });
    });
}

/// Writes the index of a chunk among its tensor's chunks, and the location of its shard.
fn locate(pickle: &mut Encoder, index: usize, chunk: &Chunk) {
    pickle.instance(Name(DCP, "MetadataIndex"), |pickle| {
        pickle.string("fqn");
        pickle.string(&chunk.name);
        pickle.string("index");
        pickle.int(index as u64);
        pickle.string("offset");
        size(pickle, &chunk.offsets);
    });
    pickle.instance(Name("torch.distributed.checkpoint.filesystem", "_StorageInfo"), |pickle| {
        pickle.string("relative_path");
        pickle.string(&chunk.file);
        pickle.string("offset");
        pickle.int(chunk.start);
        pickle.string("length");
        pickle.int(chunk.length);
    });
}

fn size(pickle: &mut Encoder, extents: &[usize]) {
    pickle.call(Name("torch", "Size"), |pickle| pickle.extents(extents));
}
