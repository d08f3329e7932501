use super::EmitError;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use rewire_graph_rewrite::device::Target;

/// The invalid line, if known, and naga's message.
type Complaint = (Option<u32>, String);

/// Parses WGSL.
pub(super) fn parse(wgsl: &str) -> Result<naga::Module, Complaint> {
    naga::front::wgsl::parse_str(wgsl)
        .map_err(|error| (error.location(wgsl).map(|at| at.line_number), error.emit_to_string(wgsl)))
}

/// Validates a module.
pub(super) fn check(module: &naga::Module, wgsl: &str, capabilities: Capabilities) -> Result<ModuleInfo, Complaint> {
    let validated = Validator::new(ValidationFlags::all(), capabilities).validate(module);
    validated.map_err(|error| {
        // The first span is the whole function; later spans are within it.
        let lines = error.spans().map(|(span, _)| span.location(wgsl).line_number);
        (lines.max(), error.emit_to_string(wgsl))
    })
}

/// Validates a module for `target`.
pub(super) fn check_for(module: &naga::Module, wgsl: &str, target: &Target) -> Result<ModuleInfo, EmitError> {
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, target.f16);
    capabilities.set(Capabilities::SHADER_INT64, target.int64);
    capabilities.set(Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER, target.subgroups);
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, target.matrix != 0);
    check(module, wgsl, capabilities).map_err(|(line, reason)| EmitError::Shader { line, reason })
}

/// Parses and validates `wgsl` for `target`, and checks limits that naga does not check.
pub(super) fn validate(wgsl: &str, target: &Target) -> Result<naga::Module, EmitError> {
    let module = parse(wgsl).map_err(|(line, reason)| EmitError::Shader { line, reason })?;
    check_for(&module, wgsl, target)?;
    let is_buffer = |variable: &naga::GlobalVariable| matches!(variable.space, naga::AddressSpace::Storage { .. });
    let buffers = module.global_variables.iter().filter(|(_, variable)| is_buffer(variable)).count() as u64;
    let invocations =
        module.entry_points.iter().map(|e| e.workgroup_size.iter().map(|&n| u64::from(n)).product()).max();
    limit("bytes of workgroup memory", workgroup_bytes(&module), target.workgroup_bytes)?;
    limit("storage buffers", buffers, target.storage_buffers)?;
    limit("invocations a workgroup", invocations.unwrap_or(0), target.invocations)?;
    Ok(module)
}

/// Workgroup memory of a module in bytes.
pub(super) fn workgroup_bytes(module: &naga::Module) -> u64 {
    let own = module.global_variables.iter().filter(|(_, variable)| variable.space == naga::AddressSpace::WorkGroup);
    own.map(|(_, variable)| u64::from(module.types[variable.ty].inner.size(module.to_ctx())).next_multiple_of(16)).sum()
}

pub(super) fn limit(what: &'static str, needed: u64, limit: u32) -> Result<(), EmitError> {
    if needed > u64::from(limit) {
        return Err(EmitError::Limit { what, needed, limit: u64::from(limit) });
    }
    Ok(())
}
