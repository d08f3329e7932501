//! The page of exported models: the supported operators, and the models that replay each.

use rewire::import::pt2;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// The folders of `tests/pt2` with one model each, in order.
pub fn models() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pt2");
    let entries = std::fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut models: Vec<PathBuf> = paths.filter(|path| path.join("model.pt2").is_file()).collect();
    models.sort();
    Ok(models)
}

/// The operators of an archive, without their overloads.
fn operators_of(archive: &Path) -> Result<BTreeSet<String>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", archive.display());
    let file = std::fs::File::open(archive).map_err(|error| failed(&error))?;
    let mut zip = ZipArchive::new(file).map_err(|error| failed(&error))?;
    let names = zip.file_names().filter_map(|name| Some(name.ok()?.into_owned()));
    let name = names.into_iter().find(|name| name.ends_with("models/model.json"));
    let mut text = String::new();
    let mut entry = zip.by_name(&name.ok_or("no program")?).map_err(|error| failed(&error))?;
    entry.read_to_string(&mut text).map_err(|error| failed(&error))?;
    let program: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let nodes = program["graph_module"]["graph"]["nodes"].as_array().into_iter().flatten();
    let targets = nodes.filter_map(|node| node["target"].as_str());
    Ok(targets.map(pt2::operator_of).collect())
}

/// The page.
///
/// # Errors
/// What cannot be read.
pub fn page() -> Result<String, String> {
    let mut replayed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for model in models()? {
        let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Some models have no decomposed form.
        let core = Some(model.join("model_core.pt2")).filter(|file| file.is_file());
        for file in [model.join("model.pt2")].iter().chain(&core) {
            for operator in operators_of(file)? {
                replayed.entry(operator).or_default().insert(name.clone());
            }
        }
    }
    let mut page = TEXT.to_owned();
    let operators: BTreeSet<&str> = pt2::operators().collect();
    for operator in operators {
        let models = replayed.get(operator).map(|models| {
            let few: Vec<String> = models.iter().take(3).map(|name| format!("`{name}`")).collect();
            let more = models.len().saturating_sub(few.len());
            few.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
        });
        let _ = writeln!(page, "| `{operator}` | {} |", models.unwrap_or_default());
    }
    Ok(page)
}

const TEXT: &str = "\
# Exported models

Written by `cargo xtask reference` from the importer itself; a test fails where it is stale.

A model of PyTorch comes in as the archive that `torch.export.save` writes (`.pt2`, as exported or after `run_decompositions()`). It becomes a graph of the same
primitives as traced models, with symbolic sizes: every rewrite, kernel, device and binding takes it.

```sh
rewire run model.pt2 --inputs inputs.safetensors --out outputs.safetensors
rewire import model.pt2 --out model.rewire
rewire describe model.rewire
```

`bench`, `graph`, `profile`, `compile`, `package`, `describe` and `run` take archives and packages alike. Rust reads one with `rewire::import::pt2::read` and runs
it with `rewire::program::Program`; `rewire.from_export` and `rewire.Model` in Python, `rewire_model_open` in C, and `Model` in Kotlin and Swift do the same on
tensors by name.

- Nothing of a file is executed: payloads that need pickle are refused. A file with operators that are not below is one error that names all of them, how often
  each occurs, and in which module.
- Buffers that a program changes are states, which keep their values from run to run and begin with those of the file. Inputs that it changes are among the results.
- 8-bit and 16-bit integers are computed in 32 bits and wrap around. 64-bit floats are computed in f32. Complex numbers occur inside of programs alone.
- Sizes that depend on data (`nonzero`, `unique`, `item`) are refused, and random numbers.

## Operators

Operators with other overloads than those below have the same line. Gradients follow from the primitives, all of which run on the CPU and on GPUs. The models of
`tests/pt2` are replayed against PyTorch on both.

| operator | replayed by |
|---|---|
";
