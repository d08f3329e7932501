//! The files of a release: archives of the crates, and built files with their checksums, licences and bill of materials.

mod archives;
mod check;
mod dist;
mod licences;
mod materials;
mod parts;

pub(crate) use archives::check;
pub(crate) use dist::{Options, run};

use crate::shell::{cargo, output_of};
use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Metadata of the workspace and its dependencies.
fn metadata(arguments: &[&str]) -> Result<Value, String> {
    let text = output_of(&mut cargo(&[&["metadata", "--format-version", "1"], arguments].concat()))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

/// A string field of a JSON object.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
