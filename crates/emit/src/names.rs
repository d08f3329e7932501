//! Renames user declarations, so that they do not conflict with other declarations of a shader.

/// The name of a user's declaration in the shader; `number` distinguishes the declarations of several functions.
pub(super) fn renamed(name: &str, number: usize) -> String {
    format!("custom{number}_{name}")
}

/// Renames the declarations outside functions in WGSL, and all their uses.
///
/// Members of structures, names after a dot, and attributes stay unchanged.
pub(super) fn rename(wgsl: &str, number: usize) -> String {
    let tokens = tokens(wgsl);
    let names = declared(&tokens);
    let mut result = String::with_capacity(wgsl.len());
    let (mut before, mut declares, mut within) = ("", "", vec![]);
    for (position, &(kind, text)) in tokens.iter().enumerate() {
        match text {
            "{" => within.push(declares),
            "}" => drop(within.pop()),
            _ => {}
        }
        match text {
            "struct" => declares = text,
            "{" | "}" | ";" => declares = "",
            _ => {}
        }
        let is_member = || within.last() == Some(&"struct") && after(&tokens, position) == ":";
        let is_name = kind == Kind::Word && !matches!(before, "." | "@") && names.contains(&text);
        match is_name && !is_member() {
            true => result += &renamed(text, number),
            false => result += text,
        }
        if kind != Kind::Blank {
            before = text;
        }
    }
    result
}

/// The names that are declared outside of braces.
fn declared<'a>(tokens: &[(Kind, &'a str)]) -> Vec<&'a str> {
    let (mut names, mut depth, mut is_declaring, mut is_space) = (vec![], 0usize, false, false);
    for &(kind, text) in tokens.iter().filter(|(kind, _)| *kind != Kind::Blank) {
        match text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            // The address space of a variable.
            "<" | ">" if is_declaring => is_space = text == "<",
            _ if depth > 0 || is_space => {}
            "fn" | "struct" | "alias" | "const" | "var" | "override" => is_declaring = true,
            _ if is_declaring && kind == Kind::Word => {
                names.push(text);
                is_declaring = false;
            }
            _ => {}
        }
    }
    names
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A name, a keyword or a number.
    Word,
    Mark,
    /// Whitespace and comments.
    Blank,
}

/// The first token after one that is not blank.
fn after<'a>(tokens: &[(Kind, &'a str)], position: usize) -> &'a str {
    let rest = tokens.get(position + 1..).unwrap_or_default();
    rest.iter().find(|(kind, _)| *kind != Kind::Blank).map_or("", |(_, text)| text)
}

fn tokens(text: &str) -> Vec<(Kind, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let until = |end: Option<usize>| end.unwrap_or(rest.len());
        let (kind, length) = if rest.starts_with("//") {
            (Kind::Blank, until(rest.find('\n')))
        } else if rest.starts_with("/*") {
            (Kind::Blank, comment(rest))
        } else if first.is_whitespace() {
            (Kind::Blank, until(rest.find(|c: char| !c.is_whitespace())))
        } else if is_word(first) {
            (Kind::Word, until(rest.find(|c| !is_word(c))))
        } else {
            (Kind::Mark, first.len_utf8())
        };
        let (token, others) = rest.split_at(length);
        tokens.push((kind, token));
        rest = others;
    }
    tokens
}

/// The length of a comment in `/*` and `*/`, which may be nested.
fn comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let step = if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_change_and_others_do_not() {
        let text = "fn f(v: vec2<f32>) -> f32 { return v.x + x(1.0f, xf); }\nfn x(a: f32, b: f32) -> f32 { return a; }";
        let expected = "fn custom3_f(v: vec2<f32>) -> f32 { return v.x + custom3_x(1.0f, xf); }\nfn custom3_x(a: f32, b: f32) -> f32 { return a; }";
        assert_eq!(rename(text, 3), expected);
    }

    #[test]
    fn every_declaration_is_found() {
        let text = "alias T = f32; const SIZE : u32 = 4u; /* fn no() {} /* fn */ */ // fn no()
var<workgroup> tile: array<T, SIZE>; var<private> once: T;
struct Pair { @align(16) a: T, tile: f32 }
fn pair(p: Pair) -> T { var once = p.tile; const local = 1; return once + p.a; }";
        let expected = "alias custom0_T = f32; const custom0_SIZE : u32 = 4u; /* fn no() {} /* fn */ */ // fn no()
var<workgroup> custom0_tile: array<custom0_T, custom0_SIZE>; var<private> custom0_once: custom0_T;
struct custom0_Pair { @align(16) a: custom0_T, tile: f32 }
fn custom0_pair(p: custom0_Pair) -> custom0_T { var custom0_once = p.tile; const local = 1; return custom0_once + p.a; }";
        assert_eq!(rename(text, 0), expected);
    }

    #[test]
    fn unfinished_text_stays() {
        for text in ["/* open", "fn", "struct", "}", "fn {", "var<", "/"] {
            assert_eq!(rename(text, 0), text);
        }
    }
}
