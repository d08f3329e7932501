use serde::{Deserialize, Serialize};

/// The range of subgroup sizes with which a kernel may run.
///
/// Serialised as one number if both ends are equal.
///
/// ```
/// use rewire_graph_rewrite::device::SubgroupSizes;
/// let sizes: [SubgroupSizes; 2] = serde_json::from_str("[32, [32, 64]]")?;
/// assert_eq!(sizes, [SubgroupSizes::fixed(32), SubgroupSizes { min: 32, max: 64 }]);
/// assert_eq!((sizes[0].one(), sizes[1].one()), (Some(32), None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct SubgroupSizes {
    /// The smallest size; 0 if unknown.
    pub min: u32,
    /// The largest size.
    pub max: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    One(u32),
    Range([u32; 2]),
}

impl From<Stored> for SubgroupSizes {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::One(size) => Self::fixed(size),
            Stored::Range([min, max]) => Self { min, max },
        }
    }
}

impl From<SubgroupSizes> for Stored {
    fn from(sizes: SubgroupSizes) -> Self {
        if sizes.min == sizes.max { Self::One(sizes.min) } else { Self::Range([sizes.min, sizes.max]) }
    }
}

impl SubgroupSizes {
    /// Unknown sizes.
    pub const UNKNOWN: Self = Self::fixed(0);

    /// A single size.
    pub const fn fixed(size: u32) -> Self {
        Self { min: size, max: size }
    }

    /// The size, if there is only one.
    pub fn one(self) -> Option<u32> {
        (self.min == self.max && self.is_known()).then_some(self.min)
    }

    /// True if the range is known.
    pub fn is_known(self) -> bool {
        self.min != 0
    }

    /// True for a range that devices can have: powers of two up to 128, or unknown.
    pub(super) fn is_device(self) -> bool {
        let is_size = |size: u32| size.is_power_of_two() && size <= 128;
        self == Self::UNKNOWN || is_size(self.min) && is_size(self.max) && self.min <= self.max
    }

    /// The union of both ranges.
    pub(super) fn union(self, other: Self) -> Self {
        match self.is_known() && other.is_known() {
            true => Self { min: self.min.min(other.min), max: self.max.max(other.max) },
            false => Self::UNKNOWN,
        }
    }
}
