//! Named tensors as `{ data, shape }` of typed arrays.

use super::objects::{field, object};
use crate::Failure;
use crate::program::RawTensor;
use js_sys::{
    Array, BigInt64Array, BigUint64Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Object,
    Reflect, Uint8Array, Uint16Array, Uint32Array,
};
use rewire::program::{ScalarType, TypedTensor};
use rewire::rank::whole;
use std::collections::BTreeMap;
use wasm_bindgen::prelude::*;

/// The tensors of an object, by name.
pub fn tensors(named: &Object) -> Result<Vec<(String, RawTensor)>, Failure> {
    let entry = |entry: JsValue| {
        let entry: Array = entry.unchecked_into();
        let name = String::from(entry.get(0).unchecked_into::<js_sys::JsString>());
        let tensor = tensor(&name, &entry.get(1))?;
        Ok((name, tensor))
    };
    Object::entries(named).iter().map(entry).collect()
}

/// A typed array with one axis, or `{ data, shape }`.
fn tensor(name: &str, value: &JsValue) -> Result<RawTensor, Failure> {
    if let Some((ty, bytes, count)) = elements(value) {
        return Ok(RawTensor { ty, shape: vec![count], bytes });
    }
    let wrong = || Failure::of_tensor(format!("`{name}` must be a typed array, or `{{ data, shape }}` with one"));
    let (ty, bytes, _) = elements(&field(value, "data")).ok_or_else(wrong)?;
    let shape = field(value, "shape").dyn_into::<Array>().map_err(|_| wrong())?;
    let extent = |extent: JsValue| usize::try_from(extent.as_f64().and_then(whole)?).ok();
    let extents = shape.iter().map(extent).collect::<Option<_>>();
    let shape =
        extents.ok_or_else(|| Failure::of_tensor(format!("`{name}.shape` must hold whole numbers from 0 on")))?;
    Ok(RawTensor { ty, shape, bytes })
}

/// The type, bytes and number of elements of a typed array.
fn elements(value: &JsValue) -> Option<(ScalarType, Vec<u8>, usize)> {
    macro_rules! arrays {
        ($($array:ty => $ty:ident),*) => {
            $(if let Some(own) = value.dyn_ref::<$array>() {
                let bytes = Uint8Array::new_with_byte_offset_and_length(&own.buffer(), own.byte_offset(), own.byte_length());
                return Some((ScalarType::$ty, bytes.to_vec(), own.length() as usize));
            })*
        };
    }
    arrays!(
        Float32Array => F32, Int32Array => I32, BigInt64Array => I64, Uint8Array => U8, Float64Array => F64, Int8Array => I8,
        Int16Array => I16, Uint16Array => U16, Uint32Array => U32, BigUint64Array => U64
    );
    None
}

/// `{ name: { dtype, shape, data } }`. Bools are bytes of 0 or 1, 16-bit floats are 16-bit words.
pub fn results(results: &BTreeMap<String, TypedTensor>) -> Object {
    let named = Object::new();
    for (name, result) in results {
        let shape: Array = result.tensor.shape().iter().map(|&extent| JsValue::from(extent as f64)).collect();
        let fields = [
            ("dtype", result.ty.to_string().into()),
            ("shape", shape.into()),
            ("data", array(result.ty, &result.to_bytes())),
        ];
        // Setting a property of a new object does not fail.
        let _ = Reflect::set(&named, &name.as_str().into(), &object(fields));
    }
    named
}

fn array(ty: ScalarType, bytes: &[u8]) -> JsValue {
    let buffer = Uint8Array::from(bytes).buffer();
    match ty {
        ScalarType::F32 => Float32Array::new(&buffer).into(),
        ScalarType::F64 => Float64Array::new(&buffer).into(),
        ScalarType::I8 => Int8Array::new(&buffer).into(),
        ScalarType::I16 => Int16Array::new(&buffer).into(),
        ScalarType::I32 => Int32Array::new(&buffer).into(),
        ScalarType::I64 => BigInt64Array::new(&buffer).into(),
        ScalarType::U32 => Uint32Array::new(&buffer).into(),
        ScalarType::U64 => BigUint64Array::new(&buffer).into(),
        ScalarType::U16 | ScalarType::F16 | ScalarType::BF16 => Uint16Array::new(&buffer).into(),
        _ => Uint8Array::new(&buffer).into(),
    }
}
