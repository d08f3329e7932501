//! Tables of `dynamicemb`. Their keys, values, scores and optimizer states are files next to the model, one set of files per rank.

use super::{CheckpointError, latest};
use std::collections::BTreeMap;
use std::path::Path;

/// The folder of tables in a checkpoint.
const FOLDER: &str = "dynamicemb";

/// The rows of a table of `dynamicemb`, by raw ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DynamicTable {
    /// The full name of the module, which starts with `model.`.
    pub module: String,
    /// The name of the table.
    pub table: String,
    /// The ids.
    pub keys: Vec<i64>,
    /// The rows of `keys`, concatenated.
    pub values: Vec<f32>,
    /// The scores of `keys`, which determine evictions.
    pub scores: Vec<i64>,
    /// The optimizer states of `keys`, concatenated; empty if the checkpoint has none.
    pub states: Vec<f32>,
}

/// Reads the tables of a checkpoint folder, which is found as by [`Checkpoint::open`](super::Checkpoint::open). A file has no tables.
///
/// # Errors
/// [`CheckpointError`] names the file that is missing, unreadable or incomplete.
pub fn read_dynamic(path: &Path) -> Result<Vec<DynamicTable>, CheckpointError> {
    if path.is_file() {
        return Ok(vec![]);
    }
    let folder = latest(path)?.join(FOLDER);
    let mut tables = vec![];
    for module in names(&folder)? {
        let folder = folder.join(&module);
        let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
        for name in names(&folder)? {
            let Some((table, rest)) = name.split_once("_emb_keys.rank_") else { continue };
            let count = rest.split_once(".world_size_").and_then(|(_, count)| count.parse().ok());
            let wrong = || {
                CheckpointError::file(&folder.join(&name))(CheckpointError::metadata("its name has no number of ranks"))
            };
            ranks.insert(table.to_owned(), count.ok_or_else(wrong)?);
        }
        for (table, ranks) in ranks {
            tables.push(read(&folder, module.clone(), table, ranks)?);
        }
    }
    Ok(tables)
}

fn read(folder: &Path, module: String, table: String, ranks: usize) -> Result<DynamicTable, CheckpointError> {
    let mut own = DynamicTable { module, table, ..DynamicTable::default() };
    for rank in 0..ranks {
        let path = |part: &str| folder.join(file(&own.table, part, rank, ranks));
        let keys = numbers(&path("emb_keys"), i64::from_le_bytes)?;
        let scores = numbers(&path("emb_scores"), i64::from_le_bytes)?;
        let values = numbers(&path("emb_values"), f32::from_le_bytes)?;
        let is_whole =
            |values: &[f32]| if keys.is_empty() { values.is_empty() } else { values.len().is_multiple_of(keys.len()) };
        let states = Some(path("opt_values")).filter(|path| path.is_file());
        let states = states.map(|path| numbers(&path, f32::from_le_bytes)).transpose()?.unwrap_or_default();
        if scores.len() != keys.len() || !is_whole(&values) || !is_whole(&states) {
            let reason = format!(
                "{} keys, but {} scores, {} values and {} states",
                keys.len(),
                scores.len(),
                values.len(),
                states.len()
            );
            return Err(CheckpointError::file(&path("emb_keys"))(CheckpointError::metadata(reason)));
        }
        own.keys.extend(keys);
        own.scores.extend(scores);
        own.values.extend(values);
        own.states.extend(states);
    }
    Ok(own)
}

/// Writes tables as the files of a single rank.
pub(super) fn write_dynamic(folder: &Path, tables: &[DynamicTable]) -> Result<(), CheckpointError> {
    for DynamicTable { module, table, keys, values, scores, states } in tables {
        let folder = folder.join(FOLDER).join(module);
        std::fs::create_dir_all(&folder).map_err(CheckpointError::write(&folder))?;
        let integers = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let parts = [("emb_keys", integers(keys)), ("emb_values", floats(values)), ("emb_scores", integers(scores))];
        let states = (!states.is_empty()).then(|| ("opt_values", floats(states)));
        let parts = parts.into_iter().chain(states).map(|(part, bytes)| (file(table, part, 0, 1), bytes));
        for (name, bytes) in parts.chain([(format!("{table}_opt_args.json"), b"{}".to_vec())]) {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(CheckpointError::write(&path))?;
        }
    }
    Ok(())
}

fn file(table: &str, part: &str, rank: usize, ranks: usize) -> String {
    format!("{table}_{part}.rank_{rank}.world_size_{ranks}")
}

/// The names of a folder's entries in ascending order; empty if the folder does not exist.
fn names(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let entries = std::fs::read_dir(folder).map_err(CheckpointError::read(folder))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

fn numbers<T, const N: usize>(path: &Path, of: fn([u8; N]) -> T) -> Result<Vec<T>, CheckpointError> {
    let bytes = std::fs::read(path).map_err(CheckpointError::read(path))?;
    match bytes.as_chunks::<N>() {
        (chunks, []) => Ok(chunks.iter().map(|chunk| of(*chunk)).collect()),
        _ => {
            let reason = format!("it has {} bytes: expected a multiple of {N}", bytes.len());
            Err(CheckpointError::file(path)(CheckpointError::metadata(reason)))
        }
    }
}
