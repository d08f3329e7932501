//! The page of error codes, from the enums of errors in the crates.

use std::fmt::Write;
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, Item, ItemEnum, Lit, LitStr, Meta};

/// Errors of an area: the first part of their codes.
struct Area {
    prefix: String,
    meaning: String,
    errors: Vec<(String, String)>,
}

/// `docs/errors.md`.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn page() -> Result<String, String> {
    let mut areas = vec![];
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"), &mut areas)?;
    areas.sort_by(|a, b| a.prefix.cmp(&b.prefix));
    let mut page = "# Errors by code\n\n<!-- Written by `cargo xtask reference`. -->\n\n\
        Every error has a code that stays the same from version to version: `Coded::code` in Rust, `code` of exceptions in Python, JavaScript, Kotlin \
        and Swift. C has a `rewire_status` for groups of them. The message names the argument, the expected and the given value, and the way out.\n"
        .to_owned();
    for Area { prefix, meaning, errors } in areas {
        let _ = write!(page, "\n## `{prefix}`\n\n{meaning}\n\n| code | meaning |\n| --- | --- |\n");
        for (code, meaning) in errors {
            let _ = writeln!(page, "| `{prefix}.{code}` | {meaning} |");
        }
    }
    Ok(page)
}

fn collect(folder: &Path, areas: &mut Vec<Area>) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(|error| failed(&error))? {
        let path = entry.map_err(|error| failed(&error))?.path();
        if path.is_dir() {
            collect(&path, areas)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|error| failed(&error))?;
            if text.contains("prefix = \"") {
                let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
                areas.extend(file.items.iter().filter_map(area));
            }
        }
    }
    Ok(())
}

fn area(item: &Item) -> Option<Area> {
    let Item::Enum(ItemEnum { attrs, variants, .. }) = item else { return None };
    let prefix = attrs.iter().find_map(prefix)?;
    let is_own = |attrs: &[Attribute]| {
        attrs.iter().all(|attribute| !attribute.path().is_ident("error") || !is_transparent(attribute))
    };
    let errors = variants.iter().filter(|variant| is_own(&variant.attrs));
    let errors = errors.map(|variant| (snake(&variant.ident.to_string()), meaning(&variant.attrs))).collect();
    Some(Area { prefix: prefix.trim_end_matches('.').to_owned(), meaning: meaning(attrs), errors })
}

/// True for an error whose code is that of its cause.
fn is_transparent(attribute: &Attribute) -> bool {
    attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "transparent")
}

fn prefix(attribute: &Attribute) -> Option<String> {
    let mut prefix = None;
    if attribute.path().is_ident("strum") {
        // Other arguments have values too, which are read past.
        let _ = attribute.parse_nested_meta(|meta| {
            let value: LitStr = meta.value()?.parse()?;
            if meta.path.is_ident("prefix") {
                prefix = Some(value.value());
            }
            Ok(())
        });
    }
    prefix
}

/// The first paragraph of a documentation, as a cell of a table.
fn meaning(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let lines: Vec<String> = attributes.iter().filter_map(line).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").replace('|', "\\|")
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
