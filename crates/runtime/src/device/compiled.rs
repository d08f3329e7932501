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

/// Names that Mesa's drivers give to a figure.
const REGISTERS: &[&str] =
    &["VGPRs", "GPRs", "Registers", "Registers used", "Max live registers", "Number of GPRs", "Num GPRs"];
const SPILLS: &[&str] = &["Spilled VGPRs", "Spill Count", "Spills", "Spills to memory", "STP Count"];
const SCRATCH: &[&str] = &["Scratch size", "Scratch Memory Size", "Scratch", "SLM Size"];
const OCCUPANCY: &[&str] =
    &["Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core", "Threads", "Max dispatch width"];
const INSTRUCTIONS: &[&str] = &["Instructions", "Instruction Count"];

impl CompiledKernel {
    /// Takes the figures that a driver calls by one of the known names.
    pub(super) fn new(subgroup: u32, statistics: &[(String, u64)]) -> Self {
        let of = |names: &[&str]| {
            let figure = |name: &&str| statistics.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            names.iter().find_map(figure).map(|(_, value)| *value)
        };
        Self {
            subgroup: Some(subgroup).filter(|size| *size != 0),
            registers: of(REGISTERS),
            spills: of(SPILLS),
            scratch: of(SCRATCH),
            occupancy: of(OCCUPANCY),
            instructions: of(INSTRUCTIONS),
            code: None,
        }
    }
}
