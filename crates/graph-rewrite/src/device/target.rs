use super::SubgroupSizes;
use serde::{Deserialize, Serialize};

/// Capabilities of an adapter for kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `enable f16` is supported.
    pub f16: bool,
    /// 64-bit integers are supported.
    pub int64: bool,
    /// Subgroup operations and barriers are supported.
    pub subgroups: bool,
    /// Subgroup sizes. Kernels are correct for every size of the range.
    pub subgroup_size: SubgroupSizes,
    /// Rows, columns and depth of a cooperative matrix with f16 operands and `f32` accumulators; 0 if there are none.
    ///
    /// Used for matmuls whose operands are `Rows8`, or computed from stored f16 values without exceeding them: bounded
    /// functions, sums, selects and gates of them, scales that all rows share, and rows divided by their norm. Integers
    /// above 2048, squares, quotients, exponentials without a bound and user-defined functions are multiplied in `f32`.
    pub matrix: u32,
    /// Cooperative matrices of that size support f16 accumulators, too.
    #[serde(default)]
    pub half_sums: bool,
    /// Elements of such matrices can be computed in registers, and accumulators become operands there, through
    /// `VK_NV_cooperative_matrix2`; kernels with such matrices are passed to the driver as SPIR-V.
    #[serde(default)]
    pub matrix_elements: bool,
    /// Invocations of the largest workgroup that may share matrices, through the same extension; 0 if unsupported.
    #[serde(default)]
    pub workgroup_matrices: u32,
    /// Such matrices support operands of signed bytes with `i32` accumulators.
    #[serde(default)]
    pub integers: bool,
    /// Number of multiprocessors, which determines the tiles of matmuls with such matrices; 0 if unknown.
    #[serde(default)]
    pub multiprocessors: u32,
    /// 32-bit registers that an invocation may use before too few subgroups run concurrently or values are spilled; 0
    /// if unknown, which makes tiles small.
    #[serde(default)]
    pub registers: u32,
    /// Shaders are compiled for a CPU, on which short shaders are fastest.
    pub software: bool,
    /// Storage buffers that a kernel may bind.
    pub storage_buffers: u32,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations per workgroup.
    pub invocations: u32,
    /// Size of a storage binding in bytes.
    pub binding_bytes: u64,
}

/// Register limit of small GPUs.
const FEW_REGISTERS: u32 = 96;

impl Target {
    /// The capabilities of every WebGPU implementation.
    pub const BASELINE: Self = Self {
        f16: false,
        int64: false,
        subgroups: false,
        subgroup_size: SubgroupSizes::UNKNOWN,
        matrix: 0,
        half_sums: false,
        matrix_elements: false,
        workgroup_matrices: 0,
        integers: false,
        multiprocessors: 0,
        registers: 0,
        software: false,
        storage_buffers: 8,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        binding_bytes: 128 << 20,
    };

    /// True for capabilities that a device can have: at least the baseline, with valid sizes. Kernels can be emitted
    /// for such targets.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::Target;
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
            && self.registers <= 1 << 10
            && self.subgroup_size.is_device()
    }

    /// The size of cooperative matrices and of subgroups; `None` if kernels cannot use such matrices, or only for a
    /// range of subgroup sizes. They require `shader-f16`, and subgroups with barriers and a known size.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::{SubgroupSizes, Target};
    /// let fixed = Target { f16: true, subgroups: true, subgroup_size: SubgroupSizes::fixed(32), matrix: 16, ..Target::BASELINE };
    /// assert_eq!(fixed.cooperative(), Some((16, 32)));
    /// assert_eq!(Target { subgroup_size: SubgroupSizes::UNKNOWN, ..fixed }.cooperative(), None);
    /// ```
    pub fn cooperative(&self) -> Option<(u32, u32)> {
        let (matrix, sizes) = self.matrices_of_subgroups()?;
        Some((matrix, sizes.one()?))
    }

    /// The size of cooperative matrices and of subgroups, for kernels that are correct for each size of a range.
    pub fn matrices_of_subgroups(&self) -> Option<(u32, SubgroupSizes)> {
        let is_usable = self.f16 && self.subgroups && self.matrix != 0 && self.subgroup_size.is_known();
        is_usable.then_some((self.matrix, self.subgroup_size))
    }

    /// Registers of an invocation that a tile may use.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::Target;
    /// assert_eq!(Target { registers: 255, ..Target::BASELINE }.register_budget(), 255);
    /// assert_eq!(Target::BASELINE.register_budget(), 96);
    /// ```
    pub fn register_budget(&self) -> u32 {
        if self.registers == 0 { FEW_REGISTERS } else { self.registers }
    }

    /// True if kernels use workgroup-scope matrices.
    pub fn shares_matrices(&self) -> bool {
        self.workgroup_matrices > 0 && self.cooperative().is_some()
    }

    /// True if workgroup-scope matrices multiply integers.
    pub fn multiplies_integers(&self) -> bool {
        self.integers && self.matrix == 16 && self.shares_matrices()
    }

    /// Support for cooperative matrices: their size, f16 accumulators, operations on elements, and invocations that
    /// share them.
    pub fn matrices(&self) -> (u32, bool, bool, u32) {
        (self.matrix, self.half_sums, self.matrix_elements, self.workgroup_matrices)
    }

    /// The capabilities common to both targets.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::Target;
    /// let f16 = Target { f16: true, invocations: 128, ..Target::BASELINE };
    /// assert_eq!(f16.within(&Target::BASELINE), Target { invocations: 128, ..Target::BASELINE });
    /// ```
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self {
            f16: self.f16 && other.f16,
            int64: self.int64 && other.int64,
            subgroups: self.subgroups && other.subgroups,
            subgroup_size: self.subgroup_size.union(other.subgroup_size),
            matrix: if self.matrix == other.matrix { self.matrix } else { 0 },
            half_sums: self.half_sums && other.half_sums,
            matrix_elements: self.matrix_elements && other.matrix_elements,
            workgroup_matrices: self.workgroup_matrices.min(other.workgroup_matrices),
            integers: self.integers && other.integers,
            multiprocessors: if self.multiprocessors == other.multiprocessors { self.multiprocessors } else { 0 },
            registers: self.registers.min(other.registers),
            software: self.software,
            storage_buffers: self.storage_buffers.min(other.storage_buffers),
            workgroup_bytes: self.workgroup_bytes.min(other.workgroup_bytes),
            invocations: self.invocations.min(other.invocations),
            binding_bytes: self.binding_bytes.min(other.binding_bytes),
        }
    }

    /// Size of a chunk in bytes: the largest range of a buffer that can be bound so that the next chunk starts at a
    /// valid binding offset.
    pub fn window_bytes(&self) -> u64 {
        // The offset of a binding is a multiple of 256.
        (self.binding_bytes & !255).max(256)
    }
}
