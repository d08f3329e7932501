//! The page of error codes, from the enums of errors in the crates.

use crate::reference::unlinked;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, ExprMatch, ImplItem, Item, ItemEnum, Lit, LitStr, Meta, Pat, Stmt};

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
        Every error has a stable code: `Coded::code` in Rust, `code` of exceptions in Python, JavaScript, Kotlin and Swift. C functions\n\
        return a `rewire_status`, which groups them. The message names the argument, the expected and the given value.\n\
        [Troubleshooting](troubleshooting.md) has causes and solutions of the frequent ones.\n"
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
                areas.extend(file.items.iter().filter_map(|item| area(item, &file.items)));
            }
        }
    }
    Ok(())
}

fn area(item: &Item, file: &[Item]) -> Option<Area> {
    let Item::Enum(ItemEnum { attrs, variants, ident, .. }) = item else { return None };
    let prefix = attrs.iter().find_map(prefix)?;
    let delegated: BTreeSet<String> = file.iter().flat_map(|item| delegated(item, &ident.to_string())).collect();
    let errors = variants.iter().filter(|variant| !delegated.contains(&variant.ident.to_string()));
    let errors = errors.map(|variant| (snake(&variant.ident.to_string()), meaning(&variant.attrs))).collect();
    Some(Area { prefix: prefix.trim_end_matches('.').to_owned(), meaning: meaning(attrs), errors })
}

/// The variants whose code is that of their cause: the arms of `Coded::code` that call `code` again.
fn delegated(item: &Item, name: &str) -> Vec<String> {
    let Item::Impl(block) = item else { return vec![] };
    let is_coded = block.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Coded"));
    let is_own = matches!(&*block.self_ty, syn::Type::Path(path) if path.path.is_ident(name));
    let functions = block.items.iter().filter(|_| is_coded && is_own);
    let bodies =
        functions.filter_map(|item| if let ImplItem::Fn(function) = item { Some(&function.block) } else { None });
    let matches = bodies.flat_map(|body| &body.stmts).filter_map(|statement| match statement {
        Stmt::Expr(Expr::Match(ExprMatch { arms, .. }), _) => Some(arms),
        _ => None,
    });
    let arms = matches.flatten().filter(|arm| matches!(&*arm.body, Expr::MethodCall(call) if call.method == "code"));
    arms.flat_map(|arm| variants(&arm.pat)).collect()
}

/// The variants of a pattern.
fn variants(pattern: &Pat) -> Vec<String> {
    let last = |path: &syn::Path| path.segments.last().map(|segment| segment.ident.to_string()).into_iter().collect();
    match pattern {
        Pat::TupleStruct(pattern) => last(&pattern.path),
        Pat::Struct(pattern) => last(&pattern.path),
        Pat::Or(pattern) => pattern.cases.iter().flat_map(variants).collect(),
        _ => vec![],
    }
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
    unlinked(&lines.join(" ")).replace('|', "\\|")
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
