use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// How a kernel is divided among workgroups and threads: one type for each schedule, and for each way to run it.
///
/// As text it is a name and all its sizes:
///
/// ```
/// use rewire_graph_rewrite::device::{SubgroupProductTile, Tile};
/// let tile = Tile::SubgroupProduct(SubgroupProductTile { rows: 64, columns: 128 });
/// assert_eq!(tile.to_string(), "subgroup_product:rows=64,columns=128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tile {
    /// Of a map.
    Map(ThreadTile),
    /// Of sums over the last axis.
    Reduction(ReductionTile),
    /// Of a product of multiply-adds.
    Product(ProductTile),
    /// Of a product of cooperative matrices that are divided among subgroups.
    SubgroupProduct(SubgroupProductTile),
    /// Of a product of cooperative matrices that a workgroup shares.
    WorkgroupProduct(WorkgroupProductTile),
    /// Of sums over pairs, of multiply-adds.
    Pairs(PairsTile),
    /// Of sums over pairs, of cooperative matrices.
    MatrixPairs(MatrixPairsTile),
    /// Of sums over rows.
    Fold(ThreadTile),
}

/// Threads of a workgroup, and the share of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadTile {
    /// Invocations of a workgroup: a power of two.
    pub threads: u32,
    /// Groups of four neighbours of a thread: 1 to 8.
    pub groups_per_thread: u32,
    /// Rows of a thread of a map, or rows that a thread of a fold loads at once: 1 to 8.
    pub rows_per_thread: u32,
}

/// Threads of a workgroup that share rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReductionTile {
    /// Invocations of a workgroup: a power of two.
    pub threads: u32,
}

/// Results of a workgroup of a product of multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductTile {
    /// A multiple of four.
    pub rows: u32,
    /// A multiple of four.
    pub columns: u32,
    /// Elements of `k` that are staged at once, or words of four integers: a multiple of four.
    pub depth: u32,
    /// Rows of a thread, which divide those of the tile.
    pub rows_per_thread: u32,
    /// Parts of the sums that threads compute apart: 1, 2, 4 or 8. More than one add in another order.
    pub parts: u32,
}

/// Results of a workgroup whose subgroups have matrices of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubgroupProductTile {
    /// 1, 2, 4 or 8 matrices.
    pub rows: u32,
    /// 1, 2, 4 or 8 matrices.
    pub columns: u32,
}

/// Results of a workgroup that shares its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkgroupProductTile {
    /// 96, 128 or 256.
    pub rows: u32,
    /// 128 or 256.
    pub columns: u32,
    /// Steps of `k` at once: 16, 32 or 64.
    pub depth: u32,
    /// Invocations of the workgroup: 128 or 256.
    pub threads: u32,
}

/// Owners of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairsTile {
    /// 1 to 8.
    pub rows_per_thread: u32,
}

/// Owners of a workgroup, and the others that it stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixPairsTile {
    /// Owners: a multiple of those of a subgroup.
    pub rows: u32,
    /// Others: a multiple of a matrix.
    pub columns: u32,
    /// Matrices of owners of a subgroup: 1 or 2.
    pub rows_per_thread: u32,
}

impl Tile {
    /// True for cooperative matrices, false for multiply-adds in place of them; `None` where there is no such choice.
    pub fn matrices(&self) -> Option<bool> {
        match self {
            Self::SubgroupProduct(_) | Self::WorkgroupProduct(_) | Self::MatrixPairs(_) => Some(true),
            Self::Product(_) | Self::Pairs(_) => Some(false),
            Self::Map(_) | Self::Reduction(_) | Self::Fold(_) => None,
        }
    }

    /// True if it makes a short shader, which is soon compiled.
    pub fn is_short(&self) -> bool {
        let (groups, rows) = match self {
            Self::Map(tile) | Self::Fold(tile) => (tile.groups_per_thread, tile.rows_per_thread),
            Self::Product(tile) => (1, tile.rows_per_thread),
            Self::Pairs(tile) => (1, tile.rows_per_thread),
            Self::MatrixPairs(_) | Self::Reduction(_) | Self::SubgroupProduct(_) | Self::WorkgroupProduct(_) => (1, 1),
        };
        rows <= 4 && groups == 1
    }

    /// A tile of its name and sizes, all of which it needs.
    pub(super) fn of(name: &str, sizes: Map<String, Value>) -> Result<Self, serde_json::Error> {
        serde_json::from_value(Value::Object(Map::from_iter([(name.to_owned(), Value::Object(sizes))])))
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(Value::Object(tile)) = serde_json::to_value(self) else { return Err(fmt::Error) };
        for (name, sizes) in &tile {
            let sizes = sizes.as_object().into_iter().flatten().map(|(name, size)| format!("{name}={size}"));
            write!(f, "{name}:{}", sizes.collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    }
}
