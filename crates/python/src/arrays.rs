//! Conversions of numpy arrays.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};
use rewire::graph::{DType, HostTensor};
use rewire::program::{ScalarType, TypedTensor};

/// The numpy name of a tensor's element type; `None` for types that numpy lacks, which are passed as `float32`.
fn numpy_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float32"),
        DType::F16 => Some("float16"),
        DType::I64 => Some("int64"),
        DType::I32 => Some("int32"),
        DType::U32 | DType::Bool => Some("uint32"),
        DType::BF16 | DType::I8 | DType::Rows8 | DType::Rows4 | DType::Rows2 => None,
    }
}

/// The type of an array that can be used without conversion.
fn own_type(argument: &str, array: &Bound<'_, PyAny>) -> PyResult<DType> {
    let name: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    Ok(match name.as_str() {
        "float32" | "float64" => DType::F32,
        "float16" => DType::F16,
        "int64" => DType::I64,
        "int8" | "int16" | "int32" | "uint8" | "uint16" => DType::I32,
        "uint32" => DType::U32,
        "bool" => DType::Bool,
        other => {
            return Err(PyTypeError::new_err(format!("{argument}: expected numbers or bools, got {other}")));
        }
    })
}

/// Checks that an array can be converted to a tensor.
fn require(argument: &str, array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<()> {
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let (expected, range) = match dtype {
        DType::I64 => (["i", "u"].as_slice(), Some((i64::MIN, i64::MAX))),
        DType::I32 => (["i", "u"].as_slice(), Some((i32::MIN.into(), i32::MAX.into()))),
        DType::U32 => (["i", "u"].as_slice(), Some((0, u32::MAX.into()))),
        DType::Bool => (["b"].as_slice(), None),
        _ => (["f", "i", "u"].as_slice(), None),
    };
    if !expected.contains(&kind.as_str()) {
        let got: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        return Err(PyTypeError::new_err(format!("{argument}: expected an array that fits {dtype}, got {got}")));
    }
    let is_empty = array.getattr("size")?.extract::<usize>()? == 0;
    let Some((low, high)) = range.filter(|_| !is_empty) else { return Ok(()) };
    for function in ["min", "max"] {
        let value = array.call_method0(function)?;
        if value.lt(low)? || value.gt(high)? {
            return Err(PyValueError::new_err(format!(
                "{argument}: expected integers from {low} to {high}, got {value}"
            )));
        }
    }
    Ok(())
}

/// The tensor of an array, or of an object that numpy converts to one, as `dtype` or with the array's type.
pub fn tensor(argument: &str, object: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<HostTensor> {
    let numpy = object.py().import("numpy")?;
    let array = numpy.call_method1("asarray", (object,))?;
    let dtype = dtype.map_or_else(|| own_type(argument, &array), Ok)?;
    require(argument, &array, dtype)?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let name = numpy_name(dtype).unwrap_or("float32");
    let flat = numpy.call_method1("ascontiguousarray", (array, name))?.call_method1("reshape", (-1,))?;
    let bytes = PyBuffer::<u8>::get(&flat.call_method1("view", ("uint8",))?)?.to_vec(object.py())?;
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{argument}: {error}"));
    if numpy_name(dtype).is_some() {
        return HostTensor::from_bytes(dtype, shape, bytes).map_err(|error| wrong(&error));
    }
    let singles = HostTensor::from_bytes(DType::F32, shape.clone(), bytes).map_err(|error| wrong(&error))?;
    if dtype == DType::BF16 {
        return HostTensor::from_f64(dtype, shape, &singles.to_f64()).map_err(|error| wrong(&error));
    }
    singles.stored_as(dtype).map_err(|error| wrong(&error))
}

/// The array of a tensor, owned by the caller.
pub fn array<'py>(py: Python<'py>, tensor: &HostTensor) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let shape = PyTuple::new(py, tensor.shape())?;
    let of = |name: &str, bytes: &[u8]| numpy.call_method1("ndarray", (&shape, name, PyByteArray::new(py, bytes)));
    match (tensor.dtype(), numpy_name(tensor.dtype())) {
        (DType::Bool, Some(name)) => of(name, tensor.bytes())?.call_method1("astype", ("bool",)),
        (_, Some(name)) => of(name, tensor.bytes()),
        (_, None) => {
            let bytes: Vec<u8> = tensor.to_f32().into_iter().flat_map(f32::to_le_bytes).collect();
            of("float32", &bytes)
        }
    }
}

/// The numpy name of a PyTorch element type; `None` for types that numpy lacks.
fn typed_name(ty: ScalarType) -> Option<&'static str> {
    Some(match ty {
        ScalarType::Bool => "bool",
        ScalarType::U8 => "uint8",
        ScalarType::I8 => "int8",
        ScalarType::U16 => "uint16",
        ScalarType::I16 => "int16",
        ScalarType::U32 => "uint32",
        ScalarType::I32 => "int32",
        ScalarType::U64 => "uint64",
        ScalarType::I64 => "int64",
        ScalarType::F16 => "float16",
        ScalarType::F32 => "float32",
        ScalarType::F64 => "float64",
        _ => return None,
    })
}

/// A tensor of PyTorch or another library as an object that numpy reads, and true if it is PyTorch's.
pub fn on_host<'py>(object: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let module: String = object.get_type().getattr("__module__")?.extract()?;
    if module.split('.').next() == Some("torch") {
        let tensor = object.call_method0("detach")?.call_method0("cpu")?;
        let is_narrow = tensor.getattr("dtype")?.str()?.to_cow()? == "torch.bfloat16";
        return Ok((if is_narrow { tensor.call_method0("float")? } else { tensor }.call_method0("numpy")?, true));
    }
    if object.hasattr("__dlpack__")? {
        return Ok((object.py().import("numpy")?.call_method1("from_dlpack", (object,))?, false));
    }
    Ok((object.clone(), false))
}

/// The tensor of an array as a PyTorch element type, or with the array's type.
pub fn typed(argument: &str, object: &Bound<'_, PyAny>, ty: Option<ScalarType>) -> PyResult<TypedTensor> {
    let Some(ty) = ty else { return tensor(argument, object, None).map(TypedTensor::from) };
    let is_narrow = ty.is_integer() && !matches!(ty, ScalarType::I32 | ScalarType::I64);
    let array = object.py().import("numpy")?.call_method1("asarray", (object,))?;
    let own: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    if is_narrow && typed_name(ty) != Some(own.as_str()) {
        return Err(PyTypeError::new_err(format!("{argument}: expected an array of {ty}, got {own}")));
    }
    Ok(TypedTensor { ty, tensor: tensor(argument, &array, Some(ty.dtype()))? })
}

/// The array of a tensor with its element type, or a PyTorch tensor.
pub fn typed_array<'py>(py: Python<'py>, typed: &TypedTensor, is_torch: bool) -> PyResult<Bound<'py, PyAny>> {
    let own = array(py, &typed.tensor)?;
    let own = match typed_name(typed.ty) {
        Some(name) => own.call_method1("astype", (name,))?,
        None => own,
    };
    if !is_torch {
        return Ok(own);
    }
    let torch = py.import("torch")?;
    let tensor = torch.call_method1("from_numpy", (own,))?;
    match typed.ty {
        ScalarType::BF16 => tensor.call_method1("to", (torch.getattr("bfloat16")?,)),
        _ => Ok(tensor),
    }
}
