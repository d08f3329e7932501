//! Functions of a shader that read and write its buffers.

use super::Slot;
use rewire_graph::DType;
use std::fmt::Write;

/// How a buffer is accessed: an element or four neighbours at a time, four halves also as they are.
#[derive(Clone, Copy, Default)]
pub(super) struct Access {
    pub element: bool,
    pub vector: bool,
    pub halves: bool,
}

impl Access {
    /// True if four neighbours are an element of the buffer.
    pub fn is_grouped(self) -> bool {
        self.vector || self.halves
    }
}

/// What tells a binding that is read from the others, in names.
pub(super) fn suffix(slot: Slot) -> String {
    match slot {
        Slot::Operand(position) | Slot::Output(position) => position.to_string(),
        Slot::Packed(dtype) => format!("packed_{}", dtype.to_string().to_lowercase()),
        Slot::Sizes => "sizes".to_owned(),
    }
}

pub(super) fn stored_type(dtype: DType, vector: bool, f16: bool) -> &'static str {
    match (dtype, vector) {
        (DType::F32, false) => "f32",
        (DType::F32, true) => "vec4<f32>",
        (DType::F16, _) if !f16 => "vec2<u32>",
        (DType::F16, false) => "f16",
        (DType::F16, true) => "vec4<f16>",
        (DType::I64, _) => "vec2<u32>",
        (DType::I32 | DType::U32, false) => "i32",
        (DType::I32 | DType::U32, true) => "vec4<i32>",
        (DType::Bool, false) => "u32",
        (DType::Bool, true) => "vec4<u32>",
    }
}

/// A function that passes an access on to that of its window.
pub(super) fn choose_window(name: &str, (count, elements): (u32, u64), ty: &str, written: bool) -> String {
    let (argument, result, value) = match written {
        true => (format!(", value: {ty}"), String::new(), ", value"),
        false => (String::new(), format!(" -> {ty}"), ""),
    };
    let call = |window: u32| match (window, written) {
        (0, true) => format!("{name}_0(at{value});"),
        (0, false) => format!("return {name}_0(at{value});"),
        (_, true) => format!("{name}_{window}(at - {}{value});\n        return;", u64::from(window) * elements),
        (_, false) => format!("return {name}_{window}(at - {}{value});", u64::from(window) * elements),
    };
    let branches: String = (1..count)
        .rev()
        .map(|window| format!("    if (at >= {}) {{\n        {}\n    }}\n", u64::from(window) * elements, call(window)))
        .collect();
    format!("fn {name}(at: i32{argument}){result} {{\n{branches}    {}\n}}\n\n", call(0))
}

pub(super) fn load_functions(n: &str, dtype: DType, access: Access, f16: bool) -> String {
    let mut text = String::new();
    let at = if access.is_grouped() && dtype != DType::I64 { "[at >> 2u][at & 3]" } else { "[at]" };
    let (result, element, vector) = match dtype {
        DType::F32 => ("f32", format!("operand_{n}{at}"), format!("operand_{n}[at]")),
        DType::F16 if f16 => ("f32", format!("f32(operand_{n}{at})"), format!("vec4<f32>(operand_{n}[at])")),
        DType::F16 => (
            "f32",
            format!("unpack2x16float(operand_{n}[at >> 2u][(at >> 1u) & 1])[at & 1]"),
            format!("vec4<f32>(unpack2x16float(operand_{n}[at].x), unpack2x16float(operand_{n}[at].y))"),
        ),
        DType::I64 => ("vec2<u32>", format!("operand_{n}{at}"), String::new()),
        DType::I32 | DType::U32 => ("i32", format!("operand_{n}{at}"), format!("operand_{n}[at]")),
        DType::Bool => ("bool", format!("operand_{n}{at} != 0u"), format!("operand_{n}[at] != vec4<u32>(0u)")),
    };
    if access.element {
        let _ = write!(text, "fn load_{n}(at: i32) -> {result} {{\n    return {element};\n}}\n\n");
    }
    if access.vector {
        let _ = write!(text, "fn load4_{n}(at: i32) -> vec4<{result}> {{\n    return {vector};\n}}\n\n");
    }
    if access.halves {
        let _ = write!(text, "fn halves_{n}(at: i32) -> vec4<f16> {{\n    return operand_{n}[at];\n}}\n\n");
    }
    text
}

pub(super) fn store_functions(n: &str, dtype: DType, access: Access, f16: bool) -> String {
    let mut text = String::new();
    let (argument, element, vector) = match dtype {
        DType::F32 => ("f32", "value", "value"),
        DType::F16 if f16 => ("f32", "f16(value)", "vec4<f16>(value)"),
        DType::F16 => return store_packed(n, access),
        DType::I64 => ("vec2<u32>", "value", "value"),
        DType::I32 | DType::U32 => ("i32", "value", "value"),
        DType::Bool => ("bool", "u32(value)", "vec4<u32>(value)"),
    };
    if access.element {
        let _ = write!(text, "fn store_{n}(at: i32, value: {argument}) {{\n    output_{n}[at] = {element};\n}}\n\n");
    }
    if access.vector {
        let body = if access.element {
            let store = |l: usize, c: &str| format!("    store_{n}(at * 4 + {l}, value.{c});\n");
            ["x", "y", "z", "w"].iter().enumerate().map(|(l, c)| store(l, c)).collect()
        } else {
            format!("    output_{n}[at] = {vector};\n")
        };
        let _ = write!(text, "fn store4_{n}(at: i32, value: vec4<{argument}>) {{\n{body}}}\n\n");
    }
    text
}

/// Halves without `f16`: whole words where four are stored, else each half by itself.
fn store_packed(n: &str, access: Access) -> String {
    let mut text = String::new();
    if access.element {
        let _ = write!(
            text,
            "// Writes one half of a word; the other half may be written at the same time.
fn store_{n}(at: i32, value: f32) {{
    let shift = u32(at & 1) * 16u;
    let half = packed_halves(vec2<f32>(value, 0.0f));
    atomicAnd(&output_{n}[at >> 1u], 0xffff0000u >> shift);
    atomicOr(&output_{n}[at >> 1u], half << shift);
}}

"
        );
    }
    if access.vector {
        let body = if access.element {
            format!(
                "    atomicStore(&output_{n}[at * 2], packed_halves(value.xy));
    atomicStore(&output_{n}[at * 2 + 1], packed_halves(value.zw));"
            )
        } else {
            format!("    output_{n}[at] = vec2<u32>(packed_halves(value.xy), packed_halves(value.zw));")
        };
        let _ = write!(text, "fn store4_{n}(at: i32, value: vec4<f32>) {{\n{body}\n}}\n\n");
    }
    text
}
