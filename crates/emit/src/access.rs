//! Accesses to the buffers of a shader.

use rewire_graph_rewrite::device::BindingSource;

/// The ways in which a shader accesses a buffer: single elements, vectors of four, vectors of four unconverted f16
/// values or unconverted elements of any type, words of rows, tiles of a tensor.
#[derive(Clone, Copy, Default)]
pub(super) struct Access {
    pub element: bool,
    pub vector: bool,
    pub f16: bool,
    pub stored: bool,
    pub words: bool,
    /// As tiles of a tensor.
    pub tensor: bool,
}

impl Access {
    /// True if an element of the buffer is a group of four neighbours.
    pub fn is_grouped(self) -> bool {
        self.vector || self.f16 || self.stored || self.tensor
    }
}

/// A suffix that makes the names of a binding's functions unique.
pub(super) fn suffix(slot: BindingSource) -> String {
    match slot {
        BindingSource::Operand(position)
        | BindingSource::Dequantized { operand: position, .. }
        | BindingSource::Output(position) => position.to_string(),
        BindingSource::Pooled(dtype) => format!("pooled_{}", dtype.to_string().to_lowercase()),
        BindingSource::Sizes => "sizes".to_owned(),
    }
}

/// A function that forwards an access to the function of its chunk.
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
