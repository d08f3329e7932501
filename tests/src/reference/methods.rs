//! Public methods, from their source.

use super::source::{docs, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, Ident, ImplItem, ImplItemFn, Item, ItemMacro, ReturnType, Token, Visibility};

/// Types with the folders or files of their methods.
const TYPES: [(&str, &str); 14] = [
    ("Scope", "graph/src/trace"),
    ("Tensor", "graph/src/trace"),
    ("Ragged", "graph/src/trace"),
    ("HostTensor", "graph/src/tensor.rs"),
    ("Plan", "graph-rewrite/src/plan"),
    ("Model", "runtime/src/model"),
    ("Session", "runtime/src/session"),
    ("Inputs", "runtime/src/session/io.rs"),
    ("Outputs", "runtime/src/session/io.rs"),
    ("DeviceTensor", "runtime/src/session/io.rs"),
    ("Gpu", "runtime/src/device"),
    ("Weights", "rewire/src/weights"),
    ("Ranker", "rewire/src/rank"),
    ("Request", "rewire/src/rank"),
];

/// The public methods of a type.
#[derive(Clone, Debug)]
pub struct Methods {
    /// The type.
    pub item: &'static str,
    /// Its documentation.
    pub docs: String,
    /// Their names, except async methods with a blocking version.
    pub names: Vec<String>,
    /// Signature and description, one line each.
    pub lines: Vec<(String, String)>,
}

/// The methods of all types that an app calls.
pub fn methods() -> Result<Vec<Methods>, String> {
    TYPES.iter().map(|(item, path)| read(item, path)).collect()
}

fn read(item: &'static str, path: &str) -> Result<Methods, String> {
    let files = files(&Path::new("crates").join(path))?;
    let (mut about, mut functions) = (String::new(), vec![]);
    for (_, file) in files {
        for own in syn::parse_file(&file).map_err(|error| format!("{path}: {error}"))?.items {
            match own {
                Item::Struct(own) if own.ident == item => about = docs(&own.attrs),
                Item::Macro(own) if item == "Tensor" => functions.extend(listed(&own)),
                Item::Impl(own) if own.trait_.is_none() && text(&own.self_ty).split('<').next() == Some(item) => {
                    functions.extend(own.items.into_iter().filter_map(public));
                }
                _ => {}
            }
        }
    }
    let all: BTreeMap<String, &ImplItemFn> = functions.iter().map(|own| (own.sig.ident.to_string(), own)).collect();
    let is_twin = |name: &str| name.strip_suffix("_async").is_some_and(|blocking| all.contains_key(blocking));
    let names = all.keys().filter(|name| !is_twin(name)).cloned().collect();
    let lines = all.iter().filter(|(name, _)| !is_twin(name)).map(|(name, function)| {
        let twin = all.get(&format!("{name}_async"));
        let also = if twin.is_some() { format!(", `{name}_async`") } else { String::new() };
        let own = docs(&function.attrs);
        let shown = twin.filter(|_| own.contains("`, blocking")).map_or(own, |twin| docs(&twin.attrs));
        (format!("`{}`{also}", call(item, function)), sentence(&shown))
    });
    Ok(Methods { item, docs: sentence(&about), lines: lines.collect(), names })
}

/// The methods of `Tensor` that the macros `unary` and `binary` define from documented names.
fn listed(list: &ItemMacro) -> Vec<ImplItemFn> {
    let arguments = match list.mac.path.get_ident().map(Ident::to_string).as_deref() {
        Some("unary") => "&self",
        Some("binary") => "&self, other: impl Operand",
        _ => return vec![],
    };
    let entries = |input: ParseStream<'_>| {
        let mut functions = vec![];
        while !input.is_empty() {
            let attrs = input.call(Attribute::parse_outer)?;
            let name: Ident = input.parse()?;
            input.parse::<Token![=>]>()?;
            input.parse::<Ident>()?;
            input.parse::<Option<Token![,]>>()?;
            let function: ImplItemFn = syn::parse_str(&format!("pub fn {name}({arguments}) -> Tensor {{}}"))?;
            functions.push(ImplItemFn { attrs, ..function });
        }
        Ok(functions)
    };
    entries.parse2(list.mac.tokens.clone()).unwrap_or_default()
}

/// A file, or all Rust files and written guides of a folder of the repository, with their texts.
fn files(path: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if !whole.is_dir() {
        return Ok(vec![(path.to_owned(), std::fs::read_to_string(whole).map_err(failed)?)]);
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(whole).map_err(failed)?.collect();
    let within = entries.map_err(failed)?.into_iter().map(|entry| path.join(entry.file_name()));
    let is_text = |path: &PathBuf| match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => !path.ends_with("reference.md"),
        Some(extension) => extension == "rs",
        None => !path.ends_with("target"),
    };
    let files: Result<Vec<_>, _> = within.filter(is_text).map(|path| files(&path)).collect();
    Ok(files?.concat())
}

/// The functions that tests, benches, examples, guides and examples in documentation call.
pub fn called() -> Result<BTreeSet<String>, String> {
    let mut calls = BTreeSet::new();
    for folder in ["benches", "crates", "docs", "examples", "tests/src", "tests/tests"] {
        for (path, text) in files(Path::new(folder))? {
            let is_of = |part: &&str| path.iter().any(|own| own == *part);
            if !path.starts_with("crates") || ["tests", "tests.rs", "examples"].iter().any(is_of) {
                calls.extend(calls_of(&text));
                continue;
            }
            let is_example = |line: &&str| line.trim_start().starts_with("//") && !line.contains("[`");
            let examples: Vec<&str> = text.lines().filter(is_example).collect();
            let tests = text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests);
            calls.extend(calls_of(tests));
            calls.extend(calls_of(&examples.join("\n")));
        }
    }
    Ok(calls)
}

/// The words before an opening parenthesis or a type argument.
fn calls_of(text: &str) -> impl Iterator<Item = String> {
    let before = text.split_inclusive(['(', '<']).filter_map(|part| {
        let name = part.strip_suffix('(').or_else(|| part.strip_suffix("::<"))?;
        name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    before.map(str::to_owned)
}

fn public(item: ImplItem) -> Option<ImplItemFn> {
    match item {
        ImplItem::Fn(function) if matches!(function.vis, Visibility::Public(_)) => Some(function),
        _ => None,
    }
}

fn call(item: &str, function: &ImplItemFn) -> String {
    let of_self = matches!(function.sig.inputs.first(), Some(FnArg::Receiver(_)));
    let arguments: Vec<String> =
        function.sig.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_))).map(text).collect();
    let result = match &function.sig.output {
        ReturnType::Default => String::new(),
        ReturnType::Type(_, ty) => format!(" -> {}", text(ty)),
    };
    let owner = if of_self { String::new() } else { format!("{item}::") };
    let call = format!("{owner}{}({}){result}", function.sig.ident, arguments.join(", "));
    call.replace('|', "\\|").replace(">+", "> +").replace("Fn (", "Fn(").replace("FnOnce (", "FnOnce(")
}

/// The first sentence.
fn sentence(docs: &str) -> String {
    let first = docs.split_once(". ").map_or(docs, |(first, _)| first);
    format!("{}.", first.trim_end_matches('.'))
}
