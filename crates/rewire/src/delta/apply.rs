//! Deltas of models in files.

use super::rewritten::{Layouts, Rewritten};
use super::{Delta, DeltaError, ModelVersion};
use crate::package::{Package, PackageError, Tables};
use crate::predict::ModelIds;
use crate::rank::{RankError, read_config_text, read_package, read_weights};
use crate::weights::{Weights, with_columns};
use crate::{write_file, write_file_with};
use rewire_runtime::{Mapping, replace_file_with};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// Applies deltas, in order, to the model folder or package `model`, and writes the result to `out`, which may be the
/// same path. Quantised tensors stay quantised: new rows and values are quantised, too.
///
/// Nothing is written if a delta is rejected. The output is replaced atomically. If tables of a package are in a
/// separate file, the new tables are written to another file next to `out`, whose name ends with the number of the last
/// delta. Memory holds one delta, and the ids of growing tables.
///
/// # Errors
/// [`RankError::Delta`] names the delta that is damaged or out of order, or the tensor that the model does not have.
/// Other errors report files that cannot be read.
pub fn apply(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    match model.is_dir() {
        true => to_folder(model, deltas, out),
        false => to_package(model, deltas, out),
    }
}

/// A model and the deltas to apply, which were checked.
struct Changed<'a> {
    rewritten: Rewritten<'a>,
    version: ModelVersion,
    deltas: &'a [PathBuf],
    /// The metadata without entries about tensors.
    metadata: BTreeMap<String, String>,
}

impl<'a> Changed<'a> {
    fn new(
        config: Option<&str>,
        weights: &Weights<'_>,
        layouts: Layouts<'a>,
        deltas: &'a [PathBuf],
    ) -> Result<Self, RankError> {
        let mut rewritten = Rewritten::new(weights, layouts)?;
        let (mut version, mut ids) = (ModelVersion::of(weights)?, ModelIds::new(config, weights)?);
        for path in deltas {
            let delta = Delta::read(path)?;
            let fits = version.check_next(delta.before());
            let fits = fits.and_then(|()| rewritten.check(&delta)).and_then(|()| ids.change(&delta.changes().ids));
            fits.map_err(|source| DeltaError::File { path: path.clone(), source: Box::new(source) })?;
            version = delta.version();
        }
        rewritten.tensors.extend(ids.tensors()?);
        let mut metadata = weights.metadata().clone();
        metadata.extend(version.metadata());
        Ok(Self { rewritten, version, deltas, metadata })
    }
}

fn unwritten(path: &Path) -> impl Fn(io::Error) -> DeltaError {
    move |error| match error.downcast() {
        Ok(delta) => delta,
        Err(source) => DeltaError::Write { path: path.to_owned(), source },
    }
}

fn to_folder(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    let (config, weights) = (read_config_text(model, Mapping::Large)?, read_weights(model, Mapping::Large)?);
    let changed = Changed::new(Some(&config), &weights, Layouts::default(), deltas)?;
    if out.exists() {
        if read_config_text(out, Mapping::Large).is_ok_and(|own| own != config) {
            return Err(unwritten(out)(io::Error::other("it holds another model")).into());
        }
        write_folder(&config, &changed, out)?;
        return Ok(changed.version);
    }
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let partial = out.with_file_name(name);
    std::fs::create_dir_all(&partial).map_err(unwritten(&partial))?;
    let written = write_folder(&config, &changed, &partial);
    let published = written.and_then(|()| std::fs::rename(&partial, out).map_err(unwritten(out)));
    if published.is_err() {
        drop(std::fs::remove_dir_all(&partial));
    }
    Ok(published.map(|()| changed.version)?)
}

/// Writes a folder. If `out` already holds the model, only the file of the weights changes.
fn write_folder(config: &str, changed: &Changed<'_>, out: &Path) -> Result<(), DeltaError> {
    let place = out.join(CONFIG);
    if !place.exists() {
        write_file(&place, config.as_bytes()).map_err(unwritten(&place))?;
    }
    let place = out.join(WEIGHTS);
    let written = replace_file_with(&place, |file| changed.rewritten.write(file, &changed.metadata, changed.deltas));
    written.map_err(unwritten(&place))
}

fn to_package(model: &Path, deltas: &[PathBuf], out: &Path) -> Result<ModelVersion, RankError> {
    let package = read_package(model, Mapping::Large)?;
    let plan = package.plan()?;
    let mut changed = Changed::new(package.config(), package.weights(), Layouts::of(&plan), deltas)?;
    changed.metadata.extend(with_columns(plan.parameters_by_column()));
    let apart = changed.rewritten.split(&package.names_of_tables_apart().collect());
    let tables = package.tables_file().map(|file| write_tables(file, &changed, &apart, out)).transpose()?;
    let Changed { rewritten, version, deltas, metadata } = changed;
    write_package(&package, tables.as_ref(), (&rewritten, &metadata, deltas), out)?;
    Ok(version)
}

fn write_package(
    package: &Package,
    tables: Option<&Tables>,
    (rewritten, metadata, deltas): (&Rewritten<'_>, &BTreeMap<String, String>, &[PathBuf]),
    out: &Path,
) -> Result<(), DeltaError> {
    let bytes = rewritten.bytes(metadata)?;
    let written = write_file_with(out, |file| {
        package.write_with(file, tables, (bytes, |file: &mut _| rewritten.write(file, metadata, deltas)))
    });
    written.map_err(unwritten(out))
}

/// Writes tables next to a package, to a file named after the old one and the version.
fn write_tables(file: &str, changed: &Changed<'_>, tables: &Rewritten<'_>, out: &Path) -> Result<Tables, PackageError> {
    let stem = file.strip_suffix(".safetensors").unwrap_or(file);
    let base = stem.rsplit_once('.').filter(|(_, number)| number.bytes().all(|digit| digit.is_ascii_digit()));
    let base = base.map_or(stem, |(base, _)| base);
    let path = out.with_file_name(format!("{base}.{}.safetensors", changed.version.number()));
    Tables::write_changed(&path, &tables.tensors, |file, places| tables.change(file, places, changed.deltas))
}
