use super::{EmitError, Target};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Parses and validates `wgsl` for `target`, and checks the limits that naga does not.
pub(super) fn validate(wgsl: &str, target: &Target) -> Result<(), EmitError> {
    let shader =
        |at: Option<naga::SourceLocation>, reason| EmitError::Shader { line: at.map(|at| at.line_number), reason };
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| shader(e.location(wgsl), e.emit_to_string(wgsl)))?;
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SHADER_FLOAT16, target.f16);
    capabilities.set(Capabilities::SUBGROUP, target.subgroups);
    Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| shader(e.location(wgsl), e.emit_to_string(wgsl)))?;
    let space = |space: fn(&naga::AddressSpace) -> bool| {
        module.global_variables.iter().filter(move |(_, v)| space(&v.space)).map(|(_, v)| v)
    };
    let bytes = space(|s| matches!(s, naga::AddressSpace::WorkGroup))
        .map(|v| u64::from(module.types[v.ty].inner.size(module.to_ctx())).next_multiple_of(16))
        .sum();
    let buffers = space(|s| matches!(s, naga::AddressSpace::Storage { .. })).count() as u64;
    let invocations =
        module.entry_points.iter().map(|e| e.workgroup_size.iter().map(|&n| u64::from(n)).product()).max();
    limit("bytes of workgroup memory", bytes, target.workgroup_bytes)?;
    limit("storage buffers", buffers, target.storage_buffers)?;
    limit("invocations a workgroup", invocations.unwrap_or(0), target.invocations)
}

pub(super) fn limit(what: &'static str, needed: u64, limit: u32) -> Result<(), EmitError> {
    if needed > u64::from(limit) {
        return Err(EmitError::Limit { what, needed, limit: u64::from(limit) });
    }
    Ok(())
}
