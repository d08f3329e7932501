use crate::plan::Extent;
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// A word of a kernel's parameter block, an `i32`, computed before each run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Param {
    /// A size.
    Dim(Dim),
    /// Start of a host operand's vector in `sizes`, in words.
    HostBase(u16),
    /// Start of a pooled operand in the pooled parameters, in groups of four elements.
    PooledBase(u16),
    /// Start of a tile list in `sizes`, in words.
    TileBase(u16),
    /// Total number of workgroups. The folded grid may have more; these do nothing.
    Workgroups,
}

/// The rows of all samples divided into tiles: pairs `(sample, first row within the sample)` in `sizes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TileList {
    /// Extents whose product is the number of samples.
    pub samples: Vec<Dim>,
    /// Number of rows of a sample.
    pub rows: Extent,
    /// Number of rows of a tile.
    pub tile: u32,
    /// Orders tiles by descending first row, except that the first tile of every sample comes before all others.
    pub longest_first: bool,
}

/// A factor of the number of workgroups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GridFactor {
    /// The product of the sizes, divided by the tile, rounded up.
    Tiles(Vec<Dim>, u32),
    /// The number of tiles of a tile list.
    TileList(u16),
}

/// A storage binding of an emitted kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BindingSource {
    /// The `sizes` buffer: host operands and tile lists, `array<i32>`, read-only.
    Sizes,
    /// An operand of the body on the device, read-only.
    Operand(u16),
    /// A parameter stored as [`DType::Rows8`], dequantized to f16, read-only.
    Dequantized {
        /// Position of the operand.
        operand: u16,
        /// True if its last two dimensions are swapped in memory.
        transposed: bool,
    },
    /// The pooled parameters of a type, read-only.
    Pooled(DType),
    /// An output of the kernel, read-write.
    Output(u16),
}

/// A kernel that is ready for a device.
///
/// Bind group 0: binding 0 is the uniform block of `params` as `array<vec4<i32>, N>`, and binding `1 + n` is
/// `slots[n]`. A tensor with several [`BindingChunks`](super::BindingChunks) has one slot per chunk, in order. The grid
/// is the product of its factors, which the caller folds to two dimensions:
/// `flat = workgroup_id.x + workgroup_id.y * num_workgroups.x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmittedKernel {
    /// The shader; its entry point is `main`.
    pub wgsl: String,
    /// Words of the parameter block.
    pub params: Vec<Param>,
    /// Storage bindings in order.
    pub slots: Vec<BindingSource>,
    /// Tile lists, which the runtime computes.
    pub tile_lists: Vec<TileList>,
    /// Number of workgroups.
    pub grid: Vec<GridFactor>,
    /// True if every loop ends and no division is undefined. The shader may then run without checks, provided that the
    /// kernel's indices are proven or clamped, as after [`crate::prove::confine`].
    pub unchecked: bool,
    /// The extension, missing from WGSL, that the shader uses. Devices then accept the shader only as SPIR-V: see
    /// `ParsedKernel::spirv` of the emitter.
    #[serde(default)]
    pub extension: Option<Extension>,
}

/// The parts of `VK_NV_cooperative_matrix2` that a kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extension {
    /// Operations on matrix elements in registers; accumulators become operands there.
    Elements,
    /// Workgroup-scope matrices, loaded and stored as tiles of tensors.
    Workgroup {
        /// Rows and columns of a tile, and its steps of `k`.
        tile: [u32; 3],
    },
}
