mod stored;

use super::EmitError;
use super::access::{Access, choose_window, suffix};
use super::call;
use super::function::type_of;
use super::names::renamed;
use super::required::Required;
use super::storage::Form;
use super::store::has_vector_load;
use rewire_graph::pointwise::{Expr, ExprId, Function};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::device::{BindingChunks, BindingSource as Source, Param, Target};
use rewire_graph_rewrite::plan::{Body, MemorySpace, Operand};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// Declarations before the body of a shader.
pub(super) struct Declarations {
    /// Bindings with their load and store functions, and user-defined functions.
    pub text: String,
    /// True if the functions may run without checks.
    pub unchecked: bool,
    /// True if the shader uses f16, in its bindings or as values.
    pub f16: bool,
}

/// The objects that a shader under construction refers to: parameters, bindings, names.
pub(super) struct Module<'a> {
    /// The expressions.
    pub body: &'a Body,
    /// The capabilities that the shader may use.
    pub target: &'a Target,
    windows: &'a BindingChunks,
    params: Vec<Param>,
    sizes: bool,
    reads: BTreeMap<Source, Access>,
    writes: BTreeMap<u16, (DType, Access)>,
    searches: BTreeSet<u16>,
    calls: Vec<Arc<Function>>,
    names: usize,
    required: Required,
    once: BTreeMap<ExprId, String>,
    f16: bool,
}

impl<'a> Module<'a> {
    pub fn new(body: &'a Body, target: &'a Target, windows: &'a BindingChunks) -> Self {
        Self {
            body,
            target,
            windows,
            params: vec![],
            sizes: false,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            searches: BTreeSet::new(),
            calls: vec![],
            names: 0,
            required: Required::of(&body.dag),
            once: BTreeMap::new(),
            f16: false,
        }
    }

    /// The expressions that `roots` always evaluate, in ascending order.
    pub fn required(&self, roots: &[ExprId]) -> BTreeSet<ExprId> {
        self.required.by(roots)
    }

    /// A variable for an expression that the entry point computes once, before it calls any device function.
    pub fn compute_once(&mut self, id: ExprId) -> String {
        self.once.entry(id).or_insert_with(|| format!("once_{}", id.0)).clone()
    }

    /// The variable of an expression that the entry point has computed.
    pub fn computed(&self, id: ExprId) -> Option<&str> {
        self.once.get(&id).map(String::as_str)
    }

    /// A unique name.
    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("e{}", self.names)
    }

    /// An `i32` word of the parameter block.
    pub fn param(&mut self, param: Param) -> String {
        let position = self.params.iter().position(|p| *p == param).unwrap_or_else(|| {
            self.params.push(param);
            self.params.len() - 1
        });
        format!("params[{}].{}", position / 4, ["x", "y", "z", "w"][position % 4])
    }

    /// An extent, an `i32`.
    pub fn dim(&mut self, dim: &Dim) -> String {
        match dim.as_const() {
            Some(n) => n.to_string(),
            None => self.param(Param::Dim(dim.clone())),
        }
    }

    /// A float zero that compilers cannot fold: their simplifications with a literal zero are wrong for NaN, infinities
    /// and negative zeros.
    pub fn zero(&mut self) -> String {
        format!("bitcast<f32>({})", self.param(Param::Dim(0.into())))
    }

    /// The product of extents.
    pub fn product(&mut self, dims: &[Dim]) -> String {
        let constant = dims.iter().filter_map(Dim::as_const).fold(1, usize::saturating_mul);
        let mut factors: Vec<String> = dims.iter().filter(|d| d.as_const().is_none()).map(|d| self.dim(d)).collect();
        if constant != 1 || factors.is_empty() {
            factors.push(constant.to_string());
        }
        factors.join(" * ")
    }

    /// An operand of the body.
    pub fn operand(&self, position: u16) -> Result<&'a Operand, EmitError> {
        let operands = &self.body.operands;
        operands.get(position as usize).ok_or(EmitError::Missing {
            what: "operand",
            index: position as usize,
            count: operands.len(),
        })
    }

    /// The word of `sizes` at `index` relative to `base`.
    pub fn size_word(&mut self, base: Param, index: &str) -> String {
        self.sizes = true;
        let base = self.param(base);
        if index == "0" { format!("sizes[{base}]") } else { format!("sizes[{base} + {index}]") }
    }

    /// The offset of an element in its buffer, in elements or in groups of four.
    pub fn address(&mut self, (dtype, shape): (DType, &[Dim]), index: &[String], group: bool) -> String {
        let Some(last) = index.last() else { return "0".to_owned() };
        let text = self.row(shape, index);
        let last = if group { format!("({last} >> 2u)") } else { last.clone() };
        if text.is_empty() || text == "0" {
            return last;
        }
        format!("{text} * {} + {last}", self.pitch(dtype, shape, group))
    }

    /// The index of the first word of a row's parameters (scale and bias), which follow its elements.
    fn parameters_of_row(&mut self, (dtype, shape): (DType, &[Dim]), index: &[String]) -> String {
        let format = dtype.format();
        let (group, parameters) = (format.group(), format.parameters / 32);
        let width = shape.last().cloned().unwrap_or_else(|| 1.into());
        let words = match width.as_const() {
            Some(width) => width.div_ceil(group).to_string(),
            None => format!("(({} + {}) >> {}u)", self.dim(&width), group - 1, group.trailing_zeros()),
        };
        let row = self.row(shape, index);
        if row.is_empty() || row == "0" { words } else { format!("{row} * ({words} + {parameters}) + {words}") }
    }

    /// The number of an element's row; empty if there is only one row.
    fn row(&mut self, shape: &[Dim], index: &[String]) -> String {
        let outer = index.split_last().map_or(&[][..], |(_, outer)| outer);
        let mut text = String::new();
        for (index, dim) in outer.iter().zip(shape) {
            if text.is_empty() {
                text = index.clone();
            } else {
                text = format!("({text} * {} + {index})", self.dim(dim));
            }
        }
        text
    }

    /// The distance between rows of a tensor, in elements or in groups of four.
    fn pitch(&mut self, dtype: DType, shape: &[Dim], group: bool) -> String {
        let format = dtype.format();
        let unit = if group { 4 } else { 1 };
        let width = shape.last().cloned().unwrap_or_else(|| 1.into());
        if let Some(width) = width.as_const() {
            return (format.pitch(width).unwrap_or(usize::MAX) / unit).to_string();
        }
        let (dim, multiple) = (self.dim(&width), format.group());
        let filled = match (group, multiple) {
            (true, 4) => format!("(({dim} + 3) >> 2u)"),
            (true, _) => format!("((({dim} + {}) & -{multiple}) >> 2u)", multiple - 1),
            (false, _) => format!("(({dim} + {}) & -{multiple})", multiple - 1),
        };
        match format.row_parameters() {
            0 => filled,
            parameters => format!("({filled} + {})", parameters / unit),
        }
    }

    /// An element of an operand.
    pub fn load(&mut self, position: u16, index: &[String], valid: Option<&str>) -> Result<String, EmitError> {
        let operand = self.operand(position)?;
        check_rank("operand", position, operand.shape.len(), index.len())?;
        let guard = |at: String| match valid {
            Some(valid) => format!("select(0, {at}, {valid})"),
            None => at,
        };
        if operand.space == MemorySpace::Host {
            if !matches!(operand.dtype, DType::I32 | DType::U32) {
                return Err(EmitError::HostType { operand: position.into(), dtype: operand.dtype });
            }
            let index = guard(index.first().cloned().unwrap_or_else(|| "0".to_owned()));
            return Ok(self.size_word(Param::HostBase(position), &index));
        }
        let at = guard(self.address((operand.dtype, &operand.shape), index, false));
        let (slot, base) = self.source(position, operand);
        let row = self.row_argument(slot, operand, base.as_deref(), (index, guard));
        self.reads.entry(slot).or_default().element = true;
        let start = base.map_or_else(String::new, |base| format!("{base} * 4 + "));
        Ok(format!("load_{}({start}{at}{row})", suffix(slot)))
    }

    /// True if four neighbouring elements of an operand can be loaded at once.
    pub fn has_vector_load(&self, position: u16) -> bool {
        has_vector_load(self.body, position)
    }

    /// Four neighbouring elements of an operand, the first at a multiple of four.
    pub fn load4(&mut self, position: u16, index: &[String]) -> Result<String, EmitError> {
        let (slot, at) = self.group(position, index)?;
        let operand = self.operand(position)?;
        let base = self.source(position, operand).1;
        let at = at + &self.row_argument(slot, operand, base.as_deref(), (index, |row| row));
        self.reads.entry(slot).or_default().vector = true;
        Ok(format!("load4_{}({at})", suffix(slot)))
    }

    /// True if four neighbouring elements of an operand can be loaded at once as f16.
    pub fn has_f16(&self, position: u16) -> bool {
        self.has_vector_load(position) && self.target.f16 && self.operand(position).is_ok_and(|o| o.dtype == DType::F16)
    }

    /// True if an expression reads quantized rows, whose values may exceed the f16 range.
    pub fn reads_rows(&self, root: ExprId) -> bool {
        let dag = &self.body.dag;
        dag.reachable(&[root]).into_iter().any(|id| match *dag.expr(id) {
            Expr::Load { operand, .. } => self.operand(operand).is_ok_and(|o| !o.dtype.format().is_written()),
            _ => false,
        })
    }

    /// Four neighbouring f16 values of an operand, the first of them at a multiple of four, as a `vec4<f16>`.
    pub fn load_f16(&mut self, position: u16, index: &[String]) -> Result<String, EmitError> {
        let (slot, at) = self.group(position, index)?;
        self.reads.entry(slot).or_default().f16 = true;
        Ok(format!("f16_{}({at})", suffix(slot)))
    }

    /// Records that the shader has f16 values.
    pub fn note_f16(&mut self) {
        self.f16 = true;
    }

    /// The binding of an operand, and the position of a group of four neighbours in it.
    fn group(&mut self, position: u16, index: &[String]) -> Result<(Source, String), EmitError> {
        let operand = self.operand(position)?;
        check_rank("operand", position, operand.shape.len(), index.len())?;
        let at = self.address((operand.dtype, &operand.shape), index, true);
        let (slot, base) = self.source(position, operand);
        Ok((slot, base.map_or_else(String::new, |base| format!("{base} + ")) + &at))
    }

    /// The additional argument of a load from quantized rows: the index of the row's parameters.
    fn row_argument(
        &mut self,
        slot: Source,
        operand: &Operand,
        base: Option<&str>,
        (index, guard): (&[String], impl Fn(String) -> String),
    ) -> String {
        if operand.dtype.format().parameters == 0 {
            return String::new();
        }
        self.reads.entry(slot).or_default().words = true;
        let row = guard(self.parameters_of_row((operand.dtype, &operand.shape), index));
        let groups_of_word = operand.dtype.format().group() / 4;
        match (base, groups_of_word) {
            (None, _) => format!(", {row}"),
            (Some(base), 1) => format!(", {base} + {row}"),
            (Some(base), groups) => format!(", ({base} >> {}u) + {row}", groups.trailing_zeros()),
        }
    }

    /// The binding of an operand, and the operand's start if it shares the binding.
    fn source(&mut self, position: u16, operand: &Operand) -> (Source, Option<String>) {
        match operand.space {
            MemorySpace::Pooled => (Source::Pooled(operand.dtype), Some(self.param(Param::PooledBase(position)))),
            MemorySpace::Device | MemorySpace::Host => (Source::Operand(position), None),
        }
    }

    /// The element type of a binding that is read.
    fn stored(&self, slot: Source) -> Result<DType, EmitError> {
        match slot {
            Source::Operand(n) | Source::Dequantized { operand: n, .. } => Ok(self.operand(n)?.dtype),
            Source::Pooled(dtype) => Ok(dtype),
            Source::Sizes | Source::Output(_) => Ok(DType::I32),
        }
    }

    /// The representation of a storage type in the shader.
    fn form(&self, dtype: DType) -> Form {
        Form::of(dtype, self.target.f16)
    }

    /// The sample of a row, by a search in an offsets operand.
    pub fn sample(&mut self, offsets: u16, row: &str) -> Result<String, EmitError> {
        self.load(offsets, &["0".to_owned()], None)?;
        self.searches.insert(offsets);
        Ok(format!("sample_{offsets}({row})"))
    }

    /// The name of a user-defined function in the shader.
    pub fn call(&mut self, function: &Arc<Function>) -> String {
        let number = self.calls.iter().position(|known| known == function).unwrap_or_else(|| {
            self.calls.push(Arc::clone(function));
            self.calls.len() - 1
        });
        renamed(function.name(), number)
    }

    /// A statement that stores an element.
    pub fn store(&mut self, output: u16, dtype: DType, at: &str, value: &str) -> String {
        self.writes.entry(output).or_insert((dtype, Access::default())).1.element = true;
        format!("store_{output}({at}, {value});")
    }

    /// A statement that stores four neighbouring elements at a group of four.
    pub fn store4(&mut self, output: u16, dtype: DType, at: &str, value: &str) -> String {
        self.writes.entry(output).or_insert((dtype, Access::default())).1.vector = true;
        format!("store4_{output}({at}, {value});")
    }

    /// Records that an operand with its own binding is loaded as tiles of a tensor.
    pub fn note_tensor(&mut self, operand: u16) {
        self.reads.entry(Source::Operand(operand)).or_default().tensor = true;
    }

    /// Records that an output is stored as tiles of a tensor.
    pub fn note_tensor_result(&mut self, output: u16, dtype: DType) {
        self.writes.entry(output).or_insert((dtype, Access::default())).1.tensor = true;
    }

    /// Words of the parameter block, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Storage bindings, in order.
    pub fn slots(&self) -> Vec<Source> {
        let sizes = self.sizes.then_some(Source::Sizes);
        let reads = self.reads.keys().copied();
        let writes = self.writes.keys().map(|&n| Source::Output(n));
        let all = sizes.into_iter().chain(reads).chain(writes);
        all.flat_map(|slot| std::iter::repeat_n(slot, self.windows_of(slot) as usize)).collect()
    }

    pub fn windows_of(&self, slot: Source) -> u32 {
        match slot {
            Source::Sizes | Source::Pooled(_) => 1,
            Source::Operand(n) | Source::Dequantized { operand: n, .. } => self.windows.of_operand(n),
            Source::Output(position) => self.windows.of_write(position),
        }
    }

    /// The functions that access a binding: for each chunk, and one that selects the chunk.
    fn in_windows(&self, slot: Source, dtype: DType, access: Access, functions: impl Fn(&str) -> String) -> String {
        let (count, name) = (self.windows_of(slot), suffix(slot));
        let of_words = self.form(dtype).loads_of_words(&name, access);
        if count == 1 {
            return functions(&name) + &of_words;
        }
        let mut text: String = (0..count).map(|window| functions(&format!("{name}_{window}"))).collect();
        let written = matches!(slot, Source::Output(_));
        if access.words {
            let words = self.target.window_bytes() / 4;
            return text + &choose_window(&format!("word_{name}"), (count, words), "u32", written) + &of_words;
        }
        let elements = self.target.window_bytes() * 8 / dtype.format().bits as u64;
        let element = type_of(dtype.scalar());
        if access.element {
            let name = format!("{}_{name}", if written { "store" } else { "load" });
            text += &choose_window(&name, (count, elements), element, written);
        }
        if access.vector {
            let name = format!("{}_{name}", if written { "store4" } else { "load4" });
            text += &choose_window(&name, (count, elements / 4), &format!("vec4<{element}>"), written);
        }
        if access.f16 {
            text += &choose_window(&format!("f16_{name}"), (count, elements / 4), "vec4<f16>", written);
        }
        text
    }

    /// The declarations before the body.
    pub fn declarations(&mut self) -> Result<Declarations, EmitError> {
        let (mut functions, mut unchecked) = (String::new(), true);
        for (&slot, &access) in &self.reads {
            let dtype = self.stored(slot)?;
            let load = |n: &str| self.form(dtype).loads(n, access);
            functions += &self.in_windows(slot, dtype, access, load);
        }
        for (&position, &(dtype, access)) in &self.writes {
            let store = |n: &str| self.form(dtype).stores(n, access);
            functions += &self.in_windows(Source::Output(position), dtype, access, store);
        }
        for position in self.searches.clone() {
            functions += &self.search_function(position)?;
        }
        for (number, function) in self.calls.iter().enumerate() {
            let declared = call::declaration(function, number)?;
            functions += &declared.wgsl;
            unchecked &= declared.unchecked;
        }
        let mut text = String::new();
        let words = self.params.len().div_ceil(4).max(1);
        let _ = writeln!(text, "@group(0) @binding(0) var<uniform> params: array<vec4<i32>, {words}>;");
        let slots = self.slots();
        for (n, &slot) in slots.iter().enumerate() {
            let (name, access, element) = match slot {
                Source::Sizes => ("sizes".to_owned(), "read", "i32"),
                Source::Operand(_) | Source::Dequantized { .. } | Source::Pooled(_) => {
                    let access = self.reads.get(&slot).copied().unwrap_or_default();
                    (format!("operand_{}", suffix(slot)), "read", self.form(self.stored(slot)?).read(access))
                }
                Source::Output(position) => {
                    let (dtype, access) = self.writes[&position];
                    (format!("output_{position}"), "read_write", self.form(dtype).written(access))
                }
            };
            let name = match self.windows_of(slot) {
                1 => name,
                _ => format!("{name}_{}", slots.iter().take(n).filter(|earlier| **earlier == slot).count()),
            };
            let _ = writeln!(text, "@group(0) @binding({}) var<storage, {access}> {name}: array<{element}>;", n + 1);
        }
        for (&id, name) in &self.once {
            let _ = writeln!(text, "var<private> {name}: {};", type_of(self.body.dag.scalar(id)));
        }
        let read = self.reads.keys().map(|&slot| self.stored(slot)).collect::<Result<Vec<_>, _>>()?;
        let mut stored = read.into_iter().chain(self.writes.values().map(|&(dtype, _)| dtype));
        let f16 = self.f16 || self.target.f16 && stored.any(|dtype| dtype == DType::F16);
        Ok(Declarations { text: text + "\n" + &functions, unchecked, f16 })
    }

    fn search_function(&mut self, position: u16) -> Result<String, EmitError> {
        let operand = self.operand(position)?;
        let count = operand.shape.first().cloned().unwrap_or_else(|| 2usize.into());
        let count = self.dim(&count);
        let element = self.load(position, &["middle".to_owned()], None)?;
        Ok(format!(
            "// The largest b with offsets[b] <= row.
fn sample_{position}(row: i32) -> i32 {{
    var low = 0;
    var high = {count} - 2;
    while (low < high) {{
        let middle = (low + high + 1) >> 1u;
        if ({element} <= row) {{
            low = middle;
        }} else {{
            high = middle - 1;
        }}
    }}
    return low;
}}

"
        ))
    }
}

/// Fails unless an index has one entry per dimension.
pub(super) fn check_rank(what: &'static str, position: u16, expected: usize, got: usize) -> Result<(), EmitError> {
    if expected == got { Ok(()) } else { Err(EmitError::Rank { what, position: position.into(), expected, got }) }
}
