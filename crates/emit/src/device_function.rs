//! The device functions of a kernel that templates call.

use super::EmitError;
use super::coords::Coords;
use super::expr::{Code, indented};
use super::function::float_literal;
use super::module::Module;
use super::store::{everywhere, store_all_four, store_all_point};
use super::value::WgslValue;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::plan::{Output, ReduceOp};

/// Four neighbouring points for a device function: their coordinates, the axis along which they are neighbours, and its
/// extent.
pub(super) struct Four<'a> {
    pub coords: &'a Coords,
    pub axis: u8,
    pub extent: &'a Dim,
}

impl Four<'_> {
    fn name(&self) -> &str {
        self.coords.get(self.axis).unwrap_or("0")
    }

    /// Code for the points; those beyond the extent are not valid.
    pub fn code(&self, module: &mut Module, values: &[(u8, WgslValue)]) -> Code {
        let whole = self.extent.as_const().is_some_and(|n| n % 4 == 0);
        let mut code = Code::four(module, self.axis, self.coords, values, if whole { None } else { Some("valid") });
        if !whole {
            let extent = module.dim(self.extent);
            code.line(&format!("let valid = ({} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});", self.name()));
        }
        code
    }
}

/// A function of `i32` coordinates and `more` parameters.
pub(super) fn function(name: &str, coords: &Coords, more: &str, result: &str, body: &str) -> String {
    let result = if result.is_empty() { String::new() } else { format!(" -> {result}") };
    format!("fn {name}({}{more}){result} {{\n{}}}\n\n", coords.parameters(), indented(body))
}

/// The type of a device function's elements in the shader.
#[derive(Clone, Copy)]
pub(super) enum Element {
    Float,
    Half,
    /// Four signed bytes in a word.
    Word,
    /// Four unconverted elements of an operand, of this type.
    Stored(&'static str),
}

impl Element {
    /// One element.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "f32",
            Self::Half => "f16",
            Self::Word | Self::Stored(_) => "u32",
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Float | Self::Word | Self::Stored(_) => 4,
            Self::Half => 2,
        }
    }

    /// Four elements.
    fn vector(self) -> &'static str {
        match self {
            Self::Float => "vec4<f32>",
            Self::Half => "vec4<f16>",
            Self::Word => "u32",
            Self::Stored(ty) => ty,
        }
    }
}

/// A device function that returns four elements, `filler` beyond the extent.
pub(super) fn elements(
    name: &str,
    module: &mut Module,
    four: &Four,
    (values, more): (&[(u8, WgslValue)], &str),
    (root, element, filler): (ExprId, Element, &str),
) -> Result<String, EmitError> {
    float(module, name, root)?;
    let mut code = four.code(module, values);
    let value = match element {
        Element::Float => code.eval_one(module, root)?.vector(Scalar::F32),
        Element::Half => code.f16(module, root)?,
        Element::Word => code.word(module, root)?,
        Element::Stored(_) => code.stored(module, root)?,
    };
    let vector = element.vector();
    match code.valid().filter(|_| !matches!(element, Element::Word)).map(str::to_owned) {
        Some(valid) => code.line(&format!("return select({vector}({filler}), {value}, {valid});")),
        None => code.line(&format!("return {value};")),
    }
    Ok(function(name, four.coords, more, vector, &code.take()))
}

/// The device function that writes four results from the accumulator `sum`, which is value `sum`.
pub(super) fn finish(module: &mut Module, four: &Four, sum: u8, outputs: &[Output]) -> Result<String, EmitError> {
    let mut code = four.code(module, &[(sum, WgslValue::Vector("sum".to_owned()))]);
    store_all_four(&mut code, module, (four.axis, four.name(), four.extent), outputs)?;
    Ok(function("finish", four.coords, ", sum: vec4<f32>", "", &code.take()))
}

/// Which f32 loads the epilogue receives preloaded, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// None.
    Nothing,
    /// Loads that several results share.
    Shared,
    /// A load that differs for each result.
    Streamed,
}

/// A load of four f16 values per group of results that the epilogue reads.
pub(super) struct Streamed {
    id: ExprId,
    /// The device function `streamed`, which loads them.
    pub function: String,
}

/// The first load of f16 values in the epilogue that differs for each result, if any.
pub(super) fn streamed(module: &mut Module, four: &Four, outputs: &[Output]) -> Result<Option<Streamed>, EmitError> {
    let results = four.coords.iter().fold(0, |bits, (axis, _)| bits | 1u32 << axis);
    let dag = &module.body.dag;
    let mut code = four.code(module, &[]);
    let is_own = |id: &ExprId| dag.coords(*id) & results == results && dag.values(*id) == 0;
    let is_load = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. });
    let mut required = module.required(&everywhere(outputs)).into_iter().filter(is_load);
    let Some(id) = required.find(|id| is_own(id) && code.are_f16(module, *id)) else { return Ok(None) };
    let value = code.f16(module, id)?;
    code.line(&format!("return {value};"));
    Ok(Some(Streamed { id, function: function("streamed", four.coords, "", "vec4<f16>", &code.take()) }))
}

/// The epilogue `finish`, which writes four results, and before it the device function `ahead`, which preloads its f32
/// operands so that the loads of several results overlap. A `streamed` operand is the last argument of `finish`.
pub(super) fn finish_ahead(
    module: &mut Module,
    four: &Four,
    sum: u8,
    outputs: &[Output],
    streamed: Option<&Streamed>,
) -> Result<(String, Ahead), EmitError> {
    let roots = everywhere(outputs);
    let dag = &module.body.dag;
    let reads = |id: ExprId| {
        let is_float = matches!(dag.expr(id), Expr::Load { .. }) && dag.scalar(id) == Scalar::F32;
        is_float && dag.values(id) == 0 && streamed.is_none_or(|streamed| streamed.id != id)
    };
    let results = four.coords.iter().fold(0, |bits, (axis, _)| bits | 1u32 << axis);
    let mut loads = four.code(module, &[]);
    let mut code = four.code(module, &[(sum, WgslValue::Vector("sum".to_owned()))]);
    let (mut members, mut values, mut ahead) = (vec![], vec![], Ahead::Nothing);
    for id in module.required(&roots).into_iter().filter(|&id| reads(id)) {
        let place = format!("loaded.v{}", id.0);
        let (loaded, ty, value) = match loads.eval_one(module, id)? {
            WgslValue::Vector(name) => (name, "vec4<f32>", WgslValue::Vector(place)),
            WgslValue::Uniform(name) => (name, "f32", WgslValue::Uniform(place)),
            _ => continue,
        };
        if ahead != Ahead::Streamed {
            ahead = if dag.coords(id) & results == results { Ahead::Streamed } else { Ahead::Shared };
        }
        members.push(format!("    v{}: {ty},\n", id.0));
        values.push(loaded);
        code.learn(id, value);
    }
    let (mut text, mut more) = (String::new(), ", sum: vec4<f32>".to_owned());
    if ahead != Ahead::Nothing {
        loads.line(&format!("return Ahead({});", values.join(", ")));
        text += &format!("struct Ahead {{\n{}}}\n\n", members.concat());
        text += &function("ahead", four.coords, "", "Ahead", &loads.take());
        more += ", loaded: Ahead";
    }
    if let Some(streamed) = streamed {
        let name = module.name();
        code.line(&format!("let {name} = vec4<f32>(streamed);"));
        code.learn(streamed.id, WgslValue::Vector(name));
        more += ", streamed: vec4<f16>";
        text += &streamed.function;
    }
    store_all_four(&mut code, module, (four.axis, four.name(), four.extent), outputs)?;
    Ok((text + &function("finish", four.coords, &more, "", &code.take()), ahead))
}

/// Fails if an expression is not a float.
pub(super) fn float(module: &Module, place: &str, id: ExprId) -> Result<(), EmitError> {
    match module.body.dag.scalar(id) {
        Scalar::F32 => Ok(()),
        got => Err(EmitError::Type { place: place.to_owned(), expected: "F32".to_owned(), got }),
    }
}

/// The columns that a thread computes at once: one, or four neighbours as a vector.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub axis: u8,
    pub extent: &'a Dim,
    pub lanes: usize,
}

impl Columns<'_> {
    /// True if no group extends beyond the last column.
    pub fn whole(&self) -> bool {
        self.lanes == 1 || self.extent.as_const().is_some_and(|n| n.is_multiple_of(self.lanes))
    }

    /// The type of their floats in the shader.
    pub fn ty(&self) -> &'static str {
        if self.lanes == 1 { "f32" } else { "vec4<f32>" }
    }

    /// A float value for these columns.
    pub fn text(&self, value: &WgslValue) -> String {
        if self.lanes == 1 { value.first() } else { value.vector(Scalar::F32) }
    }

    /// Combines an accumulator and a new value.
    pub fn join(&self, op: ReduceOp, a: &str, b: &str) -> String {
        if self.lanes == 1 { Combine(op).join(a, b) } else { Combine(op).join4(a, b) }
    }

    /// Writes the elements of all outputs for these columns, the first at `column`.
    pub fn store(
        &self,
        code: &mut Code,
        module: &mut Module,
        column: &str,
        outputs: &[Output],
    ) -> Result<(), EmitError> {
        match self.lanes {
            1 => store_all_point(code, module, column, outputs),
            _ => store_all_four(code, module, (self.axis, column, self.extent), outputs),
        }
    }
}

/// The operation of a reduction in WGSL.
pub(super) struct Combine(pub ReduceOp);

impl Combine {
    /// The identity of the operation.
    pub fn identity(&self) -> String {
        float_literal(self.0.start())
    }

    /// Combines an accumulator and a new element.
    pub fn join(&self, a: &str, b: &str) -> String {
        match self.0 {
            ReduceOp::Sum => format!("{a} + {b}"),
            ReduceOp::Max => format!("larger({a}, {b})"),
            ReduceOp::Min => format!("smaller({a}, {b})"),
        }
    }

    /// Combines two vectors component by component.
    pub fn join4(&self, a: &str, b: &str) -> String {
        match self.0 {
            ReduceOp::Sum => format!("{a} + {b}"),
            ReduceOp::Max => format!("larger4({a}, {b})"),
            ReduceOp::Min => format!("smaller4({a}, {b})"),
        }
    }

    /// Reduces the four components of a vector.
    pub fn total(&self, a: &str) -> String {
        let half = |x, y| match self.0 {
            ReduceOp::Sum => format!("({a}.{x} + {a}.{y})"),
            _ => self.join(&format!("{a}.{x}"), &format!("{a}.{y}")),
        };
        self.join(&half("x", "y"), &half("z", "w"))
    }
}
