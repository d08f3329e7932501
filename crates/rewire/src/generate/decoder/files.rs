use super::{Config, Decoder};
use crate::generate::GenerateError;
use crate::rank::RankOptions;
use crate::weights::Weights;
use rewire_runtime::Mapping;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const INDEX: &str = "model.safetensors.index.json";

/// A line of a file of prompts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Prompt {
    /// An integer or a string.
    pub id: Value,
    /// The tokens.
    pub tokens: Vec<u32>,
}

/// The contents of a file of items.
#[derive(Deserialize)]
struct Items {
    items: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// True for a folder whose `config.json` has a `model_type`, as those of Hugging Face.
pub fn is_decoder(folder: &Path) -> bool {
    let config = std::fs::read(folder.join("config.json")).ok();
    let config: Option<Value> = config.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    config.is_some_and(|config| config["model_type"].is_string())
}

impl Decoder {
    /// Opens a folder of Hugging Face: `config.json`, and `model.safetensors` or its index with the files that it names.
    ///
    /// # Errors
    /// [`GenerateError`] names the file, key or tensor that is not good, or what a device lacks.
    pub fn open(folder: &Path, options: &RankOptions) -> Result<Self, GenerateError> {
        let config = Config::from_json(&read(&folder.join("config.json"))?)?;
        Self::load(&config, &checkpoint(folder, options.mapping)?, options.of_model())
    }
}

fn read(path: &Path) -> Result<String, GenerateError> {
    std::fs::read_to_string(path).map_err(|source| GenerateError::Read { path: path.to_owned(), source })
}

fn checkpoint(folder: &Path, mapping: Mapping) -> Result<Weights<'static>, GenerateError> {
    let index = folder.join(INDEX);
    let whole = folder.join("model.safetensors");
    if whole.is_file() || !index.is_file() {
        return Ok(Weights::read_mapping(&whole, mapping)?);
    }
    let bad = |reason: String| GenerateError::File { path: index.clone(), reason };
    let Index { weight_map } = serde_json::from_str(&read(&index)?).map_err(|error| bad(error.to_string()))?;
    let mut all: Option<Weights<'static>> = None;
    for name in weight_map.values().collect::<BTreeSet<_>>() {
        if Path::new(name).file_name().is_none_or(|file| file != name.as_str()) {
            return Err(bad(format!("`{name}` is not the name of a file")));
        }
        let shard = Weights::read_mapping(&folder.join(name), mapping)?;
        all = Some(match all {
            Some(all) => all.and(&shard),
            None => shard,
        });
    }
    let all = all.ok_or_else(|| bad("it names no files".to_owned()))?;
    match weight_map.keys().find(|name| all.describe(name).is_none()) {
        Some(name) => Err(bad(format!("no file has the tensor `{name}`"))),
        None => Ok(all),
    }
}

/// The prompts of a file, a JSON object a line.
///
/// # Errors
/// [`GenerateError`] names the file and the line that is not good.
pub fn read_prompts(path: &Path) -> Result<Vec<Prompt>, GenerateError> {
    let text = read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompt = |(place, line): (usize, &str)| {
        let bad = |error: serde_json::Error| format!("line {}: {error}", place + 1);
        serde_json::from_str(line).map_err(|error| GenerateError::File { path: path.to_owned(), reason: bad(error) })
    };
    lines.map(prompt).collect()
}

/// The valid items of a file, `{"items": [[token]]}`, a token a level.
///
/// # Errors
/// [`GenerateError`] names the file that is not good.
pub fn read_items(path: &Path) -> Result<Vec<Vec<u32>>, GenerateError> {
    let items = serde_json::from_str(&read(path)?);
    let Items { items } =
        items.map_err(|error| GenerateError::File { path: path.to_owned(), reason: error.to_string() })?;
    Ok(items)
}
