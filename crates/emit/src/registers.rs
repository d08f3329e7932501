//! Registers of a target, where kernels are written for them.

use rewire_graph_rewrite::device::Target;

/// Registers of an invocation from which on drivers may unroll loops and hold what several steps load.
const MANY: u32 = 255;

/// Registers from which on kernels hold what they stage next.
const SOME: u32 = 64;

/// True where what is staged next is loaded a stage ahead.
pub(crate) fn load_ahead(target: &Target) -> bool {
    target.software || target.register_budget() >= SOME
}

/// True where tiles are smaller, and loops end at a bound that drivers do not know, so that they unroll none.
pub(crate) fn has_few(target: &Target) -> bool {
    !target.software && target.register_budget() < MANY
}
