use crate::cost::{Count, Machine, Sizes};
use crate::plan::Computation;

/// True if a product that computes a norm itself takes no longer than the norm, which writes its result, and the product
/// that reads it.
///
/// Every column tile of the product computes the statistics of its rows again.
pub(super) fn absorbs(machine: &Machine, sizes: &Sizes, joined: &Computation, apart: [&Computation; 2]) -> bool {
    let seconds = |kernel: &Computation| machine.serial_seconds(&Count::of(kernel, sizes));
    seconds(joined) <= apart.into_iter().map(seconds).sum()
}
