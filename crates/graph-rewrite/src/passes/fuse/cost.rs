use crate::cost::{Count, HardwareModel, Sizes};
use crate::plan::Computation;

/// True if a matmul with the norm in its prologue takes no longer than a separate norm kernel plus the matmul that
/// reads its result.
///
/// Every column tile of the matmul recomputes the statistics of its rows.
pub(super) fn absorbs(machine: &HardwareModel, sizes: &Sizes, joined: &Computation, apart: [&Computation; 2]) -> bool {
    let seconds = |kernel: &Computation| machine.serial_seconds(&Count::of(kernel, sizes));
    seconds(joined) <= apart.into_iter().map(seconds).sum()
}
