//! Models of any kind, on named tensors.

use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::options::{Options, given};
use rewire::package::Package;
#[cfg(feature = "folders")]
use rewire::program::ModelFile;
use rewire::program::{Extent, Program, ScalarType, TypedTensor};
use rewire::rank::{RankError, RankOptions};
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Booleans, one byte each: 0 or 1.
pub const REWIRE_BOOL: u32 = 0;
/// Unsigned 8-bit integers.
pub const REWIRE_U8: u32 = 1;
/// Signed 8-bit integers.
pub const REWIRE_I8: u32 = 2;
/// Signed 16-bit integers.
pub const REWIRE_I16: u32 = 3;
/// Signed 32-bit integers.
pub const REWIRE_I32: u32 = 4;
/// Signed 64-bit integers.
pub const REWIRE_I64: u32 = 5;
/// 16-bit floats (f16).
pub const REWIRE_F16: u32 = 6;
/// bfloat16: 16-bit floats with the exponent of f32 and 7 bits of fraction.
pub const REWIRE_BF16: u32 = 7;
/// 32-bit floats (f32).
pub const REWIRE_F32: u32 = 8;
/// 64-bit floats (f64), computed in f32.
pub const REWIRE_F64: u32 = 9;
/// Unsigned 16-bit integers.
pub const REWIRE_U16: u32 = 10;
/// Unsigned 32-bit integers.
pub const REWIRE_U32: u32 = 11;
/// Unsigned 64-bit integers.
pub const REWIRE_U64: u32 = 12;

/// A tensor: `rank` extents, and elements in row-major order, of a type such as `REWIRE_F32`. For inputs of a model, `data` is null and
/// extents that are only known in a run are -1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedTensor {
    /// A null-terminated UTF-8 string.
    pub name: *const c_char,
    /// The element type.
    pub element: u32,
    /// The number of extents.
    pub rank: usize,
    /// The extents.
    pub shape: *const i64,
    /// The elements.
    pub data: *const c_void,
    /// Size of the elements in bytes.
    pub bytes: usize,
}

/// A tensor that the library owns.
#[derive(Debug)]
struct Owned {
    name: CString,
    element: u32,
    shape: Vec<i64>,
    data: Vec<u8>,
}

impl Owned {
    fn shown(&self, has_data: bool) -> NamedTensor {
        NamedTensor {
            name: self.name.as_ptr(),
            element: self.element,
            rank: self.shape.len(),
            shape: self.shape.as_ptr(),
            data: if has_data { self.data.as_ptr().cast() } else { std::ptr::null() },
            bytes: self.data.len(),
        }
    }
}

/// A model with its states. Threads that share one wait for each other.
#[derive(Debug)]
pub struct Model {
    program: Mutex<Program>,
    inputs: Vec<Owned>,
}

/// The results of a run.
#[derive(Debug)]
pub struct Results(Vec<Owned>);

fn code_of(ty: ScalarType) -> u32 {
    let code = ScalarType::ALL.iter().position(|known| *known == ty);
    debug_assert!(code.is_some(), "tensors of a run are never {ty}");
    // An unused code, so that callers cannot misread the bytes.
    code.map_or(u32::MAX, |code| code as u32)
}

impl Model {
    fn new(program: Program) -> Self {
        let inputs = program.inputs().iter().map(|port| Owned {
            name: CString::new(port.name.as_str()).unwrap_or_default(),
            element: code_of(port.ty),
            shape: port.shape.iter().map(extent).collect(),
            data: vec![],
        });
        Self { inputs: inputs.collect(), program: Mutex::new(program) }
    }
}

fn extent(extent: &Extent) -> i64 {
    match extent {
        Extent::Known(extent) => *extent as i64,
        Extent::Open(_) => -1,
    }
}

fn open(path: &Path, options: &RankOptions) -> Result<Program, RankError> {
    #[cfg(feature = "folders")]
    return Program::load(&ModelFile::open(path, options.mapping)?, options);
    #[cfg(not(feature = "folders"))]
    return Program::from_package(&Package::read_mapping(path, options.mapping)?, options);
}

/// Opens a model: a package or, unless the library was built only for packages, a model folder, an archive of `torch.export.save` (.pt2)
/// or an ONNX model (.onnx). `options` may be null.
///
/// # Safety
/// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_open(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Model,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let program = open(path, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Model::new(program), out) }
    })
}

/// Opens a package from memory. Its bytes are copied. `options` may be null.
///
/// # Safety
/// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_from_bytes(
    bytes: *const u8,
    count: usize,
    options: *const Options,
    out: *mut *mut Model,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (bytes, options) = unsafe { (slice(bytes, count, "bytes")?, given(options)) };
        let package = Package::parse(bytes.to_vec()).map_err(|error| Failure::of(Status::Model)(&error))?;
        let program = Program::from_package(&package, &options);
        let program = program.map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Model::new(program), out) }
    })
}

/// Number of inputs of the model; 0 for null.
///
/// # Safety
/// `model` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_inputs(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(model, "model") }.map_or(0, |model| model.inputs.len())
}

/// An input of the model, by position. Its name and shape are valid as long as the model.
///
/// # Safety
/// `model` is null or a handle, `out` is null or points to a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_input(model: *const Model, place: usize, out: *mut NamedTensor) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (model, out) = unsafe { (read(model, "model")?, change(out, "out")?) };
        let input = model.inputs.get(place);
        *out = input.ok_or_else(|| Failure::argument("place", "the place of an input"))?.shown(false);
        Ok(())
    })
}

/// Runs the model on named tensors, in any order. Their data is copied. Buffers that the model changes keep their values for the next
/// run.
///
/// # Safety
/// `model` is null or a handle, `tensors` has `count` tensors with null-terminated names and valid shapes and data, `out` points to a
/// variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_run(
    model: *const Model,
    tensors: *const NamedTensor,
    count: usize,
    out: *mut *mut Results,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (model, tensors) = unsafe { (read(model, "model")?, slice(tensors, count, "tensors")?) };
        // SAFETY: the caller's promise.
        let inputs = tensors.iter().map(|tensor| unsafe { taken(tensor) }).collect::<Result<_, Failure>>()?;
        let ran = model.program.lock().unwrap_or_else(PoisonError::into_inner).run(inputs);
        let results = ran.map_err(|error| Failure::of(Status::Run)(&error))?.tensors();
        let owned = results.into_iter().map(|(name, tensor)| Owned {
            name: CString::new(name).unwrap_or_default(),
            element: code_of(tensor.ty),
            shape: tensor.tensor.shape().iter().map(|&extent| extent as i64).collect(),
            data: tensor.to_bytes(),
        });
        // SAFETY: the caller's promise.
        unsafe { give(Results(owned.collect()), out) }
    })
}

/// The tensor that a caller describes.
///
/// # Safety
/// Its name is null-terminated, and its shape and data are valid.
unsafe fn taken(tensor: &NamedTensor) -> Result<(String, TypedTensor), Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(tensor.name, "tensors[].name") }?;
    let ty = ScalarType::ALL.get(tensor.element as usize).copied();
    let ty = ty.ok_or_else(|| Failure::argument("tensors[].element", "a type such as REWIRE_F32"))?;
    // SAFETY: the caller's promise.
    let shape = unsafe { slice(tensor.shape, tensor.rank, "tensors[].shape") }?;
    let shape = shape.iter().map(|&extent| usize::try_from(extent).ok()).collect::<Option<Vec<_>>>();
    let shape = shape.ok_or_else(|| Failure::argument("tensors[].shape", "extents from 0 on"))?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(tensor.data.cast::<u8>(), tensor.bytes, "tensors[].data") }?;
    let tensor = TypedTensor::from_bytes(name, ty, &shape, bytes);
    Ok((name.to_owned(), tensor.map_err(|error| Failure::of(Status::Argument)(&error))?))
}

/// Number of result tensors; 0 for null.
///
/// # Safety
/// `results` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_count(results: *const Results) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read(results, "results") }.map_or(0, |results| results.0.len())
}

/// A result tensor, in the order of names: outputs, and buffers and inputs that the model changed. Valid as long as the results.
///
/// # Safety
/// `results` is null or a handle, `out` is null or points to a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_tensor(results: *const Results, place: usize, out: *mut NamedTensor) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (results, out) = unsafe { (read(results, "results")?, change(out, "out")?) };
        let tensor = results.0.get(place);
        *out = tensor.ok_or_else(|| Failure::argument("place", "the place of a result"))?.shown(true);
        Ok(())
    })
}

/// Frees results.
///
/// # Safety
/// `results` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_results_free(results: *mut Results) {
    // SAFETY: the caller's promise.
    unsafe { free(results) }
}

/// Frees a model. Its results stay valid.
///
/// # Safety
/// `model` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_model_free(model: *mut Model) {
    // SAFETY: the caller's promise.
    unsafe { free(model) }
}
