use crate::plan::Matmul;

/// Columns that one workgroup of a product computes.
const COLUMN_TILE: usize = 64;

/// Cost of an element read again by the next column tile, in elements read from memory: it is still in a cache.
const REREAD: f64 = 0.25;

/// True if a product moves fewer bytes when it computes a norm itself than when it reads the norm's result of
/// `width` elements a row, which then has to be written first.
///
/// Every column tile computes the statistics of its rows again.
pub(super) fn absorbs(product: &Matmul, width: usize) -> bool {
    let Some(columns) = product.n.as_const() else { return false };
    let statistics: usize = product.stats.iter().map(|stat| stat.extent.as_const().unwrap_or(usize::MAX / 64)).sum();
    let again = columns.div_ceil(COLUMN_TILE).saturating_sub(1) as f64;
    again * statistics as f64 * REREAD < 2.0 * width as f64
}
