//! The arguments of a node, by the names in its operator's schema.

use crate::ScalarType;
use crate::array::Array;
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::Tensor;
use std::collections::HashMap;

/// The declared type of a result.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub ty: ScalarType,
    /// The sizes, or why they are unknown.
    pub shape: Result<Vec<Size>, String>,
}

/// Operators that PyTorch's autocast computes in a narrower type than its operands have.
const AUTOCAST: [&str; 18] = [
    "aten.addbmm",
    "aten.addmm",
    "aten.addmv",
    "aten.addr",
    "aten.baddbmm",
    "aten.bmm",
    "aten.conv1d",
    "aten.conv2d",
    "aten.conv3d",
    "aten.conv_transpose1d",
    "aten.conv_transpose2d",
    "aten.conv_transpose3d",
    "aten.einsum",
    "aten.linear",
    "aten.matmul",
    "aten.mm",
    "aten.mv",
    "aten.scaled_dot_product_attention",
];

/// A node with its arguments.
pub(crate) struct Call<'a> {
    pub cx: &'a Context,
    /// The operator without its overload: `aten.add`.
    pub base: &'a str,
    /// The overload.
    pub overload: &'a str,
    pub arguments: HashMap<String, Value>,
    /// Arguments in the order of the schema.
    pub order: Vec<Value>,
    /// Declared type of each result; `None` for a result that is not a tensor.
    pub declared: Vec<Option<Declared>>,
}

impl Call<'_> {
    /// An argument; `None` if it is missing or None.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.arguments.get(name).filter(|value| !matches!(value, Value::None))
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn missing<T>(&self, name: &str, expected: &str) -> Lowered<T> {
        let refused = self.order.iter().find_map(|value| match value {
            Value::Unsupported(reason) => Some(*reason),
            _ => None,
        });
        if let Some(reason) = refused {
            return Fault::unsupported(reason);
        }
        Fault::program(format!("{}: the argument `{name}` is missing or not of type {expected}", self.base))
    }

    /// The call after autocast: if the result of a product is f16 or bf16, its f32 operands are converted to that type.
    pub fn autocast(mut self) -> Self {
        let Some(Declared { ty: ty @ (ScalarType::F16 | ScalarType::BF16), .. }) =
            self.declared.first().cloned().flatten()
        else {
            return self;
        };
        if AUTOCAST.contains(&self.base) {
            for value in self.arguments.values_mut().chain(&mut self.order) {
                if let Value::Tensor(array) = value
                    && array.ty == ScalarType::F32
                {
                    *array = self.cx.cast(array, ty);
                }
            }
        }
        self
    }

    /// A tensor argument. A number becomes a 0-dim tensor.
    pub fn tensor(&self, name: &str) -> Lowered<Array> {
        match self.get(name) {
            Some(Value::Tensor(array)) => Ok(array.clone()),
            Some(Value::Number(number)) => self.cx.number(number, self.cx.type_of(number)),
            _ => self.missing(name, "tensor"),
        }
    }

    pub fn optional_tensor(&self, name: &str) -> Lowered<Option<Array>> {
        if self.has(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    /// The first argument.
    pub fn x(&self) -> Lowered<Array> {
        match self.order.first() {
            Some(Value::Tensor(array)) => Ok(array.clone()),
            Some(Value::Number(number)) => self.cx.number(number, self.cx.type_of(number)),
            _ => self.missing("self", "tensor"),
        }
    }

    pub fn tensors(&self, name: &str) -> Lowered<Vec<Array>> {
        let Some(Value::List(values)) = self.get(name) else { return self.missing(name, "list of tensors") };
        let tensors = values.iter().map(|value| match value {
            Value::Tensor(array) => Ok(array.clone()),
            _ => self.missing(name, "list of tensors"),
        });
        tensors.collect()
    }

    pub fn optional_tensors(&self, name: &str) -> Lowered<Vec<Option<Array>>> {
        let Some(Value::List(values)) = self.get(name) else { return self.missing(name, "list of tensors") };
        let tensors = values.iter().map(|value| match value {
            Value::Tensor(array) => Ok(Some(array.clone())),
            Value::None => Ok(None),
            _ => self.missing(name, "list of tensors"),
        });
        tensors.collect()
    }

    pub fn number(&self, name: &str) -> Lowered<Number> {
        match self.get(name) {
            Some(Value::Number(number)) => Ok(number.clone()),
            _ => self.missing(name, "number"),
        }
    }

    pub fn size(&self, name: &str) -> Lowered<Size> {
        match self.get(name) {
            Some(Value::Number(Number::Int(size))) => Ok(size.clone()),
            Some(Value::Number(Number::Bool(value))) => Ok(Size::from(i64::from(*value))),
            _ => self.missing(name, "integer"),
        }
    }

    pub fn size_or(&self, name: &str, default: i64) -> Lowered<Size> {
        if self.has(name) { self.size(name) } else { Ok(Size::from(default)) }
    }

    /// An integer argument, which must be constant.
    pub fn int(&self, name: &str) -> Lowered<i64> {
        let size = self.size(name)?;
        size.as_const().ok_or_else(|| Fault::Unsupported(format!("a symbolic `{name}`")))
    }

    pub fn int_or(&self, name: &str, default: i64) -> Lowered<i64> {
        if self.has(name) { self.int(name) } else { Ok(default) }
    }

    pub fn sizes(&self, name: &str) -> Lowered<Vec<Size>> {
        match self.get(name) {
            Some(Value::Number(Number::Int(size))) => Ok(vec![size.clone()]),
            Some(Value::List(values)) => {
                let sizes = values.iter().map(|value| match value {
                    Value::Number(Number::Int(size)) => Ok(size.clone()),
                    _ => self.missing(name, "list of integers"),
                });
                sizes.collect()
            }
            _ => self.missing(name, "list of integers"),
        }
    }

    pub fn ints(&self, name: &str) -> Lowered<Vec<i64>> {
        let sizes = self.sizes(name)?;
        let ints = sizes.iter().map(Size::as_const).collect::<Option<Vec<_>>>();
        ints.ok_or_else(|| Fault::Unsupported(format!("a symbolic `{name}`")))
    }

    pub fn ints_or(&self, name: &str, default: &[i64]) -> Lowered<Vec<i64>> {
        if self.has(name) { self.ints(name) } else { Ok(default.to_vec()) }
    }

    pub fn float(&self, name: &str) -> Lowered<f64> {
        match self.number(name)? {
            Number::Float(value) => Ok(value),
            Number::Bool(value) => Ok(f64::from(u8::from(value))),
            Number::Int(size) => match size.as_const() {
                Some(value) => Ok(value as f64),
                None => Fault::unsupported(format!("a symbolic `{name}`")),
            },
            Number::Computed(_) => Fault::unsupported(format!("a symbolic `{name}`")),
        }
    }

    pub fn float_or(&self, name: &str, default: f64) -> Lowered<f64> {
        if self.has(name) { self.float(name) } else { Ok(default) }
    }

    pub fn floats(&self, name: &str) -> Lowered<Vec<f64>> {
        let Some(Value::List(values)) = self.get(name) else { return self.missing(name, "list of floats") };
        let floats = values.iter().map(|value| match value {
            Value::Number(Number::Float(value)) => Ok(*value),
            Value::Number(Number::Int(size)) => {
                size.as_const().map(|value| value as f64).ok_or_else(|| Fault::Unsupported(format!("`{name}`")))
            }
            _ => self.missing(name, "list of floats"),
        });
        floats.collect()
    }

    pub fn bool_or(&self, name: &str, default: bool) -> Lowered<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Number(Number::Bool(value))) => Ok(*value),
            Some(Value::Number(Number::Int(size))) if size.as_const().is_some() => Ok(size.as_const() != Some(0)),
            Some(_) => self.missing(name, "bool"),
        }
    }

    pub fn string_or(&self, name: &str, default: &str) -> Lowered<String> {
        match self.get(name) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => self.missing(name, "string"),
        }
    }

    /// An axis argument of a tensor of this rank; negative axes count from the end.
    pub fn axis_or(&self, name: &str, default: i64, rank: usize) -> Lowered<usize> {
        axis(self.int_or(name, default)?, rank)
    }

    pub fn axis(&self, name: &str, rank: usize) -> Lowered<usize> {
        axis(self.int(name)?, rank)
    }

    /// The axes arguments of a tensor of this rank; all axes if the argument is missing.
    pub fn axes(&self, name: &str, rank: usize) -> Lowered<Vec<usize>> {
        let given = if self.has(name) { self.ints(name)? } else { vec![] };
        if given.is_empty() {
            return Ok((0..rank).collect());
        }
        let mut axes = given.into_iter().map(|dim| axis(dim, rank)).collect::<Lowered<Vec<_>>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }

    /// The declared type of a result.
    pub fn ty(&self, output: usize) -> Lowered<ScalarType> {
        let declared = self.declared.get(output).and_then(Option::as_ref);
        declared.map(|declared| declared.ty).ok_or_else(|| Fault::Program(format!("{}: no result {output}", self.base)))
    }

    /// The declared sizes of a result.
    pub fn shape(&self, output: usize) -> Lowered<Vec<Size>> {
        match self.declared.get(output).and_then(Option::as_ref).map(|declared| &declared.shape) {
            Some(Ok(shape)) => Ok(shape.clone()),
            Some(Err(reason)) => Fault::unsupported(reason),
            None => Fault::program(format!("{}: no result {output}", self.base)),
        }
    }

    /// The first result, converted to its declared type.
    pub fn result(&self, tensor: &Tensor) -> Lowered<Array> {
        self.cx.stored(tensor, self.ty(0)?)
    }

    /// A result, converted to its declared type.
    pub fn nth(&self, output: usize, tensor: &Tensor) -> Lowered<Value> {
        self.cx.stored(tensor, self.ty(output)?).map(Value::Tensor)
    }
}

/// Resolves an axis of a tensor of this rank. A 0-dim tensor has axis 0.
pub(crate) fn axis(dim: i64, rank: usize) -> Lowered<usize> {
    let count = rank.max(1) as i64;
    let place = if dim < 0 { dim + count } else { dim };
    usize::try_from(place).ok().filter(|_| place < count).ok_or_else(|| Fault::Program(format!("no axis {dim}")))
}
