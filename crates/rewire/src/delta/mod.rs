//! Deltas: changes of a trained model's parameters, which a serving model applies while it runs.
//!
//! A delta is a safetensors file. Its metadata hold the format, the version of the model that it follows
//! ([`ModelVersion`]), the steps of the training so far, and the hash (XXH3, 128 bits) of all bytes of the file, with
//! zeros in place of the hash. The version of a model with the delta ends with this hash: deltas form a chain, which
//! starts with the hash of a model's tensors. Each tensor is named by its kind and the name of a parameter:
//!
//! | name | content |
//! | --- | --- |
//! | `whole/<parameter>` | all of its values |
//! | `rows/<parameter>` | `U32`, the rows of a table that changed |
//! | `values/<parameter>` | the values of these rows, in the type of the table |
//! | `ids/<table>` | `I64` `[n, 3]`, for a table that grows: rows, the ids that took them, and the ids that had them ([`Placed`]) |
//! | `used/<table>` | `U32` `[n, 3]`: rows, the occurrences of their ids, and the steps of the last ones ([`RowUse`]) |
//! | `steps/<table>` | `I64` `[1]`, the steps of its map |
//!
//! A file with other kinds is an error.

#[cfg(feature = "files")]
mod apply;
mod error;
mod ids;
#[cfg(feature = "files")]
mod rewritten;
mod served;
mod version;

#[cfg(feature = "files")]
pub use apply::apply;
pub use error::DeltaError;
pub use rewire_tables::{MapChanges, Placed, RowUse};
pub(crate) use served::Served;
pub use version::ModelVersion;

use crate::weights::{Weights, serialize};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::{ParameterUpdate, hash};
use std::collections::BTreeMap;

/// The metadata keys.
const FORMAT: &str = "rewire.delta";
const BEFORE: &str = "rewire.delta.before";
const STEPS: &str = "rewire.delta.steps";
const HASH: &str = "rewire.delta.hash";

/// The format that this program reads and writes.
const NEWEST: &str = "1";

/// The kinds of tensors.
const WHOLE: &str = "whole/";
const ROWS: &str = "rows/";
const VALUES: &str = "values/";

/// Marks a row that had no id; no id has this value.
const NONE: i64 = rewire_tables::UNKNOWN;

/// The parameters that a delta changes, by name.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Parameters.
    pub parameters: BTreeMap<String, ParameterUpdate>,
    /// Changes of the ids of tables that grow, by table name.
    pub ids: BTreeMap<String, MapChanges>,
}

impl From<BTreeMap<String, ParameterUpdate>> for Changes {
    fn from(parameters: BTreeMap<String, ParameterUpdate>) -> Self {
        Self { parameters, ids: BTreeMap::new() }
    }
}

/// Changes of a model's parameters, by name.
///
/// ```
/// use rewire::HostTensor;
/// use rewire::delta::{Delta, ModelVersion};
/// use rewire::runtime::ParameterUpdate;
/// use std::collections::BTreeMap;
///
/// let table = HostTensor::f32([4, 2], &[0.5; 8])?;
/// let version = ModelVersion::base(&BTreeMap::from([("table".to_owned(), table)]));
/// let values = HostTensor::f32([1, 2], &[1.0, 2.0])?;
/// let changes = BTreeMap::from([("table".to_owned(), ParameterUpdate::Rows { rows: vec![3], values })]);
///
/// let (delta, bytes) = Delta::new(version, 10, changes.into())?;
/// let read = Delta::parse(bytes)?;
/// assert_eq!((read.before(), read.version()), (version, delta.version()));
/// assert_eq!(read.version().number(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Delta {
    before: ModelVersion,
    version: ModelVersion,
    steps: u64,
    changes: Changes,
}

impl Delta {
    /// The delta that follows a version of a model, and the bytes of its file.
    ///
    /// # Errors
    /// [`DeltaError::Weights`] if there is not enough memory for the bytes.
    pub fn new(before: ModelVersion, steps: u64, changes: Changes) -> Result<(Self, Vec<u8>), DeltaError> {
        let mut tensors = BTreeMap::new();
        for (table, changes) in &changes.ids {
            let named = ids::tensors(table, changes).map_err(|error| DeltaError::content(table, error))?;
            tensors.extend(named);
        }
        for (name, change) in &changes.parameters {
            match change {
                ParameterUpdate::Whole(tensor) => drop(tensors.insert(format!("{WHOLE}{name}"), tensor.clone())),
                ParameterUpdate::Rows { rows, values } => {
                    tensors.insert(format!("{ROWS}{name}"), HostTensor::vector(rows));
                    tensors.insert(format!("{VALUES}{name}"), values.clone());
                }
            }
        }
        let entries =
            [(FORMAT, NEWEST.to_owned()), (BEFORE, before.to_string()), (STEPS, steps.to_string()), (HASH, digits(0))];
        let metadata = entries.map(|(key, value)| (key.to_owned(), value)).into();
        let mut bytes = serialize(&tensors, &metadata)?;
        let hash = hash(&bytes);
        let place = place_of_hash(&bytes, &digits(0)).ok_or(DeltaError::NotDelta)?;
        bytes[place..][..digits(0).len()].copy_from_slice(digits(hash).as_bytes());
        Ok((Self { before, version: before.after(hash), steps, changes }, bytes))
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// [`DeltaError`] if the bytes are not a delta, of a newer format, or damaged.
    pub fn parse(mut bytes: Vec<u8>) -> Result<Self, DeltaError> {
        let metadata = Weights::parse(bytes.as_slice())?.metadata().clone();
        let entry = |key: &str| metadata.get(key).map(String::as_str);
        match entry(FORMAT) {
            Some(NEWEST) => {}
            Some(format) => return Err(DeltaError::Newer { format: format.to_owned(), newest: NEWEST }),
            None => return Err(DeltaError::NotDelta),
        }
        let own = entry(HASH).and_then(|text| Some((u128::from_str_radix(text, 16).ok()?, text)));
        // Digits in capitals are the same number, but other bytes.
        let (hash_of_file, text) = own.filter(|(hash, text)| digits(*hash) == *text).ok_or(DeltaError::Damaged)?;
        let place = place_of_hash(&bytes, text).ok_or(DeltaError::Damaged)?;
        bytes[place..][..text.len()].fill(b'0');
        if hash(&bytes) != hash_of_file {
            return Err(DeltaError::Damaged);
        }
        let wrong = |key: &str| DeltaError::content(key, "it is missing or not valid");
        let before: ModelVersion = entry(BEFORE).and_then(|text| text.parse().ok()).ok_or_else(|| wrong(BEFORE))?;
        let steps = entry(STEPS).and_then(|text| text.parse().ok()).ok_or_else(|| wrong(STEPS))?;
        let changes = changes(&Weights::parse(bytes)?)?;
        Ok(Self { before, version: before.after(hash_of_file), steps, changes })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DeltaError::Read`], and [`DeltaError::File`] with the errors of [`Delta::parse`].
    #[cfg(feature = "files")]
    pub fn read(path: &std::path::Path) -> Result<Self, DeltaError> {
        let bytes = std::fs::read(path).map_err(|source| DeltaError::Read { path: path.to_owned(), source })?;
        Self::parse(bytes).map_err(|source| DeltaError::File { path: path.to_owned(), source: Box::new(source) })
    }

    /// The version of the model that it follows.
    pub fn before(&self) -> ModelVersion {
        self.before
    }

    /// The version of the model after the delta is applied.
    pub fn version(&self) -> ModelVersion {
        self.version
    }

    /// Steps of the training so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The changed parameters.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}

fn digits(hash: u128) -> String {
    format!("{hash:032x}")
}

/// The position of the hash in the header of a file.
fn place_of_hash(bytes: &[u8], text: &str) -> Option<usize> {
    let header = u64::from_le_bytes(*bytes.first_chunk()?).checked_add(8)?;
    let header = bytes.get(..usize::try_from(header).ok()?)?;
    let (key, entry) = (format!("\"{HASH}\":\""), format!("\"{HASH}\":\"{text}\""));
    let found = header.windows(entry.len()).position(|window| window == entry.as_bytes())?;
    Some(found + key.len())
}

/// The changes in a file.
fn changes(weights: &Weights<'_>) -> Result<Changes, DeltaError> {
    let mut changes = Changes::default();
    for key in weights.names() {
        let Some(tensor) = weights.get(key)? else { continue };
        let (name, change) = if let Some(name) = key.strip_prefix(WHOLE) {
            (name, ParameterUpdate::Whole(tensor))
        } else if let Some(name) = key.strip_prefix(ROWS) {
            let values = weights.get(&format!("{VALUES}{name}"))?;
            let rows: Option<Vec<u32>> = tensor.values().filter(|_| tensor.dtype() == DType::U32);
            let (Some(rows), Some(values)) = (rows, values) else {
                return Err(DeltaError::content(key, "expected U32 rows with values"));
            };
            if values.shape().len() != 2 || values.shape().first() != Some(&rows.len()) {
                return Err(DeltaError::content(
                    key,
                    format!("expected {} rows, got {:?}", rows.len(), values.shape()),
                ));
            }
            (name, ParameterUpdate::Rows { rows, values })
        } else if let Some(table) = key.strip_prefix(ids::STEPS) {
            changes.ids.insert(table.to_owned(), ids::changes(table, weights)?);
            continue;
        } else if is_read_with(key, weights) {
            continue;
        } else {
            return Err(DeltaError::content(key, "it is not a tensor of a delta"));
        };
        if changes.parameters.insert(name.to_owned(), change).is_some() {
            return Err(DeltaError::content(key, "the parameter changes twice"));
        }
    }
    Ok(changes)
}

/// True for a tensor that is read together with another one.
fn is_read_with(key: &str, weights: &Weights<'_>) -> bool {
    let pairs = [(VALUES, ROWS), (ids::IDS, ids::STEPS), (ids::USED, ids::STEPS)];
    pairs.into_iter().any(|(own, first)| {
        key.strip_prefix(own).is_some_and(|name| weights.describe(&format!("{first}{name}")).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::WeightsError;

    fn tensor(rows: usize, first: f32) -> HostTensor {
        HostTensor::f32([rows, 3], &(0..rows * 3).map(|n| first + n as f32).collect::<Vec<_>>()).unwrap()
    }

    fn base() -> ModelVersion {
        ModelVersion::base(&BTreeMap::from([("table".to_owned(), tensor(9, 0.0))]))
    }

    fn ids() -> MapChanges {
        let placed = |row, id, evicted| Placed { row, id, evicted };
        let used = |row, count| RowUse { row, count, last: 39 };
        let placed = vec![placed(7, -5, None), placed(2, 1 << 40, Some(0))];
        MapChanges { steps: 40, placed, used: vec![used(1, u32::MAX), used(2, 3), used(7, 1)] }
    }

    fn example(before: ModelVersion) -> (Delta, Vec<u8>) {
        let rows = ParameterUpdate::Rows { rows: vec![7, 2], values: tensor(2, 5.0) };
        let whole = ParameterUpdate::Whole(tensor(1, 0.5));
        let parameters = [("table".to_owned(), rows), ("table/w".to_owned(), whole)].into();
        Delta::new(before, 40, Changes { parameters, ids: [("table".to_owned(), ids())].into() }).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let (delta, bytes) = example(base());
        let read = Delta::parse(bytes).unwrap();
        assert_eq!((read.before(), read.version(), read.steps()), (base(), delta.version(), 40));
        assert_eq!(read.changes().ids["table"], ids());
        match (&read.changes().parameters["table"], &read.changes().parameters["table/w"]) {
            (ParameterUpdate::Rows { rows, values }, ParameterUpdate::Whole(whole)) => {
                assert_eq!((rows.as_slice(), values, whole), (&[7, 2][..], &tensor(2, 5.0), &tensor(1, 0.5)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_an_error() {
        let (_, bytes) = example(base());
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Delta::parse(damaged).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(matches!(Delta::parse(bytes[..end].to_vec()), Err(DeltaError::Weights(_))), "cut at {end}");
        }
        let mut last = bytes;
        *last.last_mut().unwrap() ^= 1;
        assert!(matches!(Delta::parse(last), Err(DeltaError::Damaged)));
    }

    #[test]
    fn other_files_are_no_deltas() {
        let weights = serialize(&BTreeMap::from([("w".to_owned(), tensor(2, 0.0))]), &BTreeMap::new()).unwrap();
        assert!(matches!(Delta::parse(weights), Err(DeltaError::NotDelta)));
        assert!(matches!(Delta::parse(vec![1, 2]), Err(DeltaError::Weights(WeightsError::Format { .. }))));
        let newer = serialize(&BTreeMap::new(), &[(FORMAT.to_owned(), "2".to_owned())].into()).unwrap();
        assert!(matches!(Delta::parse(newer), Err(DeltaError::Newer { .. })));
    }

    #[test]
    fn deltas_out_of_their_order_are_told_apart() {
        let (first, _) = example(base());
        let (second, _) = example(first.version());
        let other = ModelVersion::base(&BTreeMap::new());
        assert!(base().check_next(first.before()).is_ok() && first.version().check_next(second.before()).is_ok());
        let refused = |version: ModelVersion, delta: &Delta| version.check_next(delta.before()).unwrap_err();
        assert!(matches!(refused(base(), &second), DeltaError::Missing { number: 2, needed: 1 }));
        assert!(matches!(refused(first.version(), &first), DeltaError::Applied { number: 1, latest: 1 }));
        assert!(matches!(refused(second.version(), &first), DeltaError::Applied { number: 1, latest: 2 }));
        assert!(matches!(refused(other, &first), DeltaError::Foreign { .. }));
        let forked = Delta::new(base(), 41, Changes::default()).unwrap().0;
        assert!(matches!(refused(forked.version(), &second), DeltaError::Foreign { .. }));
    }
}
