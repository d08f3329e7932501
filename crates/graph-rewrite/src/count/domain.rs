use super::Sizes;
use rewire_graph::nest::{Axis, Nest};

/// The points at which expressions of a kernel are evaluated.
pub(crate) struct Domain {
    /// The extent of every coordinate.
    pub extents: Vec<u64>,
    /// Sets of dependent coordinates, as bit masks, with the number of points that they cover together. The first entry
    /// contained in a set of coordinates counts for it.
    pub joint: Vec<(u32, u64)>,
    /// How often each point is evaluated.
    pub times: u64,
}

impl Domain {
    pub fn dense(extents: Vec<u64>) -> Self {
        Self { extents, joint: vec![], times: 1 }
    }

    /// The points of the first `rank` axes, which are dense.
    pub fn of(nest: &Nest, sizes: &Sizes, rank: usize) -> Self {
        let extent = |axis: &Axis| axis.extent.dense().map_or(1, |dim| sizes.extent(dim));
        Self::dense(nest.axes.iter().take(rank).map(extent).collect())
    }

    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Number of distinct values of a set of coordinates.
    pub fn points(&self, coords: u32) -> u64 {
        let (joint, rest) = match self.joint.iter().find(|(bits, _)| coords & bits == *bits) {
            Some(&(bits, points)) => (points, coords & !self.joint_with(bits)),
            None => (1, coords),
        };
        let free = self.extents.iter().enumerate().filter(|(axis, _)| rest >> axis & 1 == 1);
        free.map(|(_, &extent)| extent).fold(joint, u64::saturating_mul)
    }

    /// A set of coordinates, extended by every joint set that overlaps it.
    fn joint_with(&self, bits: u32) -> u32 {
        self.joint.iter().fold(bits, |all, (other, _)| if other & bits != 0 { all | other } else { all })
    }

    /// The extent of the last coordinate.
    pub fn columns(&self) -> u64 {
        self.extents.last().copied().unwrap_or(1)
    }

    /// The number of points.
    pub fn all(&self) -> u64 {
        self.points((1u32 << self.extents.len().min(31)) - 1)
    }
}

/// A set of coordinates, as a bit mask.
pub(crate) fn bits(coords: &[u8]) -> u32 {
    coords.iter().fold(0, |bits, coord| bits | 1 << coord)
}
