//! The page of exported models: the supported operators, and the models that replay each.

use rewire::import::pt2;
use rewire_graph::{Seed, differentiate};
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

/// The program of an archive.
fn program_of(archive: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", archive.display());
    let file = std::fs::File::open(archive).map_err(|error| failed(&error))?;
    let mut zip = ZipArchive::new(file).map_err(|error| failed(&error))?;
    let names = zip.file_names().filter_map(|name| Some(name.ok()?.into_owned()));
    let name = names.into_iter().find(|name| name.ends_with("models/model.json"));
    let mut text = String::new();
    let mut entry = zip.by_name(&name.ok_or("no program")?).map_err(|error| failed(&error))?;
    entry.read_to_string(&mut text).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

/// The types of PyTorch that results have, by their numbers in archives.
const TYPES: [(u64, &str); 10] = [
    (1, "u8"),
    (2, "i8"),
    (3, "i16"),
    (4, "i32"),
    (5, "i64"),
    (6, "f16"),
    (7, "f32"),
    (8, "f64"),
    (12, "bool"),
    (13, "bf16"),
];

/// What the replayed models show of an operator.
#[derive(Default)]
struct Shown {
    models: BTreeSet<String>,
    /// Element types of results.
    types: BTreeSet<&'static str>,
    /// True if a gradient passed through it.
    is_differentiated: bool,
}

/// The names of the tensors in a part of a node.
fn tensors(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("as_tensor").and_then(|tensor| tensor["name"].as_str());
            let lists = ["as_tensors", "as_optional_tensors"].map(|name| fields.get(name));
            let listed = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
            let listed = listed.filter_map(|tensor| tensor["name"].as_str().or(tensor["as_tensor"]["name"].as_str()));
            own.into_iter().chain(listed).chain(fields.get("arg").map(tensors).into_iter().flatten()).collect()
        }
        Value::Array(items) => items.iter().flat_map(tensors).collect(),
        _ => vec![],
    }
}

/// Adds the operators of an archive.
fn add(archive: &Path, name: &str, shown: &mut BTreeMap<String, Shown>) -> Result<(), String> {
    let program = program_of(archive)?;
    let graph = &program["graph_module"]["graph"];
    let type_of = |tensor: &str| {
        let code = graph["tensor_values"][tensor]["dtype"].as_u64();
        TYPES.iter().find(|(number, _)| Some(*number) == code).map(|(_, name)| *name)
    };
    let is_float = |tensor: &str| type_of(tensor).is_some_and(|name| name.contains('f'));
    let has_gradients = has_gradients(archive)?;
    let mut varied: BTreeSet<&str> = tensors(&graph["inputs"]).into_iter().filter(|name| is_float(name)).collect();
    for node in graph["nodes"].as_array().into_iter().flatten() {
        let Some(target) = node["target"].as_str() else { continue };
        let operator = shown.entry(pt2::operator_of(target)).or_default();
        operator.models.insert(name.to_owned());
        let results = tensors(&node["outputs"]);
        operator.types.extend(results.iter().filter_map(|result| type_of(result)));
        let floats: Vec<&str> = results.into_iter().filter(|result| is_float(result)).collect();
        if !floats.is_empty() && tensors(&node["inputs"]).iter().any(|input| varied.contains(input)) {
            operator.is_differentiated |= has_gradients;
            varied.extend(floats);
        }
    }
    Ok(())
}

/// True if all results of floats have gradients by the inputs of floats.
fn has_gradients(archive: &Path) -> Result<bool, String> {
    let model = pt2::read(archive).map_err(|error| error.to_string())?;
    let is_float = |value| model.graph.ty(value).is_some_and(|ty| ty.dtype.is_float());
    let floats = model.graph.outputs().iter().filter(|(_, value)| is_float(*value));
    let seeds: Vec<(&str, Seed<'_>)> = floats.map(|(name, _)| (name.as_str(), Seed::One)).collect();
    let inputs = model.inputs.iter().filter(|input| input.ty.is_float());
    let wanted: Vec<&str> = inputs.map(|input| input.name.as_str()).collect();
    Ok(!wanted.is_empty() && differentiate(&model.graph, &seeds, &wanted).is_ok())
}

/// The page.
///
/// # Errors
/// What cannot be read.
pub fn page() -> Result<String, String> {
    let mut shown: BTreeMap<String, Shown> = BTreeMap::new();
    for model in models()? {
        let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Some models have no decomposed form.
        let core = Some(model.join("model_core.pt2")).filter(|file| file.is_file());
        for file in [model.join("model.pt2")].iter().chain(&core) {
            add(file, &name, &mut shown)?;
        }
    }
    let mut page = TEXT.to_owned();
    let operators: BTreeSet<&str> = pt2::operators().collect();
    for operator in operators {
        let (types, gradient, models) = shown.get(operator).map(Shown::cells).unwrap_or_default();
        let _ = writeln!(page, "| `{operator}` | {types} | {gradient} | {models} |");
    }
    Ok(page)
}

impl Shown {
    /// Types of results, whether there is a gradient, and models.
    fn cells(&self) -> (String, &'static str, String) {
        let few: Vec<String> = self.models.iter().take(3).map(|name| format!("`{name}`")).collect();
        let more = self.models.len().saturating_sub(few.len());
        let models = few.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
        let types: Vec<&str> = self.types.iter().copied().collect();
        (types.join(", "), if self.is_differentiated { "yes" } else { "" }, models)
    }
}

const TEXT: &str = "\
# Exported models

Written by `cargo xtask reference` from the importer; a test fails if it is stale. [PyTorch](from-pytorch.md) is the guide.

The importer reads archives of `torch.export.save` (`.pt2`), as exported or after `run_decompositions()`. An archive becomes a graph of the same
primitives as a traced model, with symbolic sizes, and runs with every rewrite, kernel, device and language.

```sh
rewire run model.pt2 --inputs inputs.safetensors --out outputs.safetensors
rewire import model.pt2 --out model.rewire
rewire describe model.rewire
```

`bench`, `graph`, `profile`, `compile`, `package`, `describe` and `run` accept archives and packages. In Rust, `rewire::import::pt2::read` reads an archive
and `rewire::program::Program` runs it; `rewire.from_export` and `rewire.Model` in Python, `rewire_model_open` in C, and `Model` in Kotlin and Swift do
the same on named tensors.

- Nothing in a file is executed: payloads that need pickle are rejected. If operators are not supported, one error lists all of
  them with their counts and modules.
- Padding is removed: if a program pads rows, computes with them and removes the padding again, rewire computes only the real rows, provided that the
  padded rows it sums are zeros. An exported `STULayer` has the kernels of a traced one. `rewire graph --explain` shows the rule, `padding and back`, or
  why it does not apply.
- Checks of values (`_assert_async`, those of linear algebra) are omitted, even if effect tokens order them. Other effects are rejected.
- Buffers that a program changes are states: they keep their values between runs and start with those of the file. Inputs that it changes are
  among the results.
- 8-bit and 16-bit integers are computed in 32 bits and wrap around. 64-bit floats are computed in f32. Complex numbers are supported only inside a
  program.
- Sizes that depend on data (`nonzero`, `unique`, `item`, an index of bools), random numbers, and singular vectors and eigenvectors, whose signs are
  undefined, are rejected. Singular values, eigenvalues of symmetric matrices and pseudoinverses of up to 16 rows are supported.

## Operators

One line covers all overloads of an operator. The models of `tests/pt2` are replayed against PyTorch on the CPU and on GPUs. The table has the result
types that occur in them, and whether a gradient passes from a result to an input. All operators become the same primitives, which define the gradients.

| operator | results | gradient | replayed by |
|---|---|---|---|
";
