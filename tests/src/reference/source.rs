use std::collections::BTreeMap;
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, Fields, ImplItem, Item, Lit, Meta};

/// Excluded from the reference: custom operators, which the guide to rewriting covers, and models of imported pipelines.
const SKIPPED: [&str; 2] = ["op/custom.rs", "hstu/src/pipeline"];

/// The documentation of types and functions in the source, by name.
#[derive(Clone, Debug, Default)]
pub struct Source {
    docs: BTreeMap<String, String>,
    fields: BTreeMap<String, Vec<Field>>,
    /// Bodies of functions without arguments, for `#[serde(default = "..")]`.
    bodies: BTreeMap<String, String>,
    constants: BTreeMap<String, String>,
    operators: Vec<String>,
    modules: Vec<String>,
    options: Vec<String>,
    exports: Vec<String>,
}

/// An attribute of an operator or a key of a configuration.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name, as it is in a configuration.
    pub name: String,
    /// The type.
    pub ty: String,
    /// The default, if it is optional.
    pub default: Option<String>,
    /// Its documentation.
    pub docs: String,
}

/// The enums that a file's macros generate from lists of documented names.
fn listed(text: &str) -> Vec<Item> {
    let enumeration = |rules: &str| {
        let (name, definition) = rules.split_once(" {")?;
        let (before, after) = definition.split_once("pub enum ")?;
        let own = |line: &&str| ["///", "#["].iter().any(|start| line.trim_start().starts_with(start));
        let mut attributes: Vec<&str> = before.trim_end().lines().rev().take_while(own).collect();
        attributes.reverse();
        let list = text.split_once(&format!("\n{name}! {{\n"))?.1.split_once("\n}\n")?.0;
        let entry = |line: &&str| line.trim_start().starts_with("///") || line.ends_with(',');
        let entries: Vec<&str> = list.lines().filter(entry).collect();
        let ident = after.split_whitespace().next()?;
        syn::parse_str(&format!("{}\npub enum {ident} {{\n{}\n}}", attributes.join("\n"), entries.join("\n"))).ok()
    };
    text.split("\nmacro_rules! ").skip(1).filter_map(enumeration).collect()
}

impl Source {
    /// Reads the crates `graph` and `hstu`.
    pub fn read() -> Result<Self, String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut source = Self::default();
        for folder in ["graph/src/op", "graph/src/pointwise", "graph/src/trace", "hstu/src"] {
            source.folder(&crates.join(folder))?;
        }
        source.resolve();
        Ok(source)
    }

    fn folder(&mut self, folder: &Path) -> Result<(), String> {
        let mut entries: Vec<_> = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        entries.sort_by_key(std::fs::DirEntry::path);
        for path in entries
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| !SKIPPED.iter().any(|skipped| path.ends_with(skipped)))
        {
            if path.is_dir() {
                self.folder(&path)?;
            } else {
                let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
                let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
                file.items.iter().chain(&listed(&text)).for_each(|item| self.item(item));
            }
        }
        Ok(())
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Struct(item) => {
                self.docs.insert(item.ident.to_string(), docs(&item.attrs));
                let container = serde_default(&item.attrs).map(|_| item.ident.to_string());
                let fields = fields(&item.fields, container.as_deref());
                self.add_options(&item.ident.to_string(), &item.attrs, fields);
            }
            Item::Enum(item) => {
                self.docs.insert(item.ident.to_string(), docs(&item.attrs));
                let snake = text_of_all(&item.attrs).contains("snake_case");
                let variants = item.variants.iter().map(|variant| Field {
                    name: renamed(&variant.attrs).unwrap_or_else(|| name(&variant.ident.to_string(), snake)),
                    ty: variant.fields.iter().map(|field| text(&field.ty)).collect::<Vec<_>>().join(", "),
                    default: None,
                    docs: docs(&variant.attrs),
                });
                let variants: Vec<Field> = variants.collect();
                for (variant, field) in item.variants.iter().zip(&variants) {
                    if variant.attrs.iter().any(|attribute| attribute.path().is_ident("default")) {
                        self.constants.insert(format!("{}::default", item.ident), field.name.clone());
                    }
                }
                self.add_options(&item.ident.to_string(), &item.attrs, variants);
            }
            Item::Fn(item) => {
                self.docs.insert(item.sig.ident.to_string(), docs(&item.attrs));
                if item.sig.inputs.is_empty() {
                    let body: Vec<String> = item.block.stmts.iter().map(text).collect();
                    self.bodies.insert(item.sig.ident.to_string(), body.join(" "));
                }
            }
            Item::Const(item) => {
                self.constants.insert(item.ident.to_string(), text(&item.expr));
            }
            Item::Impl(item) => self.implementation(item),
            Item::Use(item) if matches!(item.vis, syn::Visibility::Public(_)) => self.exports.push(text(&item.tree)),
            _ => {}
        }
    }

    fn add_options(&mut self, item: &str, attributes: &[Attribute], fields: Vec<Field>) {
        if text_of_all(attributes).contains("Deserialize") {
            self.options.push(item.to_owned());
        }
        self.fields.insert(item.to_owned(), fields);
    }

    fn implementation(&mut self, item: &syn::ItemImpl) {
        let ty = text(&item.self_ty);
        let of = |name: &str| item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident(name));
        if of("Op") {
            self.operators.push(ty.clone());
        }
        for function in item.items.iter().filter_map(|item| match item {
            ImplItem::Fn(function) => Some(function),
            _ => None,
        }) {
            let public = matches!(function.vis, syn::Visibility::Public(_));
            if let Some(syn::Stmt::Expr(Expr::Struct(value), None)) = function.block.stmts.last()
                && of("Default")
            {
                for field in &value.fields {
                    self.constants.insert(format!("{ty}::{}", text(&field.member)), text(&field.expr));
                }
            }
            if public && function.sig.ident == "forward" {
                self.modules.push(ty.clone());
            }
            if public && ty == "Tensor" {
                self.docs.insert(format!("Tensor::{}", function.sig.ident), docs(&function.attrs));
            }
        }
    }

    /// Replaces functions of defaults by their values.
    fn resolve(&mut self) {
        for field in self.fields.values_mut().flatten() {
            let Some(default) = &field.default else { continue };
            let body = default.strip_suffix("()").and_then(|function| self.bodies.get(function)).unwrap_or(default);
            let value = self.constants.get(body).unwrap_or(body);
            let plain = value.strip_suffix(".to_owned()").unwrap_or(value);
            field.default = Some(plain.split("::").last().unwrap_or(plain).to_owned());
        }
    }

    /// The documentation of a type or function.
    pub fn docs(&self, item: &str) -> Result<&str, String> {
        self.docs.get(item).map(String::as_str).ok_or_else(|| format!("the source has no `{item}`"))
    }

    /// The public fields of a type; nothing for functions.
    pub fn fields(&self, item: &str) -> Result<Vec<Field>, String> {
        Ok(self.fields.get(item).cloned().unwrap_or_default())
    }

    /// Types that are parsed from configurations.
    pub fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = self
            .options
            .iter()
            .filter(|item| self.fields.get(*item).is_some_and(|fields| !fields.is_empty()))
            .cloned()
            .collect();
        options.sort();
        options.dedup();
        options
    }

    /// Types that are operators of the graph.
    pub fn operators(&self) -> &[String] {
        &self.operators
    }

    /// Types with a public `forward`.
    pub fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Functions that are exported from modules.
    pub fn functions(&self) -> Vec<String> {
        let exported: Vec<&str> = self.exports.iter().flat_map(|tree| exported(tree)).collect();
        self.docs
            .keys()
            .filter(|name| exported.contains(&name.as_str()) && name.starts_with(char::is_lowercase))
            .cloned()
            .collect()
    }
}

/// The names that a use tree exports, without the modules on the way to them.
fn exported(tree: &str) -> Vec<&str> {
    let parts: Vec<&str> = tree.split("::").collect();
    let last = parts.len().saturating_sub(1);
    let names = parts.iter().enumerate().flat_map(|(position, part)| {
        let mut words: Vec<&str> =
            part.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        if position < last {
            words.pop();
        }
        words
    });
    names.collect()
}

/// Public fields. In an optional `container`, the defaults of fields are those of the container.
fn fields(fields: &Fields, container: Option<&str>) -> Vec<Field> {
    let public = fields.iter().filter(|field| matches!(field.vis, syn::Visibility::Public(_)));
    public
        .filter_map(|field| {
            let (name, ty) = (field.ident.as_ref()?.to_string(), text(&field.ty));
            let own = serde_default(&field.attrs);
            let own = own.map(|function| if function.is_empty() { of_type(&ty) } else { format!("{function}()") });
            let default = own.or_else(|| container.map(|container| format!("{container}::{name}")));
            Some(Field { name, ty, default, docs: docs(&field.attrs) })
        })
        .collect()
}

/// The default of a type.
fn of_type(ty: &str) -> String {
    match ty {
        "usize" | "i64" => "0".to_owned(),
        "f32" | "f64" => "0.0".to_owned(),
        "bool" => "false".to_owned(),
        "String" => "\"\"".to_owned(),
        _ if ty.starts_with("Vec") => "[]".to_owned(),
        _ if ty.starts_with("Option") => "null".to_owned(),
        _ => format!("{ty}::default"),
    }
}

/// The function of `#[serde(default = "function")]`; empty for `#[serde(default)]`.
fn serde_default(attributes: &[Attribute]) -> Option<String> {
    let serde = attributes.iter().find(|attribute| attribute.path().is_ident("serde"))?;
    let text = text(serde);
    let after = text.split_once("default")?.1.trim_start();
    Some(after.strip_prefix('=').and_then(|rest| rest.split('"').nth(1)).unwrap_or_default().to_owned())
}

fn renamed(attributes: &[Attribute]) -> Option<String> {
    let serde = attributes.iter().find(|attribute| attribute.path().is_ident("serde"))?;
    text(serde)
        .split_once("rename =")
        .or(text(serde).split_once("rename="))
        .and_then(|(_, rest)| rest.split('"').nth(1).map(str::to_owned))
}

fn name(variant: &str, snake: bool) -> String {
    if !snake {
        return variant.to_owned();
    }
    let mut name = String::new();
    for (n, c) in variant.chars().enumerate() {
        if c.is_uppercase() && n > 0 {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

/// Documentation on one line: paragraphs before examples and error sections.
pub(super) fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let is_prose = |line: &String| !line.starts_with("```") && !line.starts_with('#');
    let lines: Vec<String> = lines.take_while(is_prose).filter(|line| !line.is_empty()).collect();
    unlinked(&lines.join(" ")).replace('|', "\\|")
}

/// A text without links to items of Rust, which only rustdoc follows.
pub(crate) fn unlinked(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((label, tail)) = after.split_once(']') else {
            plain.push('[');
            rest = after;
            continue;
        };
        let target = tail.strip_prefix('(').and_then(|tail| tail.split_once(')'));
        let is_item = match target {
            Some((target, _)) => !target.contains('/') && !target.contains('.') && !target.contains(' '),
            None => label.len() > 2 && label.starts_with('`') && label.ends_with('`'),
        };
        if is_item {
            plain.push_str(label);
            rest = target.map_or(tail, |(_, tail)| tail);
        } else {
            plain.push('[');
            rest = after;
        }
    }
    plain + rest
}

fn text_of_all(attributes: &[Attribute]) -> String {
    attributes.iter().map(text).collect()
}

/// Tokens in the usual spelling.
pub(super) fn text(tokens: &impl quote::ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    [
        (" < ", "<"),
        (" ;", ";"),
        (" > ", ">"),
        (" >", ">"),
        ("< ", "<"),
        (" :: ", "::"),
        (" . ", "."),
        (" : ", ": "),
        (" ,", ","),
        (" ()", "()"),
        ("& ", "&"),
    ]
    .iter()
    .fold(text, |text, (from, to)| text.replace(from, to))
}
