//! A node with its inputs and attributes.

use super::item::{Constant, Item, Store};
use super::schema::AttributeProto;
use crate::ScalarType;
use crate::array::Array;
use crate::aten;
use crate::call::{self, Call, Declared};
use crate::context::Context;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::Tensor;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

pub(super) struct Node<'a> {
    pub cx: &'a Context,
    pub store: &'a Store,
    pub op: &'a str,
    /// Version of the operator set of the node's domain.
    pub version: i64,
    pub inputs: Vec<Item>,
    pub attributes: HashMap<&'a str, &'a AttributeProto>,
    /// For each result whether it has a name.
    pub results: Vec<bool>,
    /// Indices of inputs whose values must be known.
    pub wanted: RefCell<BTreeSet<usize>>,
}

/// A list of integers as an argument of an ATen operator.
pub(super) fn ints(values: &[i64]) -> Value {
    Value::List(values.iter().map(|&value| Value::int(value)).collect())
}

pub(super) fn float(value: f64) -> Value {
    Value::Number(Number::Float(value))
}

pub(super) fn flag(value: bool) -> Value {
    Value::Number(Number::Bool(value))
}

/// Resolves an axis of a tensor of this rank, which must have axes.
pub(super) fn axis(dim: i64, rank: usize) -> Lowered<usize> {
    if rank == 0 { Fault::unsupported("a tensor without axes") } else { call::axis(dim, rank) }
}

/// Bound of integer attributes, so that sums and products of two do not overflow.
const MOST: i64 = 1 << 30;

impl Node<'_> {
    pub fn item(&self, place: usize) -> &Item {
        self.inputs.get(place).unwrap_or(&Item::Absent)
    }

    pub fn has(&self, place: usize) -> bool {
        !matches!(self.item(place), Item::Absent)
    }

    /// True if the result at this index is used.
    pub fn gives(&self, place: usize) -> bool {
        self.results.get(place).copied().unwrap_or(false)
    }

    pub fn array(&self, place: usize) -> Lowered<Array> {
        match self.item(place) {
            Item::Absent => Fault::program(format!("{}: input {place} is missing", self.op)),
            item => self.store.array(self.cx, item),
        }
    }

    pub fn x(&self) -> Lowered<Array> {
        self.array(0)
    }

    pub fn optional(&self, place: usize) -> Lowered<Option<Array>> {
        if self.has(place) { self.array(place).map(Some) } else { Ok(None) }
    }

    /// All inputs as tensors.
    pub fn arrays(&self) -> Lowered<Vec<Array>> {
        (0..self.inputs.len()).map(|place| self.array(place)).collect()
    }

    pub fn list(&self, place: usize) -> Lowered<Vec<Item>> {
        match self.item(place) {
            Item::List(items) => Ok(items.clone()),
            _ => Fault::unsupported(format!("input {place} is not a sequence that is known")),
        }
    }

    /// An input whose value must be known.
    pub fn constant(&self, place: usize) -> Lowered<Rc<Constant>> {
        match self.item(place) {
            Item::Constant(constant) => Ok(constant.clone()),
            Item::Absent => Fault::program(format!("{}: input {place} is missing", self.op)),
            _ => {
                self.wanted.borrow_mut().insert(place);
                Fault::unsupported(format!("input {place} is computed, but its value must be known"))
            }
        }
    }

    pub fn known_ints(&self, place: usize) -> Lowered<Vec<i64>> {
        Ok(self.constant(place)?.data.tensor.to_i64())
    }

    pub fn known_floats(&self, place: usize) -> Lowered<Vec<f64>> {
        Ok(self.constant(place)?.data.tensor.to_f64())
    }

    pub fn known_int(&self, place: usize) -> Lowered<i64> {
        let first = self.known_ints(place)?.first().copied();
        first.ok_or_else(|| Fault::Program(format!("{}: input {place} is empty", self.op)))
    }

    /// An input of integers that are known or computed from sizes.
    pub fn sizes(&self, place: usize) -> Lowered<Vec<Size>> {
        match self.item(place).whole() {
            Some(whole) => Ok(whole.values.clone()),
            None => Ok(self.known_ints(place)?.into_iter().map(Size::from).collect()),
        }
    }

    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.get(name).copied()
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        let given = self.attribute(name).and_then(|attribute| attribute.i);
        given.map_or(default, |value| value.clamp(-MOST, MOST))
    }

    pub fn is(&self, name: &str) -> bool {
        self.int(name, 0) != 0
    }

    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.attribute(name).and_then(|attribute| attribute.f).map_or(default, f64::from)
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        let text = self.attribute(name).and_then(|attribute| attribute.s.as_ref());
        text.map_or_else(|| default.to_owned(), |text| String::from_utf8_lossy(text).into_owned())
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let all = self.attribute(name).map(|attribute| attribute.strings.as_slice()).unwrap_or_default();
        all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name)
            .map(|attribute| attribute.ints.iter().map(|value| value.clamp(&-MOST, &MOST)).copied().collect())
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.attribute(name).map(|attribute| attribute.floats.iter().map(|&value| f64::from(value)).collect())
    }

    /// Integers that are an attribute in older operator sets, and an input in newer ones.
    pub fn ints_of(&self, name: &str, place: usize) -> Lowered<Option<Vec<i64>>> {
        match (self.ints(name), self.has(place)) {
            (Some(values), _) => Ok(Some(values)),
            (None, true) => self.known_ints(place).map(Some),
            (None, false) => Ok(None),
        }
    }

    /// An axis attribute of a tensor of this rank.
    pub fn axis(&self, name: &str, default: i64, rank: usize) -> Lowered<usize> {
        axis(self.int(name, default), rank)
    }

    /// Tensors whose axes broadcast, except the last `last` ones. Sizes that cannot be proven equal are checked by each run.
    pub fn aligned(&self, mut arrays: Vec<Array>, last: usize) -> Lowered<Vec<Array>> {
        let rank = arrays.iter().map(Array::rank).max().unwrap_or(0);
        let mut shapes: Vec<Vec<Size>> = arrays.iter().map(|x| self.shape(x)).collect();
        for from_end in last..rank {
            let at = |shape: &Vec<Size>| shape.len().checked_sub(from_end + 1);
            let own = shapes.iter().filter_map(|shape| at(shape).map(|axis| &shape[axis]));
            let sizes: BTreeSet<Size> = own.filter(|size| size.as_const() != Some(1)).cloned().collect();
            let known = sizes.iter().find(|size| size.as_const().is_some());
            let Some(size) = known.or(sizes.first()).filter(|_| sizes.len() > 1).cloned() else { continue };
            for shape in &mut shapes {
                if let Some(axis) = at(shape)
                    && shape[axis].as_const() != Some(1)
                {
                    shape[axis] = size.clone();
                }
            }
        }
        for (x, shape) in arrays.iter_mut().zip(&shapes) {
            if self.cx.shape(&x.tensor) != *shape {
                x.tensor = self.cx.resized(&x.tensor, shape)?;
            }
        }
        Ok(arrays)
    }

    /// A tensor whose shape must equal `shape`. Sizes that cannot be proven equal are checked by each run.
    pub fn resized(&self, x: &Array, shape: &[Size]) -> Lowered<Array> {
        let is_own = self.shape(x) == shape;
        let tensor = if is_own { x.tensor.clone() } else { self.cx.resized(&x.tensor, shape)? };
        Ok(Array { tensor, ty: x.ty })
    }

    /// The first inputs, aligned for broadcasting. In operator set 6 an attribute may align the second input with an axis of the first.
    pub fn broadcast<const N: usize>(&self) -> Lowered<[Array; N]> {
        let mut arrays = (0..N).map(|place| self.array(place)).collect::<Lowered<Vec<_>>>()?;
        if let ([first, second], true, Some(_)) = (arrays.as_mut_slice(), self.is("broadcast"), self.attribute("axis"))
        {
            let behind = first.rank().checked_sub(self.axis("axis", 0, first.rank())? + second.rank());
            let Some(behind) = behind else { return Fault::program(format!("{}: too many axes", self.op)) };
            let mut shape = self.shape(second);
            shape.extend(vec![Size::from(1); behind]);
            second.tensor = self.cx.reshape(&second.tensor, &shape)?;
        }
        let arrays = self.aligned(arrays, 0)?.try_into();
        arrays.map_err(|_| Fault::Program(format!("{}: too few inputs", self.op)))
    }

    pub fn shape(&self, x: &Array) -> Vec<Size> {
        self.cx.shape(&x.tensor)
    }

    /// The extents of a tensor, which must be constant.
    pub fn extents(&self, x: &Array) -> Lowered<Vec<usize>> {
        let extents = self.shape(x).iter().map(Size::as_extent).collect::<Option<Vec<_>>>();
        extents.ok_or_else(|| Fault::Unsupported(format!("{}: a symbolic size", self.op)))
    }

    /// Lowers an ATen operator with one result.
    pub fn aten(&self, base: &str, arguments: Vec<(&str, Value)>, ty: ScalarType, shape: &[Size]) -> Lowered<Array> {
        let declared = vec![Some(Declared { ty, shape: Ok(shape.to_vec()) })];
        let lowering = aten::lowering(base).ok_or_else(|| Fault::Unsupported(format!("no lowering of {base}")))?;
        let call = self.call(base, arguments, declared);
        match lowering {
            aten::Lowering::One(lower) => lower(&call),
            aten::Lowering::Many(lower) => match lower(&call)?.into_iter().next() {
                Some(Value::Tensor(array)) => Ok(array),
                _ => Fault::program(format!("{base} gave no tensor")),
            },
        }
    }

    /// Lowers an ATen operator with several results.
    pub fn aten_many(
        &self,
        base: &str,
        arguments: Vec<(&str, Value)>,
        results: &[(ScalarType, Vec<Size>)],
    ) -> Lowered<Vec<Item>> {
        let declared = results.iter().map(|(ty, shape)| Some(Declared { ty: *ty, shape: Ok(shape.clone()) }));
        let Some(aten::Lowering::Many(lower)) = aten::lowering(base) else {
            return Fault::unsupported(format!("no lowering of {base}"));
        };
        let values = lower(&self.call(base, arguments, declared.collect()))?;
        let items = values.into_iter().map(|value| match value {
            Value::Tensor(array) => Item::Array(array),
            _ => Item::Absent,
        });
        Ok(items.collect())
    }

    fn call<'c>(&'c self, base: &'c str, arguments: Vec<(&str, Value)>, declared: Vec<Option<Declared>>) -> Call<'c> {
        let order = arguments.iter().map(|(_, value)| value.clone()).collect();
        let arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Call { cx: self.cx, base, overload: "", arguments, order, declared }
    }

    /// A computed tensor as an array of element type `ty`.
    pub fn stored(&self, tensor: &Tensor, ty: ScalarType) -> Lowered<Array> {
        self.cx.stored(tensor, ty)
    }

    /// A float tensor as an array of element type `ty`, rounded or truncated.
    pub fn cast(&self, tensor: &Tensor, ty: ScalarType) -> Array {
        let own = if tensor.dtype().is_float() { ScalarType::F32 } else { ScalarType::I64 };
        self.cx.cast(&Array { tensor: tensor.clone(), ty: own }, ty)
    }

    /// The tensor as f32.
    pub fn f32(&self, x: &Array) -> Tensor {
        self.cx.cast(x, ScalarType::F32).tensor
    }

    /// A size as a 0-dim 64-bit integer.
    pub fn number(&self, size: &Size) -> Lowered<Tensor> {
        Ok(self.cx.number(&Number::Int(size.clone()), ScalarType::I64)?.tensor)
    }
}
