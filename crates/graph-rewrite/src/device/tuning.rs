use super::Tile;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Tuning of a kernel; fields that are `None` are derived from the kernel and the target.
///
/// The text form is a list of the fields that are set, with the tile last, or `default`:
///
/// ```
/// use rewire_graph_rewrite::device::{PairReductionTile, Tile, Tuning};
/// let tuning: Tuning = "matrices=false,pairs:rows_per_thread=2".parse()?;
/// assert_eq!(tuning.matrices, Some(false));
/// assert_eq!(tuning.tile, Some(Tile::PairReduction(PairReductionTile { rows_per_thread: 2 })));
/// assert_eq!(tuning.to_string(), "matrices=false,pairs:rows_per_thread=2");
/// assert_eq!("default".parse(), Ok(Tuning::default()));
/// # Ok::<(), rewire_graph_rewrite::device::ParseTuningError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// Allows matmuls with multiply-adds and few rows to split `k`: up to twice as fast for one row. The last bits of a
    /// score then depend on the number of other scores computed with it. Off if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_sums: Option<bool>,
    /// Cooperative matrices (true) or multiply-adds (false) for a matmul or attention. If `None`, cooperative matrices
    /// are used if kernel and target support them. The two sum in different orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrices: Option<bool>,
    /// The tile. For a whole model: the tile of all kernels with this type of tile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tile: Option<Tile>,
}

/// The string is not a [`Tuning`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "`{part}` is not part of a tuning ({reason}): expected `default`, or {}=true|false, and a tile as TILE:SIZE=NUMBER,...",
    CHOICES.join("=true|false, ")
)]
pub struct ParseTuningError {
    /// The invalid part.
    pub part: String,
    /// Why.
    pub reason: String,
}

const CHOICES: [&str; 2] = ["split_sums", "matrices"];

impl Tuning {
    /// True if kernels sum in the same order as the default tuning of their family.
    pub fn keeps_order(&self) -> bool {
        self.split_sums != Some(true) && !matches!(self.tile, Some(Tile::Product(tile)) if tile.parts > 1)
    }
}

impl From<Tile> for Tuning {
    fn from(tile: Tile) -> Self {
        Self { tile: Some(tile), ..Self::default() }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = CHOICES.into_iter().zip([self.split_sums, self.matrices]);
        let choices = choices.filter_map(|(name, choice)| Some(format!("{name}={}", choice?)));
        let parts: Vec<String> = choices.chain(self.tile.map(|tile| tile.to_string())).collect();
        f.pad(&if parts.is_empty() { "default".to_owned() } else { parts.join(",") })
    }
}

impl FromStr for Tuning {
    type Err = ParseTuningError;

    fn from_str(text: &str) -> Result<Self, ParseTuningError> {
        let mut tuning = Self::default();
        let (choices, tile) = match text.split_once(':') {
            Some((before, sizes)) => {
                let (choices, name) = before.rsplit_once(',').unwrap_or(("default", before));
                (choices, Some((name, sizes)))
            }
            None => (text, None),
        };
        for part in choices.split(',').filter(|_| choices != "default") {
            let (name, choice) = value::<bool>(part)?;
            match name {
                "split_sums" => tuning.split_sums = Some(choice),
                "matrices" => tuning.matrices = Some(choice),
                _ => return Err(wrong(part, "there is no such choice")),
            }
        }
        if let Some((name, sizes)) = tile {
            let mut known = Map::new();
            for part in sizes.split(',') {
                let (name, size) = value::<u32>(part)?;
                known.insert(name.to_owned(), size.into());
            }
            tuning.tile = Some(Tile::of(name, known).map_err(|error| wrong(text, error))?);
        }
        Ok(tuning)
    }
}

fn wrong(part: &str, reason: impl ToString) -> ParseTuningError {
    ParseTuningError { part: part.to_owned(), reason: reason.to_string() }
}

/// The name and the value of `NAME=VALUE`.
fn value<T: FromStr<Err: fmt::Display>>(part: &str) -> Result<(&str, T), ParseTuningError> {
    let (name, value) = part.split_once('=').ok_or_else(|| wrong(part, "it has no `=`"))?;
    Ok((name, value.parse().map_err(|error| wrong(part, error))?))
}
