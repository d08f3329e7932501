//! Deltas of models in files.

use super::{Delta, DeltaError, ModelVersion};
use crate::package::{PackageError, Tables};
use crate::rank::{RankError, read_config_text, read_package, read_weights};
use crate::weights::{Described, Header, Weights, described, file_bytes, header, serialize, with_columns};
use crate::write_file;
use rewire_graph::{DType, HostTensor};
use rewire_runtime::{Mapping, ParameterUpdate, RuntimeError, replace_file_with};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// Applies deltas, in order, to the model folder or package `model`, and writes the result to `out`. The path may be
/// that of the model. Quantised tensors stay so: new rows and values are quantised.
///
/// Nothing is written if a delta is refused. However the program ends, `out` is the old or the new model. Tables of a
/// package in a separate file go to another file beside `out`, whose name ends with the number of the last delta.
///
/// # Errors
/// [`RankError::Delta`] names the delta that is damaged or out of order, or the tensor that the model does not have;
/// other errors are of unreadable files.
pub fn apply(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    match model.is_dir() {
        true => to_folder(model, deltas, out),
        false => to_package(model, deltas, out),
    }
}

/// New values of a tensor in its storage type.
enum Stored {
    Whole(HostTensor),
    Rows(Vec<u32>, HostTensor),
}

impl Stored {
    /// The stored form of a change to one of the tensors of `weights`.
    fn of(weights: &Weights<'_>, name: &str, change: &ParameterUpdate) -> Result<Self, DeltaError> {
        let Some((dtype, shape)) = weights.describe(name) else {
            return Err(DeltaError::Unknown { name: name.to_owned() });
        };
        let mut shape = shape.to_vec();
        if let (true, [.., rows, columns]) = (weights.is_by_column(name), shape.as_mut_slice()) {
            std::mem::swap(rows, columns);
        }
        let stored = |tensor: &HostTensor, expected: Vec<usize>| match tensor.shape() == expected {
            true => tensor.clone().stored_as(dtype).map_err(|error| RuntimeError::of_stored(name, error)),
            false => {
                let actual = tensor.shape().to_vec();
                Err(RuntimeError::ParameterShape { name: name.to_owned(), expected, actual })
            }
        };
        match change {
            ParameterUpdate::Whole(tensor) => Ok(Self::Whole(stored(tensor, shape)?)),
            ParameterUpdate::Rows { rows, values } => {
                let &[height, width] = shape.as_slice() else {
                    return Err(DeltaError::content(name, "it is no table"));
                };
                match rows.iter().find(|row| **row as usize >= height) {
                    Some(row) => Err(DeltaError::content(name, format!("row {row} is not one of {height} rows"))),
                    None => Ok(Self::Rows(rows.clone(), stored(values, vec![rows.len(), width])?)),
                }
            }
        }
    }

    /// The ranges of bytes to replace in the tensor: offset and content.
    fn ranges(&self) -> Vec<(usize, &[u8])> {
        match self {
            Self::Whole(tensor) => vec![(0, tensor.bytes())],
            Self::Rows(rows, values) => {
                let row_bytes = (values.bytes().len() / rows.len().max(1)).max(1);
                let each = rows.iter().zip(values.bytes().chunks_exact(row_bytes));
                each.map(|(row, bytes)| (*row as usize * row_bytes, bytes)).collect()
            }
        }
    }
}

/// The version of a model with deltas, all of which are checked against its weights.
fn checked(weights: &Weights<'_>, deltas: &[PathBuf]) -> Result<ModelVersion, DeltaError> {
    let mut version = ModelVersion::of(weights)?;
    for path in deltas {
        let delta = Delta::read(path)?;
        let fits = version.check_next(delta.before()).and_then(|()| match delta.changes().ids.keys().next() {
            Some(table) => Err(DeltaError::Ids { table: table.clone() }),
            None => {
                let mut parameters = delta.changes().parameters.iter();
                parameters.try_for_each(|(name, change)| Stored::of(weights, name, change).map(drop))
            }
        });
        fits.map_err(|source| DeltaError::File { path: path.clone(), source: Box::new(source) })?;
        version = delta.version();
    }
    Ok(version)
}

fn unwritten(path: &Path) -> impl Fn(std::io::Error) -> DeltaError {
    move |source| DeltaError::Write { path: path.to_owned(), source }
}

fn to_folder(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    let (config, weights) = (read_config_text(model, Mapping::Large)?, read_weights(model, Mapping::Large)?);
    let version = checked(&weights, deltas)?;
    if out.exists() {
        if read_config_text(out, Mapping::Large).is_ok_and(|own| own != config) {
            return Err(unwritten(out)(std::io::Error::other("it holds another model")).into());
        }
        write_folder(&config, &weights, (deltas, version), out)?;
        return Ok(version);
    }
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let partial = out.with_file_name(name);
    std::fs::create_dir_all(&partial).map_err(unwritten(&partial))?;
    let written = write_folder(&config, &weights, (deltas, version), &partial);
    let published = written.and_then(|()| std::fs::rename(&partial, out).map_err(|error| unwritten(out)(error).into()));
    if published.is_err() {
        drop(std::fs::remove_dir_all(&partial));
    }
    published.map(|()| version)
}

/// Writes a folder. Only the file of the weights changes if it holds the model already.
fn write_folder(
    config: &str,
    weights: &Weights<'_>,
    (deltas, version): (&[PathBuf], ModelVersion),
    out: &Path,
) -> Result<(), RankError> {
    let place = out.join(CONFIG);
    if !place.exists() {
        write_file(&place, config.as_bytes()).map_err(unwritten(&place))?;
    }
    let mut metadata = weights.metadata().clone();
    metadata.extend(version.metadata());
    let (tensors, place, mut failed) = (weights.tensors()?, out.join(WEIGHTS), None);
    let written = replace_file_with(&place, |file| {
        let written = write_weights(file, weights, (&tensors, &metadata), deltas);
        written.map_err(|error| match error {
            DeltaError::Write { source, .. } => source,
            error => {
                failed = Some(error);
                std::io::Error::other("a delta changed")
            }
        })
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(written.map_err(unwritten(&place))?),
    }
}

/// Writes a file of weights and then the changes of one delta after the other, so that memory holds only one.
fn write_weights(
    file: &mut File,
    weights: &Weights<'_>,
    (tensors, metadata): (&BTreeMap<String, HostTensor>, &BTreeMap<String, String>),
    deltas: &[PathBuf],
) -> Result<(), DeltaError> {
    let failed = |source| DeltaError::Write { path: PathBuf::new(), source };
    let described: Described = tensors.iter().map(|(name, tensor)| (name.as_str(), described(tensor))).collect();
    let Header { bytes, places, .. } = header(&described, metadata)?;
    file.write_all(&bytes).map_err(failed)?;
    for tensor in places.iter().filter_map(|(name, _)| tensors.get(*name)) {
        file.write_all(&file_bytes(tensor)).map_err(failed)?;
    }
    let starts: BTreeMap<&str, usize> = places.into_iter().map(|(name, start)| (name, bytes.len() + start)).collect();
    for path in deltas {
        for (name, change) in &Delta::read(path)?.changes().parameters {
            let stored = Stored::of(weights, name, change)?;
            let start = *starts.get(name.as_str()).ok_or_else(|| DeltaError::Unknown { name: name.clone() })?;
            for (offset, bytes) in stored.ranges() {
                file.seek(SeekFrom::Start((start + offset) as u64)).map_err(failed)?;
                file.write_all(bytes).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn to_package(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    let package = read_package(model, Mapping::Large)?;
    let (plan, weights) = (package.plan()?, package.weights());
    let version = checked(weights, deltas)?;
    let by_column: HashSet<&str> = plan.parameters_by_column().collect();
    let mut changed: BTreeMap<String, HostTensor> = BTreeMap::new();
    for path in deltas {
        for (name, change) in &Delta::read(path)?.changes().parameters {
            let before = match changed.remove(name) {
                Some(before) => Some(before),
                None => weights.laid(name, by_column.contains(name.as_str())).map_err(in_memory)?,
            };
            let before = before.ok_or_else(|| DeltaError::Unknown { name: name.clone() })?;
            changed.insert(name.clone(), patched(name, before, change, by_column.contains(name.as_str()))?);
        }
    }
    let mut metadata = weights.metadata().clone();
    metadata.extend(version.metadata());
    metadata.extend(with_columns(plan.parameters_by_column()));
    let apart: HashSet<&str> = package.names_of_tables_apart().collect();
    let (mut own, mut tables) = (BTreeMap::new(), BTreeMap::new());
    for name in weights.names() {
        let tensor = match changed.remove(name) {
            Some(tensor) => Some(tensor),
            None => weights.laid(name, by_column.contains(name)).map_err(in_memory)?,
        };
        let place = if apart.contains(name) { &mut tables } else { &mut own };
        place.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
    }
    let tables = package.tables_file().map(|file| write_tables(file, version, &tables, out)).transpose()?;
    let written = package.with_weights(&serialize(&own, &metadata)?, tables.as_ref())?;
    write_file(out, written.bytes()).map_err(unwritten(out))?;
    Ok(version)
}

fn in_memory(error: rewire_graph::TensorSizeError) -> DeltaError {
    DeltaError::Runtime(RuntimeError::Memory { reason: error.to_string() })
}

/// Writes tables beside a package, to a file named like the old one and the version.
fn write_tables(
    file: &str,
    version: ModelVersion,
    tables: &BTreeMap<String, HostTensor>,
    out: &Path,
) -> Result<Tables, PackageError> {
    let stem = file.strip_suffix(".safetensors").unwrap_or(file);
    let base = stem.rsplit_once('.').filter(|(_, number)| number.bytes().all(|digit| digit.is_ascii_digit()));
    let base = base.map_or(stem, |(base, _)| base);
    Tables::write(&out.with_file_name(format!("{base}.{}.safetensors", version.number())), tables)
}

/// A tensor of a package with a change.
fn patched(
    name: &str,
    before: HostTensor,
    change: &ParameterUpdate,
    by_column: bool,
) -> Result<HostTensor, DeltaError> {
    let stored = |tensor: &HostTensor, dtype: DType| {
        let tensor = if by_column { tensor.clone().transposed().map_err(in_memory)? } else { tensor.clone() };
        tensor.stored_as(dtype).map_err(|error| DeltaError::from(RuntimeError::of_stored(name, error)))
    };
    let (rows, values) = match change {
        ParameterUpdate::Whole(tensor) => return stored(tensor, before.dtype()),
        ParameterUpdate::Rows { .. } if by_column => {
            return Err(DeltaError::content(name, "it is stored by column: its rows cannot be replaced"));
        }
        ParameterUpdate::Rows { rows, values } => (rows.clone(), stored(values, before.dtype())?),
    };
    let mut bytes = before.bytes().to_vec();
    for (offset, content) in Stored::Rows(rows, values).ranges() {
        bytes.get_mut(offset..offset + content.len()).into_iter().for_each(|place| place.copy_from_slice(content));
    }
    HostTensor::from_bytes(before.dtype(), before.shape().to_vec(), bytes).map_err(in_memory)
}
