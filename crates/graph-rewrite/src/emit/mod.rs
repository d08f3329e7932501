//! WGSL emission: a pure function of a kernel, a target and a tuning.

mod attention;
mod check;
mod error;
mod expr;
mod function;
mod hook;
mod interval;
mod map;
mod matmul;
mod module;
mod reduce;
mod store;
mod template;
mod tuning;
mod validate;
mod value;

pub use error::EmitError;
pub use tuning::Tuning;

use crate::plan::{Kernel, RowRange};
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// What an adapter offers to a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `enable f16` works.
    pub f16: bool,
    /// `enable subgroups` works.
    pub subgroups: bool,
    /// Storage buffers a kernel may bind.
    pub storage_buffers: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Bytes of one storage binding.
    pub binding_bytes: u64,
}

impl Target {
    /// What every WebGPU implementation offers.
    pub const BASELINE: Self = Self {
        f16: false,
        subgroups: false,
        storage_buffers: 8,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        binding_bytes: 128 << 20,
    };
}

/// A word of a kernel's parameter block, an `i32`, computed before each run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Param {
    /// A size.
    Dim(Dim),
    /// Where the vector of a host operand begins in `sizes`, in words.
    HostBase(u16),
    /// Where a tile list begins in `sizes`, in words.
    TileBase(u16),
    /// Total number of workgroups; those beyond it, from folding the grid, do nothing.
    Workgroups,
}

/// Rows of all samples cut into tiles: pairs `(sample, first row within the sample)` in `sizes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TileList {
    /// Number of samples.
    pub samples: Dim,
    /// Rows of a sample.
    pub rows: RowRange,
    /// Rows of a tile.
    pub tile: u32,
    /// Tiles with the largest first row come first.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The `sizes` buffer: host operands and tile lists, `array<i32>`, read-only.
    Sizes,
    /// An operand of the body on the device, read-only.
    Operand(u16),
    /// An output of the kernel, read-write.
    Output(u16),
}

/// A kernel ready for a device.
///
/// Bind group 0: binding 0 is the uniform block of `params` as `array<vec4<i32>, N>`, and binding
/// `1 + n` is `slots[n]`. The grid is the product of its factors, folded to two dimensions by the
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
    /// Storage types the shader assumes for outputs, for checks.
    pub outputs: Vec<DType>,
}

/// Emits the shader of `kernel` for `target`, validated.
///
/// Errors name what the kernel refers to and does not have, or what the target lacks.
///
/// # Errors
/// [`EmitError`] if the target cannot run such a kernel, or what was written is not valid WGSL.
pub fn emit(kernel: &Kernel, target: &Target, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    check::check(kernel)?;
    match kernel {
        Kernel::Map(kernel) => map::emit(kernel, target, tuning),
        Kernel::Matmul(kernel) => matmul::emit(kernel, target, tuning),
        Kernel::Reduce(kernel) => reduce::emit(kernel, target, tuning),
        Kernel::Attention(kernel) => attention::emit(kernel, target, tuning),
    }
}
