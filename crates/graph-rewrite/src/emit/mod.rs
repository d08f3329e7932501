//! WGSL emission: a pure function of a kernel, a target and a tuning.

#[cfg(feature = "emit")]
mod access;
#[cfg(feature = "emit")]
mod attention;
#[cfg(feature = "emit")]
mod call;
#[cfg_attr(not(feature = "emit"), path = "absent.rs")]
mod candidates;
#[cfg(feature = "emit")]
mod check;
#[cfg(feature = "emit")]
mod coords;
#[cfg(feature = "emit")]
mod custom;
#[cfg(feature = "emit")]
mod dequantize;
mod error;
#[cfg(feature = "emit")]
mod expr;
#[cfg(feature = "emit")]
mod fold;
#[cfg(feature = "emit")]
mod frame;
#[cfg(feature = "emit")]
mod function;
#[cfg(feature = "emit")]
mod hook;
#[cfg(feature = "emit")]
mod interval;
#[cfg(feature = "emit")]
mod map;
#[cfg(feature = "emit")]
mod matmul;
#[cfg(feature = "emit")]
mod module;
#[cfg(feature = "emit")]
mod names;
#[cfg(feature = "emit")]
mod pairs;
#[cfg(feature = "emit")]
mod reduce;
#[cfg(feature = "emit")]
mod required;
#[cfg(feature = "spirv")]
mod spirv;
#[cfg(feature = "emit")]
mod staged_rows;
#[cfg(feature = "emit")]
mod storage;
#[cfg(feature = "emit")]
mod store;
#[cfg(feature = "emit")]
mod template;
mod tuning;
#[cfg(feature = "emit")]
mod validate;
#[cfg(feature = "emit")]
mod value;
mod windows;

pub use error::EmitError;
pub use tuning::{ParseTuningError, Tuning};
pub use windows::Windows;

use crate::plan::Extent;
#[cfg(feature = "emit")]
use crate::plan::{Computation, Nest, ScheduledNest};
#[cfg(feature = "emit")]
use crate::schedule::{Bound, Schedule};
#[cfg(feature = "emit")]
use dequantize::dequantized;
#[cfg(feature = "emit")]
use module::Module;
use rewire_graph::{DType, Dim};
use serde::{Deserialize, Serialize};

/// Tells versions of the emitter apart: a hash of its source and templates.
pub const EMITTER: &str = env!("REWIRE_EMITTER");

/// What an adapter offers to a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `enable f16` works.
    pub f16: bool,
    /// 64-bit integers work.
    pub int64: bool,
    /// Subgroup operations and barriers work.
    pub subgroups: bool,
    /// Invocations of a subgroup; 0 where that varies.
    pub subgroup_size: u32,
    /// Rows, columns and depth of a cooperative matrix with halves as operands and `f32` sums; 0 where there are none.
    ///
    /// Products take them whose operands are made of stored halves and stay as large as those, or are `Rows8`: bounded functions, sums,
    /// choices and gates of them, scales that all rows share, rows divided by their length. Integers above 2048, squares,
    /// quotients, exponentials without a bound and functions of a user's own are multiplied in `f32`.
    pub matrix: u32,
    /// Cooperative matrices of that size add in halves as well.
    #[serde(default)]
    pub half_sums: bool,
    /// Elements of matrices of that size are computed in registers, and sums become operands there, by `VK_NV_cooperative_matrix2`:
    /// kernels with such matrices are handed over as SPIR-V.
    #[serde(default)]
    pub matrix_elements: bool,
    /// Invocations of the largest workgroup that may share matrices, by the same extension; 0 where none may.
    #[serde(default)]
    pub workgroup_matrices: u32,
    /// Multiprocessors that run such workgroups, which tiles of products may follow; 0 where that is not known.
    #[serde(default)]
    pub multiprocessors: u32,
    /// Shaders are compiled for a CPU, where short ones are soonest done.
    pub software: bool,
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
        int64: false,
        subgroups: false,
        subgroup_size: 0,
        matrix: 0,
        half_sums: false,
        matrix_elements: false,
        workgroup_matrices: 0,
        multiprocessors: 0,
        software: false,
        storage_buffers: 8,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        binding_bytes: 128 << 20,
    };

    /// True for what a device may offer: no less than the baseline, and sizes that there are. Kernels can be emitted for it.
    ///
    /// ```
    /// use rewire_graph_rewrite::emit::Target;
    /// assert!(Target::BASELINE.is_device());
    /// assert!(!Target { invocations: 0, ..Target::BASELINE }.is_device());
    /// assert!(!Target { matrix: 7, ..Target::BASELINE }.is_device());
    /// ```
    pub fn is_device(&self) -> bool {
        let least = &Self::BASELINE;
        self.storage_buffers >= least.storage_buffers
            && (least.workgroup_bytes..=1 << 20).contains(&self.workgroup_bytes)
            && (least.invocations..=1 << 12).contains(&self.invocations)
            && (least.binding_bytes..=1 << 40).contains(&self.binding_bytes)
            && [0, 8, 16].contains(&self.matrix)
            && self.workgroup_matrices <= self.invocations
            && self.multiprocessors <= 1 << 16
            && (self.subgroup_size == 0 || self.subgroup_size.is_power_of_two() && self.subgroup_size <= 128)
    }

    /// The extent of cooperative matrices and the invocations of a subgroup; `None` where kernels use no such matrices. They need
    /// `shader-f16`, and subgroups with barriers and one known size.
    ///
    /// ```
    /// use rewire_graph_rewrite::emit::Target;
    /// let fixed = Target { f16: true, subgroups: true, subgroup_size: 32, matrix: 16, ..Target::BASELINE };
    /// assert_eq!(fixed.cooperative(), Some((16, 32)));
    /// assert_eq!(Target { subgroup_size: 0, ..fixed }.cooperative(), None);
    /// ```
    pub fn cooperative(&self) -> Option<(u32, u32)> {
        let is_usable = self.f16 && self.subgroups && self.subgroup_size != 0 && self.matrix != 0;
        is_usable.then_some((self.matrix, self.subgroup_size))
    }

    /// True where kernels use matrices that a workgroup shares.
    #[cfg(feature = "emit")]
    pub(crate) fn shares_matrices(&self) -> bool {
        self.workgroup_matrices > 0 && self.cooperative().is_some()
    }

    /// What it offers of cooperative matrices: their size, sums of halves, operations on elements, and invocations that share them.
    pub fn matrices(&self) -> (u32, bool, bool, u32) {
        (self.matrix, self.half_sums, self.matrix_elements, self.workgroup_matrices)
    }

    /// What both targets offer.
    ///
    /// ```
    /// use rewire_graph_rewrite::emit::Target;
    /// let halves = Target { f16: true, invocations: 128, ..Target::BASELINE };
    /// assert_eq!(halves.within(&Target::BASELINE), Target { invocations: 128, ..Target::BASELINE });
    /// ```
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self {
            f16: self.f16 && other.f16,
            int64: self.int64 && other.int64,
            subgroups: self.subgroups && other.subgroups,
            subgroup_size: if self.subgroup_size == other.subgroup_size { self.subgroup_size } else { 0 },
            matrix: if self.matrix == other.matrix { self.matrix } else { 0 },
            half_sums: self.half_sums && other.half_sums,
            matrix_elements: self.matrix_elements && other.matrix_elements,
            workgroup_matrices: self.workgroup_matrices.min(other.workgroup_matrices),
            multiprocessors: if self.multiprocessors == other.multiprocessors { self.multiprocessors } else { 0 },
            software: self.software,
            storage_buffers: self.storage_buffers.min(other.storage_buffers),
            workgroup_bytes: self.workgroup_bytes.min(other.workgroup_bytes),
            invocations: self.invocations.min(other.invocations),
            binding_bytes: self.binding_bytes.min(other.binding_bytes),
        }
    }
}

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
/// `1 + n` is `slots[n]`. A tensor of several [`Windows`] has as many slots in a row. The grid is the product of its factors, folded to two dimensions by the
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
    /// What the shader calls that WGSL has not, so that a device takes it as SPIR-V alone: see [`ParsedKernel::spirv`].
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

/// A kernel whose shader is parsed.
#[derive(Clone, Debug)]
pub struct ParsedKernel {
    /// The kernel.
    pub kernel: EmittedKernel,
    /// The shader as naga has parsed it, so that a device need not.
    #[cfg(feature = "emit")]
    pub module: naga::Module,
}

impl ParsedKernel {
    /// Parses the shader of a kernel.
    ///
    /// # Errors
    /// [`EmitError::Shader`] where it is no WGSL.
    #[cfg(feature = "emit")]
    pub fn parse(kernel: EmittedKernel) -> Result<Self, EmitError> {
        let module = validate::parse(&kernel.wgsl).map_err(|(line, reason)| EmitError::Shader { line, reason })?;
        Ok(Self { kernel, module })
    }

    /// Takes a kernel whose shader a device will parse.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "emit"))]
    pub fn parse(kernel: EmittedKernel) -> Result<Self, EmitError> {
        Ok(Self { kernel })
    }
}

/// Emits the shader of `kernel` for `target`, validated. Tensors of symbolic size fit a binding each.
///
/// # Errors
/// [`EmitError`] names what the kernel refers to and does not have, or what the target lacks.
#[cfg(feature = "emit")]
pub fn emit(computation: &Computation, target: &Target, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    Ok(emit_with_windows(computation, target, tuning, &Windows::of_constants(computation, target))?.kernel)
}

/// [`emit`] where tensors may be larger than a binding: loads and stores choose the window.
///
/// # Errors
/// As [`emit`], and [`EmitError::Limit`] where there are more windows than a kernel may bind.
#[cfg(feature = "emit")]
pub fn emit_with_windows(
    computation: &Computation,
    target: &Target,
    tuning: &Tuning,
    windows: &Windows,
) -> Result<ParsedKernel, EmitError> {
    check::check(computation)?;
    computation.check_loop()?;
    validate::limit("storage buffers", windows.most().into(), target.storage_buffers)?;
    let (computation, bound) = dequantized(computation, target);
    let module = Module::new(computation.body(), target, windows);
    let parsed = match computation.as_ref() {
        Computation::Nest(kernel) => scheduled(kernel, |schedule| schedule.emit(module, tuning))?,
        Computation::Custom(own) => return custom::emit(own, module),
    };
    Ok(ParsedKernel { kernel: parsed.kernel.with_dequantized(bound), ..parsed })
}

/// How the nests of a schedule become shaders.
#[cfg(feature = "emit")]
trait Scheduled {
    /// Emits the shader.
    fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError>;

    /// Tunings that are worth a measurement beside `base`.
    fn candidates(&self, _target: &Target, _base: &Tuning) -> Vec<Tuning> {
        vec![]
    }

    /// A tuning, and what suits sizes that are known.
    fn suited(&self, tuning: Tuning, _target: &Target, _size: &dyn Fn(&Dim) -> Option<u64>) -> Tuning {
        tuning
    }

    /// True if the shader multiplies cooperative matrices.
    fn is_cooperative(&self, _target: &Target, _tuning: &Tuning) -> bool {
        false
    }
}

#[cfg(feature = "emit")]
fn scheduled<T>(kernel: &ScheduledNest, call: impl FnOnce(&dyn Scheduled) -> T) -> T {
    let nest: &Nest = kernel;
    match kernel.schedule() {
        Schedule::Map(schedule) => call(&Bound { nest, schedule }),
        Schedule::Reduction(schedule) => call(&Bound { nest, schedule }),
        Schedule::Product(schedule) => call(&Bound { nest, schedule }),
        Schedule::Attention(schedule) => call(&Bound { nest, schedule }),
        Schedule::Pairs(schedule) => call(&Bound { nest, schedule }),
        Schedule::Fold(schedule) => call(&Bound { nest, schedule }),
    }
}
