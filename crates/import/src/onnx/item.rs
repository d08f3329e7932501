//! Values of ONNX graphs. Most are tensors of the graph; some are known while the model is read.

use crate::ScalarType;
use crate::TypedTensor;
use crate::array::Array;
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::{Dim, HostTensor, Tensor, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A missing optional input.
    Absent,
    /// A tensor of the graph.
    Array(Array),
    /// A tensor whose elements are known.
    Constant(Rc<Constant>),
    /// Integers computed from sizes.
    Whole(Rc<Whole>),
    /// A sequence.
    List(Vec<Item>),
}

/// A tensor from the file, or one that was folded while reading it.
#[derive(Debug)]
pub(super) struct Constant {
    /// The name, if it is an initializer.
    pub name: Option<String>,
    pub data: TypedTensor,
}

/// Integers computed from sizes, with the shape of their tensor.
#[derive(Debug)]
pub(super) struct Whole {
    pub ty: ScalarType,
    pub shape: Vec<usize>,
    pub values: Vec<Size>,
}

/// A quantized tensor: integers, scale and zero point.
#[derive(Clone, Debug)]
pub(super) struct Quantized {
    pub x: Item,
    pub scale: Item,
    pub zero: Item,
    /// The axis that a vector of scales belongs to.
    pub axis: i64,
}

/// Floats that are quantized to unsigned bytes at run time.
#[derive(Clone, Debug)]
pub(super) struct Rounded {
    pub x: Tensor,
    pub scale: Tensor,
    /// The zero point as a float.
    pub zero: Tensor,
    /// The zero point as a byte.
    pub point: Array,
}

/// Maximum number of elements of a constant that becomes part of the graph. Larger ones become parameters.
const SMALL: usize = 64;

/// The constants and quantized tensors of a model.
pub(super) struct Store {
    parameters: RefCell<HashMap<String, HostTensor>>,
    /// For each result of a `DequantizeLinear` node its quantized source.
    quantized: RefCell<HashMap<Value, Quantized>>,
    /// For each tensor of bytes the floats that it was quantized from.
    rounded: RefCell<HashMap<Value, Rounded>>,
    /// True if all constants become part of the graph.
    is_inline: bool,
}

impl Item {
    pub fn constant(ty: ScalarType, tensor: HostTensor) -> Self {
        Self::Constant(Rc::new(Constant { name: None, data: TypedTensor { ty, tensor } }))
    }

    /// Known 64-bit integers.
    pub fn integers(shape: Vec<usize>, values: &[i64]) -> Lowered<Self> {
        let tensor = HostTensor::i64(shape, values).map_err(|error| Fault::Program(error.to_string()))?;
        Ok(Self::constant(ScalarType::I64, tensor))
    }

    /// Sizes of the given shape, which is a vector or a scalar.
    pub fn sizes(shape: Vec<usize>, values: Vec<Size>, ty: ScalarType) -> Lowered<Self> {
        match values.iter().map(Size::as_const).collect::<Option<Vec<i64>>>() {
            Some(known) => {
                let tensor = HostTensor::i64(shape, &known).map_err(|error| Fault::Program(error.to_string()))?;
                let values = tensor.to_f64();
                let stored = HostTensor::from_f64(ty.dtype(), tensor.shape().to_vec(), &values);
                let is_own = ty.dtype() == tensor.dtype();
                let tensor = if is_own { tensor } else { stored.map_err(|error| Fault::Program(error.to_string()))? };
                Ok(Self::constant(ty, tensor))
            }
            None => Ok(Self::Whole(Rc::new(Whole { ty, shape, values }))),
        }
    }

    /// The integers as sizes; `None` unless they are few and either known or computed from sizes.
    pub fn whole(&self) -> Option<Rc<Whole>> {
        match self {
            Self::Whole(whole) => Some(whole.clone()),
            Self::Constant(constant) if !constant.data.ty.is_float() && constant.data.tensor.len() <= 1 << 10 => {
                let TypedTensor { ty, tensor } = &constant.data;
                let values = tensor.to_i64().into_iter().map(Size::from).collect();
                Some(Rc::new(Whole { ty: *ty, shape: tensor.shape().to_vec(), values }))
            }
            _ => None,
        }
    }

    pub fn is_constant(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Absent => true,
            Self::List(items) => items.iter().all(Self::is_constant),
            Self::Array(_) | Self::Whole(_) => false,
        }
    }
}

impl From<Array> for Item {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl Store {
    pub fn new(is_inline: bool) -> Self {
        Self { parameters: RefCell::default(), quantized: RefCell::default(), rounded: RefCell::default(), is_inline }
    }

    /// Records the quantized source of a tensor.
    pub fn note_quantized(&self, x: &Array, parts: Quantized) {
        self.quantized.borrow_mut().extend(x.tensor.value().map(|value| (value, parts)));
    }

    /// The quantized source of a tensor, if it has been recorded.
    pub fn quantized(&self, item: &Item) -> Option<Quantized> {
        let Item::Array(x) = item else { return None };
        self.quantized.borrow().get(&x.tensor.value()?).cloned()
    }

    /// Records the floats that a tensor of bytes was quantized from.
    pub fn note_rounded(&self, bytes: &Array, floats: Rounded) {
        self.rounded.borrow_mut().extend(bytes.tensor.value().map(|value| (value, floats)));
    }

    /// The floats that a tensor of bytes was quantized from, if they have been recorded.
    pub fn rounded(&self, bytes: &Array) -> Option<Rounded> {
        self.rounded.borrow().get(&bytes.tensor.value()?).cloned()
    }

    pub fn into_parameters(self) -> HashMap<String, HostTensor> {
        self.parameters.into_inner()
    }

    /// Converts a value to a tensor of the graph.
    pub fn array(&self, cx: &Context, item: &Item) -> Lowered<Array> {
        match item {
            Item::Array(array) => Ok(array.clone()),
            Item::Constant(constant) => Ok(self.read(cx, constant)),
            Item::Whole(whole) => whole.array(cx),
            Item::Absent => Fault::program("an input is missing"),
            Item::List(_) => Fault::unsupported("a sequence as a tensor"),
        }
    }

    fn read(&self, cx: &Context, constant: &Constant) -> Array {
        let TypedTensor { ty, tensor } = &constant.data;
        // Parameters must be finite.
        if self.is_inline || tensor.len() <= SMALL || tensor.first_non_finite().is_some() {
            return Array { tensor: cx.scope.constant(tensor.clone()), ty: *ty };
        }
        let mut parameters = self.parameters.borrow_mut();
        // Different bodies may have initializers of the same name.
        let mut name = constant.name.clone().unwrap_or_else(|| "constant".to_owned());
        for number in 1.. {
            if parameters.get(&name).is_none_or(|other| other == tensor) {
                break;
            }
            name = format!("{}.{number}", constant.name.as_deref().unwrap_or("constant"));
        }
        let shape: Vec<Dim> = tensor.shape().iter().map(|&extent| Dim::from(extent)).collect();
        let value = cx.scope.parameter(&name, tensor.dtype(), shape);
        parameters.entry(name).or_insert_with(|| tensor.clone());
        Array { tensor: value, ty: *ty }
    }
}

impl Whole {
    fn array(&self, cx: &Context) -> Lowered<Array> {
        let mut parts: Vec<Tensor> = vec![];
        for size in &self.values {
            let number = cx.number(&Number::Int(size.clone()), ScalarType::I64)?;
            parts.push(cx.reshape(&number.tensor, &[1.into()])?);
        }
        let shape: Vec<Size> = self.shape.iter().map(|&extent| Size::from(extent)).collect();
        let all = if parts.len() == 1 { parts.remove(0) } else { cx.concat(&parts, 0) };
        let array = Array { tensor: cx.reshape(&all, &shape)?, ty: ScalarType::I64 };
        Ok(cx.cast(&array, self.ty))
    }
}
