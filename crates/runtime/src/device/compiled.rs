use serde::Serialize;

/// Driver statistics of a compiled kernel; `None` for those that the driver does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompiledKernel {
    /// Subgroup size.
    pub subgroup: Option<u32>,
    /// 32-bit registers per invocation. On GPUs whose registers are vectors of a subgroup, the number of vectors.
    pub registers: Option<u64>,
    /// Values that did not fit in registers, or instructions that store such values.
    pub spills: Option<u64>,
    /// Scratch memory per invocation in bytes, for values that did not fit.
    pub scratch: Option<u64>,
    /// Subgroups or invocations that run concurrently on a core, as counted by the driver.
    pub occupancy: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Disassembly of the program, if requested.
    #[serde(skip)]
    pub code: Option<String>,
}
