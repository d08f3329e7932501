use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Sizes of a kernel's tiles; what is `None` is derived from the kernel and the target.
///
/// As text it is a list of what is set, or `default`:
///
/// ```
/// use rewire_graph_rewrite::device::Tuning;
/// let tuning: Tuning = "rows=64,columns=32,matrices=false".parse()?;
/// assert_eq!((tuning.rows, tuning.depth, tuning.matrices), (Some(64), None, Some(false)));
/// assert_eq!(tuning.to_string(), "rows=64,columns=32,matrices=false");
/// assert_eq!("default".parse(), Ok(Tuning::default()));
/// # Ok::<(), rewire_graph_rewrite::device::ParseTuningError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// Invocations of a workgroup of a map or a reduction: a power of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Groups of four neighbours that a thread of a map or of sums over rows computes: 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_per_thread: Option<u32>,
    /// Rows of a tile of a matmul: a multiple of four. Of attention on cooperative matrices: its queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// Columns of a tile of a matmul: a multiple of four. Of attention on cooperative matrices: its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// Elements of `k` that a matmul stages at once, or words of four integers: a multiple of four.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Rows that a thread of a matmul or of attention computes. Of a map: those of a thread, 1 to 8. Of sums over rows: those that a
    /// thread loads at once, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_thread: Option<u32>,
    /// Parts of the sums of a product of multiply-adds that threads of a workgroup compute apart: 1, 2, 4 or 8. More than one
    /// add in another order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// Products of multiply-adds of few rows may add parts of their sums apart: up to twice as fast for one row. Then the last
    /// bits of a score depend on how many others are computed with it. Off if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_sums: Option<bool>,
    /// Cooperative matrices (true) or multiply-adds (false) for a matmul or attention. If `None`, cooperative matrices
    /// where kernel and target allow them. The two add in different orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrices: Option<bool>,
}

/// A text that is no [`Tuning`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{part}` is no part of a tuning: expected `default`, or NAME=NUMBER with {}, or {}", NUMBERS.join(", "), CHOICES.map(|name| format!("{name}=true|false")).join(", "))]
pub struct ParseTuningError {
    /// The part that is wrong.
    pub part: String,
}

const NUMBERS: [&str; 7] = ["threads", "groups_per_thread", "rows", "columns", "depth", "rows_per_thread", "parts"];
const CHOICES: [&str; 2] = ["split_sums", "matrices"];

impl Tuning {
    fn numbers(&mut self) -> [&mut Option<u32>; NUMBERS.len()] {
        let Self { threads, groups_per_thread, rows, columns, depth, rows_per_thread, parts, .. } = self;
        [threads, groups_per_thread, rows, columns, depth, rows_per_thread, parts]
    }

    fn choices(&mut self) -> [&mut Option<bool>; CHOICES.len()] {
        [&mut self.split_sums, &mut self.matrices]
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = *self;
        let numbers =
            NUMBERS.into_iter().zip(own.numbers()).filter_map(|(name, n)| Some((name, n.as_ref()?.to_string())));
        let mut own = *self;
        let choices =
            CHOICES.into_iter().zip(own.choices()).filter_map(|(name, yes)| Some((name, yes.as_ref()?.to_string())));
        let parts: Vec<String> = numbers.chain(choices).map(|(name, value)| format!("{name}={value}")).collect();
        f.pad(&if parts.is_empty() { "default".to_owned() } else { parts.join(",") })
    }
}

impl FromStr for Tuning {
    type Err = ParseTuningError;

    fn from_str(text: &str) -> Result<Self, ParseTuningError> {
        let mut tuning = Self::default();
        for part in text.split(',').filter(|_| text != "default") {
            let wrong = || ParseTuningError { part: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = NUMBERS.iter().position(|known| *known == name);
            let choice = CHOICES.iter().position(|known| *known == name);
            if let Some(place) = number.and_then(|position| tuning.numbers().into_iter().nth(position)) {
                *place = Some(value.parse().map_err(|_| wrong())?);
            } else if let Some(place) = choice.and_then(|position| tuning.choices().into_iter().nth(position)) {
                *place = Some(value.parse().map_err(|_| wrong())?);
            } else {
                return Err(wrong());
            }
        }
        Ok(tuning)
    }
}
