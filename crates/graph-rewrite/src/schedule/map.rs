use super::{Analysis, Bound};
use crate::count::{Count, Domain, Sizes, Tally};
use crate::error::NotLowerable;
use rewire_graph::Dim;
use rewire_graph::nest::Nest;

/// A loop over points without reductions.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The loop; at least one dimension. Coordinate `n` is dimension `n`.
    pub extents: Vec<Dim>,
}

impl Map {
    /// Supports nests of dense axes without reductions.
    ///
    /// # Errors
    /// [`NotLowerable`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        if !nest.accumulations.is_empty() {
            return Err("a map has no reductions".into());
        }
        Ok(Self { extents: dense(nest, nest.axes.len())? })
    }
}

impl Analysis for Bound<'_, Map> {
    fn count(&self, sizes: &Sizes) -> Count {
        let domain = Domain::of(self.nest, sizes, self.nest.rank());
        let mut tally = Tally::new(self.nest, sizes);
        tally.write(&self.nest.outputs, &domain, domain.columns());
        tally.finish()
    }
}

/// The extents of the first `count` axes.
pub(super) fn dense(nest: &Nest, count: usize) -> Result<Vec<Dim>, NotLowerable> {
    let extents = nest.axes.iter().take(count).map(|axis| axis.extent.dense().filter(|_| !axis.summed).cloned());
    match extents.collect::<Option<Vec<Dim>>>() {
        Some(extents) if !extents.is_empty() => Ok(extents),
        Some(_) => Err("has a loop without dimensions".into()),
        None => Err("a loop over points has a ragged or a summed axis".into()),
    }
}
