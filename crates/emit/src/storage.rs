//! Storage types in shaders: the buffer's element types, and the functions that load and store them.

use super::access::Access;
use rewire_graph::{DType, Scalar};
use std::fmt::Write;

/// The representation of a storage type in a shader.
pub(super) enum Form {
    /// Elements of a WGSL type.
    Typed(Typed),
    /// Pairs of 16 bits in words; a group of four is a `vec2<u32>`.
    Pairs(Pairs),
    /// Signed bytes in words; a group of four is a word.
    Bytes,
    /// Integers of this many bits in words; the scale and the bias follow the elements of a row.
    Rows(u32),
}

/// Elements of a WGSL type, with conversions of an element and of a group of four to and from values.
#[derive(Default)]
pub(super) struct Typed {
    element: &'static str,
    /// The type of a group, if there are groups.
    group: Option<&'static str>,
    value: &'static str,
    load: [Around; 2],
    store: [Around; 2],
}

/// WGSL functions that convert between two floats and a word.
pub(super) struct Pairs {
    unpack: &'static str,
    pack: &'static str,
}

/// Prefix and suffix.
type Around = (&'static str, &'static str);

impl Form {
    /// The representation of a storage type, given whether the shader may use `f16`.
    pub fn of(dtype: DType, f16: bool) -> Self {
        let typed = |element, group| Typed { element, group: Some(group), value: element, ..Typed::default() };
        match dtype {
            DType::F32 => Self::Typed(typed("f32", "vec4<f32>")),
            DType::F16 if f16 => Self::Typed(Typed {
                value: "f32",
                load: [("f32(", ")"), ("vec4<f32>(", ")")],
                store: [("f16(", ")"), ("vec4<f16>(", ")")],
                ..typed("f16", "vec4<f16>")
            }),
            DType::F16 => Self::Pairs(Pairs { unpack: "unpack2x16float", pack: "packed_f16" }),
            DType::BF16 => Self::Pairs(Pairs { unpack: "unpack_bfloats", pack: "packed_bfloats" }),
            DType::I8 => Self::Bytes,
            DType::Rows8 => Self::Rows(8),
            DType::Rows4 => Self::Rows(4),
            DType::Rows2 => Self::Rows(2),
            DType::I64 => Self::Typed(Typed { group: None, ..typed("vec2<u32>", "") }),
            DType::I32 | DType::U32 => Self::Typed(typed("i32", "vec4<i32>")),
            DType::Bool => Self::Typed(Typed {
                value: "bool",
                load: [("", " != 0u"), ("", " != vec4<u32>(0u)")],
                store: [("u32(", ")"), ("vec4<u32>(", ")")],
                ..typed("u32", "vec4<u32>")
            }),
        }
    }

    /// The element type of a buffer that is read.
    pub fn read(&self, access: Access) -> &'static str {
        match self {
            Self::Typed(Typed { group: Some(group), .. }) if access.is_grouped() => group,
            Self::Typed(typed) => typed.element,
            Self::Pairs(_) => "vec2<u32>",
            // Cooperative matrices in WGSL have floats: see `spirv`.
            Self::Bytes if access.tensor => "vec4<f16>",
            Self::Bytes | Self::Rows(_) => "u32",
        }
    }

    /// The element type of a buffer that is written.
    pub fn written(&self, access: Access) -> &'static str {
        match self {
            Self::Typed(Typed { group: Some(group), .. }) if !access.element => group,
            Self::Typed(typed) => typed.element,
            Self::Pairs(_) | Self::Bytes if access.element => "atomic<u32>",
            Self::Pairs(_) => "vec2<u32>",
            Self::Bytes | Self::Rows(_) => "u32",
        }
    }

    /// The functions that load from `operand_N`.
    pub fn loads(&self, n: &str, access: Access) -> String {
        let (value, element, group) = match self {
            Self::Bytes => (
                "f32",
                format!("f32(unpack4xI8(operand_{n}[at >> 2u])[at & 3])"),
                format!("vec4<f32>(unpack4xI8(operand_{n}[at]))"),
            ),
            Self::Rows(_) => return format!("fn word_{n}(at: i32) -> u32 {{\n    return operand_{n}[at];\n}}\n\n"),
            Self::Typed(typed) => {
                let at = if access.is_grouped() && typed.group.is_some() { "[at >> 2u][at & 3]" } else { "[at]" };
                let [one, four] = typed.load;
                let element = format!("{}operand_{n}{at}{}", one.0, one.1);
                (typed.value, element, format!("{}operand_{n}[at]{}", four.0, four.1))
            }
            Self::Pairs(Pairs { unpack, .. }) => (
                "f32",
                format!("{unpack}(operand_{n}[at >> 2u][(at >> 1u) & 1])[at & 1]"),
                format!("vec4<f32>({unpack}(operand_{n}[at].x), {unpack}(operand_{n}[at].y))"),
            ),
        };
        let mut text = String::new();
        if access.element {
            let _ = write!(text, "fn load_{n}(at: i32) -> {value} {{\n    return {element};\n}}\n\n");
        }
        if access.vector {
            let _ = write!(text, "fn load4_{n}(at: i32) -> vec4<{value}> {{\n    return {group};\n}}\n\n");
        }
        if access.stored {
            text += &self.stored(n, "at: i32", &format!("operand_{n}[at]"));
        }
        if access.words && matches!(self, Self::Bytes) {
            let _ = write!(text, "fn word_{n}(at: i32) -> u32 {{\n    return operand_{n}[at];\n}}\n\n");
        }
        if access.f16 {
            let _ = write!(text, "fn f16_{n}(at: i32) -> vec4<f16> {{\n    return operand_{n}[at];\n}}\n\n");
        }
        text
    }

    /// The type of four unconverted elements of a row, if they differ from their values.
    pub fn four(&self) -> Option<&'static str> {
        match self {
            Self::Typed(Typed { element: "f16", .. }) => Some("vec4<f16>"),
            Self::Typed(_) | Self::Bytes => None,
            Self::Pairs(_) | Self::Rows(..8) => Some("vec2<u32>"),
            Self::Rows(_) => Some("vec3<u32>"),
        }
    }

    /// The functions that load four unconverted elements, and convert them, given the number of the four in its row.
    fn stored(&self, n: &str, parameters: &str, four: &str) -> String {
        let Some(ty) = self.four() else { return String::new() };
        let values = match self {
            Self::Typed(_) | Self::Bytes => "vec4<f32>(four)".to_owned(),
            Self::Pairs(Pairs { unpack, .. }) => format!("vec4<f32>({unpack}(four.x), {unpack}(four.y))"),
            Self::Rows(bits) => {
                let [scale, bias] = match bits {
                    8 => ["bitcast<f32>(four.y)", "bitcast<f32>(four.z)"],
                    _ => ["unpack2x16float(four.y).x", "unpack2x16float(four.y).y"],
                };
                // A row begins with a word, so that the position in its row is that in a word.
                let more = word_of_four(32 / bits, *bits).1.map(|more| format!(" + {more}"));
                let integers = four_integers("four.x", *bits, &more.unwrap_or_default());
                format!("fma(vec4<f32>({integers}), vec4<f32>({scale}), vec4<f32>({bias}))")
            }
        };
        let stored = format!("fn stored_{n}({parameters}) -> {ty} {{\n    return {four};\n}}\n\n");
        stored + &format!("fn values_{n}(four: {ty}, at: i32) -> vec4<f32> {{\n    return {values};\n}}\n\n")
    }

    /// The functions that store to `output_N`.
    pub fn stores(&self, n: &str, access: Access) -> String {
        match self {
            Self::Typed(typed) => typed.stores(n, access),
            Self::Pairs(pairs) => pairs.stores(n, access),
            Self::Bytes => stores_of_bytes(n, access),
            Self::Rows(_) => String::new(),
        }
    }

    /// The functions that load elements of a row, whose scale and bias start at the word `row`, through other load
    /// functions.
    pub fn loads_of_words(&self, n: &str, access: Access) -> String {
        let Self::Rows(bits) = *self else { return String::new() };
        let (most, of_word) = ((1 << bits) - 1, 32 / bits);
        let [scale, bias] = match bits {
            8 => ["row", "row + 1"].map(|at| format!("bitcast<f32>(word_{n}({at}))")),
            _ => ["x", "y"].map(|part| format!("unpack2x16float(word_{n}(row)).{part}")),
        };
        let load = |name: &str, value: &str, integers: String| {
            format!(
                "fn {name}_{n}(at: i32, row: i32) -> {value} {{\n    return fma({value}({integers}), {value}({scale}), {value}({bias}));\n}}\n\n"
            )
        };
        let mut text = String::new();
        if access.element {
            let word = format!("word_{n}(at >> {}u)", of_word.trailing_zeros());
            let shift = format!("(u32(at & {}) * {bits}u)", of_word - 1);
            text += &load("load", "f32", format!("({word} >> {shift}) & {most}u"));
        }
        if access.vector {
            let (at, more) = word_of_four(of_word, bits);
            let more = more.map(|more| format!(" + {more}")).unwrap_or_default();
            let integers = four_integers(&format!("word_{n}({at})"), bits, &more);
            text += &load("load4", "vec4<f32>", integers);
        }
        if access.stored {
            let (at, _) = word_of_four(of_word, bits);
            let four = match bits {
                8 => format!("vec3<u32>(word_{n}({at}), word_{n}(row), word_{n}(row + 1))"),
                _ => format!("vec2<u32>(word_{n}({at}), word_{n}(row))"),
            };
            text += &self.stored(n, "at: i32, row: i32", &four);
        }
        text
    }
}

/// The index of the word that holds a group of four integers, and the group's position in it, in bits.
fn word_of_four(of_word: u32, bits: u32) -> (String, Option<String>) {
    match of_word / 4 {
        1 => ("at".to_owned(), None),
        groups => {
            (format!("at >> {}u", groups.trailing_zeros()), Some(format!("u32(at & {}) * {}u", groups - 1, 4 * bits)))
        }
    }
}

/// Four integers of a word, the first at a position in bits.
fn four_integers(word: &str, bits: u32, more: &str) -> String {
    let shifts = format!("vec4<u32>(0u, {}u, {}u, {}u)", bits, 2 * bits, 3 * bits);
    let shifts = if more.is_empty() { shifts } else { format!("({shifts}{more})") };
    format!("(vec4<u32>({word}) >> {shifts}) & vec4<u32>({}u)", (1 << bits) - 1)
}

/// True if four neighbouring elements of a storage type are a vector.
pub(super) fn has_groups(dtype: DType) -> bool {
    dtype.scalar() != Scalar::I64
}

impl Typed {
    fn stores(&self, n: &str, access: Access) -> String {
        let (value, [one, four]) = (self.value, self.store);
        let mut text = String::new();
        if access.element {
            let element = format!("{}value{}", one.0, one.1);
            let _ = write!(text, "fn store_{n}(at: i32, value: {value}) {{\n    output_{n}[at] = {element};\n}}\n\n");
        }
        if access.vector {
            let body = if access.element {
                let store = |l: usize, c: &str| format!("    store_{n}(at * 4 + {l}, value.{c});\n");
                ["x", "y", "z", "w"].iter().enumerate().map(|(l, c)| store(l, c)).collect()
            } else {
                format!("    output_{n}[at] = {}value{};\n", four.0, four.1)
            };
            let _ = write!(text, "fn store4_{n}(at: i32, value: vec4<{value}>) {{\n{body}}}\n\n");
        }
        text
    }
}

/// Stores a word for four elements, otherwise each element separately.
fn stores_of_bytes(n: &str, access: Access) -> String {
    let mut text = String::new();
    if access.element {
        let _ = write!(
            text,
            "// Writes one byte of a word; the others may be written at the same time.
fn store_{n}(at: i32, value: f32) {{
    let shift = u32(at & 3) * 8u;
    let byte = pack4xI8(vec4<i32>(i32(clamp(round(value), -128.0f, 127.0f)), 0, 0, 0));
    atomicAnd(&output_{n}[at >> 2u], ~(0xffu << shift));
    atomicOr(&output_{n}[at >> 2u], byte << shift);
}}

"
        );
    }
    if access.vector {
        let word = "pack4xI8(vec4<i32>(clamp(round(value), vec4<f32>(-128.0f), vec4<f32>(127.0f))))";
        let body = match access.element {
            true => format!("    atomicStore(&output_{n}[at], {word});"),
            false => format!("    output_{n}[at] = {word};"),
        };
        let _ = write!(text, "fn store4_{n}(at: i32, value: vec4<f32>) {{\n{body}\n}}\n\n");
    }
    text
}

impl Pairs {
    /// Stores whole words for four elements, otherwise each element separately.
    fn stores(&self, n: &str, access: Access) -> String {
        let Self { pack, .. } = self;
        let mut text = String::new();
        if access.element {
            let _ = write!(
                text,
                "// Writes one half of a word; the other half may be written at the same time.
fn store_{n}(at: i32, value: f32) {{
    let shift = u32(at & 1) * 16u;
    let half = {pack}(vec2<f32>(value, 0.0f));
    atomicAnd(&output_{n}[at >> 1u], 0xffff0000u >> shift);
    atomicOr(&output_{n}[at >> 1u], half << shift);
}}

"
            );
        }
        if access.vector {
            let body = if access.element {
                format!(
                    "    atomicStore(&output_{n}[at * 2], {pack}(value.xy));
    atomicStore(&output_{n}[at * 2 + 1], {pack}(value.zw));"
                )
            } else {
                format!("    output_{n}[at] = vec2<u32>({pack}(value.xy), {pack}(value.zw));")
            };
            let _ = write!(text, "fn store4_{n}(at: i32, value: vec4<f32>) {{\n{body}\n}}\n\n");
        }
        text
    }
}
