use serde::Serialize;

/// What a driver tells of a kernel that it compiled; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompiledKernel {
    /// Invocations of a subgroup.
    pub subgroup: Option<u32>,
    /// Registers of an invocation, of 32 bits each. On GPUs whose registers are vectors of a subgroup, those.
    pub registers: Option<u64>,
    /// Values that did not fit registers, or instructions that store such values.
    pub spills: Option<u64>,
    /// Bytes of memory of an invocation for what did not fit.
    pub scratch: Option<u64>,
    /// Subgroups or invocations that a core runs side by side, as the driver counts them.
    pub occupancy: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// The program as text, where it was asked for.
    #[serde(skip)]
    pub code: Option<String>,
}
