use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rewire::graph::{DType, Dim};

/// A dynamic extent, or a multiple of one.
#[pyclass(frozen, from_py_object, module = "rewire")]
#[derive(Clone)]
pub struct Size(pub Dim);

#[pymethods]
impl Size {
    fn __add__(&self, other: Extent) -> Self {
        Self(self.0.clone() + other.0)
    }

    fn __radd__(&self, other: Extent) -> Self {
        self.__add__(other)
    }

    fn __mul__(&self, factor: i32) -> Self {
        Self(self.0.clone() * i64::from(factor))
    }

    fn __rmul__(&self, factor: i32) -> Self {
        self.__mul__(factor)
    }

    fn __eq__(&self, other: Extent) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// A number, or a dynamic extent.
pub struct Extent(pub Dim);

impl<'py> FromPyObject<'_, 'py> for Extent {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(size) = object.cast::<Size>() {
            return Ok(Self(size.get().0.clone()));
        }
        let number: u32 = object.extract().map_err(|_| {
            PyValueError::new_err(format!("expected a `Size` or a number from 0 to {}, got {}", u32::MAX, &*object))
        })?;
        Ok(Self((number as usize).into()))
    }
}

/// Extents, outermost first.
pub fn dims(shape: Vec<Extent>) -> Vec<Dim> {
    shape.into_iter().map(|extent| extent.0).collect()
}

/// An extent as a Python object.
pub fn object<'py>(py: Python<'py>, dim: &Dim) -> PyResult<Bound<'py, PyAny>> {
    match dim.as_const() {
        Some(number) => Ok(number.into_pyobject(py)?.into_any()),
        None => Ok(Bound::new(py, Size(dim.clone()))?.into_any()),
    }
}

/// An element type by its name, as in `f32`, or by numpy's, as in `float32`.
pub struct ElementType(pub DType);

/// Types with numpy names.
const NUMPY: [(&str, DType); 6] = [
    ("float32", DType::F32),
    ("float16", DType::F16),
    ("bfloat16", DType::BF16),
    ("int64", DType::I64),
    ("int32", DType::I32),
    ("uint32", DType::U32),
];

impl<'py> FromPyObject<'_, 'py> for ElementType {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let name = match object.extract::<String>() {
            Ok(name) => name,
            // A numpy type, or an instance of `numpy.dtype`.
            Err(_) => object.getattr("name").or_else(|_| object.getattr("__name__"))?.extract()?,
        };
        let known = NUMPY.iter().find(|(numpy, _)| *numpy == name).map(|(_, dtype)| *dtype);
        known.or_else(|| DType::named(&name)).map(Self).ok_or_else(|| {
            let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.format().name).collect();
            PyValueError::new_err(format!("dtype: expected one of {}, got `{name}`", names.join(", ")))
        })
    }
}
