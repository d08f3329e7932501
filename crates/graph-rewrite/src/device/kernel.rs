use crate::plan::Extent;
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// A word of a kernel's parameter block, an `i32`, computed before each run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Param {
    /// A size.
    Dim(Dim),
    /// Where the vector of a host operand begins in `sizes`, in words.
    HostBase(u16),
    /// Where a pooled operand begins in the pooled parameters, in groups of four elements.
    PooledBase(u16),
    /// Where a tile list begins in `sizes`, in words.
    TileBase(u16),
    /// Total number of workgroups; those beyond it, from folding the grid, do nothing.
    Workgroups,
}

/// Rows of all samples cut into tiles: pairs `(sample, first row within the sample)` in `sizes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TileList {
    /// Extents whose product is the number of samples.
    pub samples: Vec<Dim>,
    /// Rows of a sample.
    pub rows: Extent,
    /// Rows of a tile.
    pub tile: u32,
    /// Tiles with the largest first row come first, but for the first tile of every sample, which comes before all.
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
pub enum Slot {
    /// The `sizes` buffer: host operands and tile lists, `array<i32>`, read-only.
    Sizes,
    /// An operand of the body on the device, read-only.
    Operand(u16),
    /// An operand that is a parameter of rows of 8 bits, as halves, read-only.
    Dequantized {
        /// The operand.
        operand: u16,
        /// Whether its last two dimensions are exchanged in memory.
        transposed: bool,
    },
    /// The pooled parameters of a type, read-only.
    Pooled(DType),
    /// An output of the kernel, read-write.
    Output(u16),
}

/// A kernel ready for a device.
///
/// Bind group 0: binding 0 is the uniform block of `params` as `array<vec4<i32>, N>`, and binding
/// `1 + n` is `slots[n]`. A tensor of several [`Windows`](super::Windows) has as many slots in a row. The grid is the product of its factors, folded to two dimensions by the
/// caller: `flat = workgroup_id.x + workgroup_id.y * num_workgroups.x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmittedKernel {
    /// The shader; its entry point is `main`.
    pub wgsl: String,
    /// Words of the parameter block.
    pub params: Vec<Param>,
    /// Storage bindings in order.
    pub slots: Vec<Slot>,
    /// Tile lists the runtime computes.
    pub tile_lists: Vec<TileList>,
    /// Number of workgroups.
    pub grid: Vec<GridFactor>,
    /// True if every loop ends and no division is undefined, so that the shader may run without checks where the indices of the
    /// kernel are proven or clamped, as [`crate::prove::confine`] leaves them.
    pub unchecked: bool,
    /// What the shader calls that WGSL has not, so that a device takes it as SPIR-V alone: see `ParsedKernel::spirv` of the emitter.
    #[serde(default)]
    pub extension: Option<Extension>,
}

/// What kernels take of `VK_NV_cooperative_matrix2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extension {
    /// Elements of matrices are computed in registers, and sums become operands there.
    Elements,
    /// Matrices of the kernel are shared by a workgroup, and loaded and stored as parts of tensors.
    Workgroup {
        /// Rows and columns of a product of such matrices, and steps of its sums.
        tile: [u32; 3],
    },
}
