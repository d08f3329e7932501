use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The division of a kernel among workgroups and threads, with a type for each schedule and variant.
///
/// The text form is a name followed by all sizes:
///
/// ```
/// use rewire_graph_rewrite::device::{SubgroupProductTile, Tile};
/// let tile = Tile::SubgroupProduct(SubgroupProductTile { rows: 64, columns: 128 });
/// assert_eq!(tile.to_string(), "subgroup_product:rows=64,columns=128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tile {
    /// For a map.
    Map(ThreadTile),
    /// For reductions of the last axis.
    Reduction(ReductionTile),
    /// For a matmul with multiply-adds.
    Product(ProductTile),
    /// For a matmul with multiply-adds and few rows.
    NarrowProduct(NarrowProductTile),
    /// For a matmul with cooperative matrices that are divided among subgroups.
    SubgroupProduct(SubgroupProductTile),
    /// For a matmul with workgroup-scope cooperative matrices.
    WorkgroupProduct(WorkgroupProductTile),
    /// For a pair reduction with multiply-adds.
    #[serde(rename = "pairs")]
    PairReduction(PairReductionTile),
    /// For a pair reduction with cooperative matrices.
    #[serde(rename = "matrix_pairs")]
    MatrixPairReduction(MatrixPairReductionTile),
    /// For a segmented reduction.
    #[serde(rename = "fold")]
    SegmentedReduce(ThreadTile),
}

/// Threads of a workgroup, and the elements of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadTile {
    /// Invocations per workgroup: a power of two.
    pub threads: u32,
    /// Groups of four neighbouring elements per thread: 1 to 8.
    pub groups_per_thread: u32,
    /// Rows per thread of a map, or rows that a thread of a segmented reduction loads at once: 1 to 8.
    pub rows_per_thread: u32,
}

/// Threads of a workgroup that reduces rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReductionTile {
    /// Invocations per workgroup: a power of two.
    pub threads: u32,
}

/// The output tile of a workgroup in a matmul with multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductTile {
    /// A multiple of four.
    pub rows: u32,
    /// A multiple of four.
    pub columns: u32,
    /// Steps of `k` staged at once, or words of four int8: a multiple of four.
    pub depth: u32,
    /// Rows per thread, a divisor of the tile's rows.
    pub rows_per_thread: u32,
    /// Split of `k` among threads (split-k): 1, 2, 4 or 8 parts. More than one part changes the order of summation.
    pub parts: u32,
}

/// The output tile of a workgroup in a matmul of few rows, with a thread for one or a few results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NarrowProductTile {
    /// 1, 4, 8, 16 or 32.
    pub rows: u32,
    /// 8, 16 or 32.
    pub columns: u32,
    /// Steps of `k` staged at once: 64, 128 or 256.
    pub depth: u32,
}

/// The output tile of a workgroup with subgroup-scope matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubgroupProductTile {
    /// 1, 2, 4 or 8 matrices.
    pub rows: u32,
    /// 1, 2, 4 or 8 matrices.
    pub columns: u32,
}

/// The output tile of a workgroup with workgroup-scope matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkgroupProductTile {
    /// 96, 128 or 256.
    pub rows: u32,
    /// 128 or 256.
    pub columns: u32,
    /// Steps of `k` at once: 16, 32 or 64.
    pub depth: u32,
    /// Invocations per workgroup: 128 or 256.
    pub threads: u32,
}

/// Rows per thread in a pair reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairReductionTile {
    /// 1 to 8.
    pub rows_per_thread: u32,
}

/// Rows per workgroup in a pair reduction, and staged columns (keys) per tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixPairReductionTile {
    /// Rows: a multiple of the rows of a subgroup.
    pub rows: u32,
    /// Columns: a multiple of the columns of a matrix.
    pub columns: u32,
    /// Row matrices per subgroup: 1 or 2.
    pub rows_per_thread: u32,
}

impl Tile {
    /// True for tiles with cooperative matrices, false for their alternative with multiply-adds; `None` for other
    /// tiles.
    pub fn matrices(&self) -> Option<bool> {
        match self {
            Self::SubgroupProduct(_) | Self::WorkgroupProduct(_) | Self::MatrixPairReduction(_) => Some(true),
            Self::Product(_) | Self::NarrowProduct(_) | Self::PairReduction(_) => Some(false),
            Self::Map(_) | Self::Reduction(_) | Self::SegmentedReduce(_) => None,
        }
    }

    /// True if its shader is short, and therefore compiles fast.
    pub fn is_short(&self) -> bool {
        let (groups, rows) = match self {
            Self::Map(tile) | Self::SegmentedReduce(tile) => (tile.groups_per_thread, tile.rows_per_thread),
            Self::Product(tile) => (1, tile.rows_per_thread),
            Self::PairReduction(tile) => (1, tile.rows_per_thread),
            Self::MatrixPairReduction(_)
            | Self::NarrowProduct(_)
            | Self::Reduction(_)
            | Self::SubgroupProduct(_)
            | Self::WorkgroupProduct(_) => (1, 1),
        };
        rows <= 4 && groups == 1
    }

    /// A tile from its name and sizes, all of which are required.
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
