use super::SubgroupSizes;
use serde::{Deserialize, Serialize};

/// What an adapter offers to a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// `enable f16` works.
    pub f16: bool,
    /// 64-bit integers work.
    pub int64: bool,
    /// Subgroup operations and barriers work.
    pub subgroups: bool,
    /// Invocations of a subgroup. Kernels are right for every size of the range.
    pub subgroup_size: SubgroupSizes,
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
    /// Registers of 32 bits that an invocation may have before too few subgroups run side by side, or values are spilled; 0 where that is not
    /// known, and tiles are small.
    #[serde(default)]
    pub registers: u32,
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

/// Registers of small GPUs.
const FEW_REGISTERS: u32 = 96;

impl Target {
    /// What every WebGPU implementation offers.
    pub const BASELINE: Self = Self {
        f16: false,
        int64: false,
        subgroups: false,
        subgroup_size: SubgroupSizes::UNKNOWN,
        matrix: 0,
        half_sums: false,
        matrix_elements: false,
        workgroup_matrices: 0,
        multiprocessors: 0,
        registers: 0,
        software: false,
        storage_buffers: 8,
        workgroup_bytes: 16 << 10,
        invocations: 256,
        binding_bytes: 128 << 20,
    };

    /// True for what a device may offer: no less than the baseline, and sizes that there are. Kernels can be emitted for it.
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

    /// The extent of cooperative matrices and the invocations of a subgroup; `None` where kernels use no such matrices, or are
    /// right for a range of sizes alone. They need `shader-f16`, and subgroups with barriers and a known size.
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

    /// The extent of cooperative matrices and the invocations of a subgroup, for kernels that are right for each of a range.
    pub fn matrices_of_subgroups(&self) -> Option<(u32, SubgroupSizes)> {
        let is_usable = self.f16 && self.subgroups && self.matrix != 0 && self.subgroup_size.is_known();
        is_usable.then_some((self.matrix, self.subgroup_size))
    }

    /// Registers that a tile may take of an invocation.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::Target;
    /// assert_eq!(Target { registers: 255, ..Target::BASELINE }.register_budget(), 255);
    /// assert_eq!(Target::BASELINE.register_budget(), 96);
    /// ```
    pub fn register_budget(&self) -> u32 {
        if self.registers == 0 { FEW_REGISTERS } else { self.registers }
    }

    /// True where kernels use matrices that a workgroup shares.
    pub fn shares_matrices(&self) -> bool {
        self.workgroup_matrices > 0 && self.cooperative().is_some()
    }

    /// What it offers of cooperative matrices: their size, sums of halves, operations on elements, and invocations that share them.
    pub fn matrices(&self) -> (u32, bool, bool, u32) {
        (self.matrix, self.half_sums, self.matrix_elements, self.workgroup_matrices)
    }

    /// What both targets offer.
    ///
    /// ```
    /// use rewire_graph_rewrite::device::Target;
    /// let halves = Target { f16: true, invocations: 128, ..Target::BASELINE };
    /// assert_eq!(halves.within(&Target::BASELINE), Target { invocations: 128, ..Target::BASELINE });
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
            multiprocessors: if self.multiprocessors == other.multiprocessors { self.multiprocessors } else { 0 },
            registers: self.registers.min(other.registers),
            software: self.software,
            storage_buffers: self.storage_buffers.min(other.storage_buffers),
            workgroup_bytes: self.workgroup_bytes.min(other.workgroup_bytes),
            invocations: self.invocations.min(other.invocations),
            binding_bytes: self.binding_bytes.min(other.binding_bytes),
        }
    }

    /// Bytes of a window: the largest part of a buffer that can be bound and that another can follow.
    pub fn window_bytes(&self) -> u64 {
        // The offset of a binding is a multiple of 256.
        (self.binding_bytes & !255).max(256)
    }
}
