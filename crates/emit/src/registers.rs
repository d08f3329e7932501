//! Effects of a target's register count on kernels.

use rewire_graph_rewrite::device::Target;

/// Registers per invocation from which drivers may unroll loops and hold the loads of several steps.
const MANY: u32 = 255;

/// Registers per invocation from which kernels hold data of the next stage.
const SOME: u32 = 56;

/// True if data of the next stage is loaded one stage ahead.
pub(crate) fn load_ahead(target: &Target) -> bool {
    target.software || target.register_budget() >= SOME
}

/// True if kernels use smaller tiles, and loop bounds that drivers do not know, so that loops are not unrolled.
pub(crate) fn has_few(target: &Target) -> bool {
    !target.software && target.register_budget() < MANY
}
