//! Reads tensors of ONNX files.

use super::schema::{DataLocation, TensorProto};
use crate::elements::Elements;
use crate::{ImportError, ScalarType, TypedTensor, Unsupported};
use std::path::{Component, Path};

impl ScalarType {
    /// The type for a value of ONNX's `TensorProto.DataType`.
    pub(crate) fn of_onnx(code: i32) -> Option<Self> {
        Some(match code {
            1 => Self::F32,
            2 => Self::U8,
            3 => Self::I8,
            4 => Self::U16,
            5 => Self::I16,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            11 => Self::F64,
            12 => Self::U32,
            13 => Self::U64,
            16 => Self::BF16,
            17 => Self::F8E4M3,
            18 => Self::F8E4M3Fnuz,
            19 => Self::F8E5M2,
            20 => Self::F8E5M2Fnuz,
            21 => Self::U4,
            22 => Self::I4,
            23 => Self::F4E2M1,
            24 => Self::F8E8M0,
            25 => Self::U2,
            26 => Self::I2,
            _ => return None,
        })
    }

    /// The ONNX name of a type.
    pub fn onnx_name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::U2 => "UINT2",
            Self::I2 => "INT2",
            Self::U4 => "UINT4",
            Self::I4 => "INT4",
            Self::U8 => "UINT8",
            Self::I8 => "INT8",
            Self::U16 => "UINT16",
            Self::I16 => "INT16",
            Self::U32 => "UINT32",
            Self::I32 => "INT32",
            Self::U64 => "UINT64",
            Self::I64 => "INT64",
            Self::F4E2M1 => "FLOAT4E2M1",
            Self::F8E4M3 => "FLOAT8E4M3FN",
            Self::F8E4M3Fnuz => "FLOAT8E4M3FNUZ",
            Self::F8E5M2 => "FLOAT8E5M2",
            Self::F8E5M2Fnuz => "FLOAT8E5M2FNUZ",
            Self::F8E8M0 => "FLOAT8E8M0",
            Self::F16 => "FLOAT16",
            Self::BF16 => "BFLOAT16",
            Self::F32 => "FLOAT",
            Self::C64 => "COMPLEX64",
            Self::F64 => "DOUBLE",
        }
    }
}

/// The element type for a type code, or why it is not supported.
pub(super) fn element_type(name: &str, code: Option<i32>) -> Result<ScalarType, ImportError> {
    let code = code.unwrap_or_default();
    ScalarType::of_onnx(code).ok_or_else(|| {
        let reason = match code {
            8 => "strings".to_owned(),
            14 | 15 => "complex numbers".to_owned(),
            other => format!("the element type {other}"),
        };
        let mut unsupported = Unsupported::default();
        unsupported.add(name, &reason, "");
        ImportError::Unsupported(unsupported)
    })
}

/// Reads a tensor. Files of external data are in `folder`.
pub(super) fn read(proto: &TensorProto, folder: Option<&Path>) -> Result<TypedTensor, ImportError> {
    let name = proto.name.as_deref().unwrap_or("a tensor");
    let ty = element_type(name, proto.data_type)?;
    let sizes = proto.dims.iter().map(|&extent| usize::try_from(extent).ok()).collect::<Option<Vec<_>>>();
    let sizes = sizes.ok_or_else(|| ImportError::program(name, "a negative extent"))?;
    let count = sizes.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    let count = count.ok_or_else(|| ImportError::program(name, "too many elements"))?;
    let is_external = proto.data_location == Some(DataLocation::External as i32);
    let storage = match (&proto.raw_data, is_external) {
        (_, true) => external(proto, name, folder)?,
        (Some(raw), _) => raw.clone(),
        (None, _) => listed(proto, ty),
    };
    let storage = if ty.bits() < 8 { unpacked(&storage, ty, count) } else { storage };
    if count.checked_mul(ty.bytes()) != Some(storage.len()) {
        return Err(ImportError::program(name, format!("{} bytes for {count} elements of {ty}", storage.len())));
    }
    let stride = |axis: usize| sizes[axis + 1..].iter().fold(1usize, |stride, &extent| stride.saturating_mul(extent));
    let strides: Vec<usize> = (0..sizes.len()).map(stride).collect();
    let elements = Elements { storage: &storage, ty, sizes: &sizes, strides: &strides, offset: 0 };
    Ok(TypedTensor { ty, tensor: elements.tensor(name)? })
}

/// The bytes of elements that are stored as lists of numbers. Narrow types are stored in `int32_data`; packed ones as packed bytes.
fn listed(proto: &TensorProto, ty: ScalarType) -> Vec<u8> {
    let width = ty.bytes();
    match ty {
        ScalarType::F32 => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ScalarType::F64 => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ScalarType::I64 => proto.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ScalarType::U64 => proto.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ScalarType::U32 => proto.uint64_data.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        _ => proto.int32_data.iter().flat_map(|x| x.to_le_bytes().into_iter().take(width)).collect(),
    }
}

/// Expands packed elements to one byte each. The lowest bits are the first element.
fn unpacked(storage: &[u8], ty: ScalarType, count: usize) -> Vec<u8> {
    let (bits, each) = (ty.bits(), (8 / ty.bits()) as usize);
    let mask = (1u8 << bits) - 1;
    let is_signed = ty.is_integer() && !ty.is_unsigned();
    let all = storage.iter().flat_map(|byte| (0..each as u32).map(move |n| (byte >> (n * bits)) & mask));
    let signed = all.map(|x| if is_signed && x >> (bits - 1) == 1 { x | !mask } else { x });
    // If there are too many bytes, all elements are returned, so that the caller detects the wrong number.
    if storage.len() == count.div_ceil(each) { signed.take(count).collect() } else { signed.collect() }
}

/// Reads bytes from a file in the model's folder.
fn external(proto: &TensorProto, name: &str, folder: Option<&Path>) -> Result<Vec<u8>, ImportError> {
    let entry = |key: &str| {
        let found = proto.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        found.and_then(|entry| entry.value.as_deref())
    };
    let folder = folder.ok_or_else(|| ImportError::program(name, "external data of a model without a folder"))?;
    let location = entry("location").ok_or_else(|| ImportError::program(name, "external data without a location"))?;
    let inside = Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        return Err(ImportError::program(name, format!("external data outside of the model's folder: `{location}`")));
    }
    let number = |key: &str| -> Result<Option<u64>, ImportError> {
        let parsed = entry(key).map(str::parse).transpose();
        parsed.map_err(|_| ImportError::program(name, format!("external data: the {key} is not a number")))
    };
    let path = folder.join(location);
    let failed = |source| ImportError::Io { path: path.display().to_string(), source };
    // A symbolic link could point outside the folder.
    let [real, root] = [path.as_path(), folder].map(|path| path.canonicalize().map_err(failed));
    if !real?.starts_with(root?) {
        return Err(ImportError::program(name, format!("external data outside of the model's folder: `{location}`")));
    }
    let mut file = std::fs::File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let offset = number("offset")?.unwrap_or(0);
    let length = number("length")?.unwrap_or(size.saturating_sub(offset));
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(ImportError::program(name, format!("external data beyond the end of `{location}`")));
    }
    let mut bytes = vec![];
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(offset)).map_err(failed)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, length), &mut bytes).map_err(failed)?;
    Ok(bytes)
}
