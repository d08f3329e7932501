use crate::{Options, RewireError};
use rewire::package::Package;
#[cfg(feature = "folders")]
use rewire::program::ModelFile;
use rewire::program::{Extent, Port, Program, ScalarType, TypedTensor};
use rewire::rank::{RankError, RankOptions};
use rewire::{HostTensor, graph::DType};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Elements of a tensor in row-major order.
#[derive(Clone, Debug, PartialEq, uniffi::Enum)]
pub enum Elements {
    /// Floats. 16-bit and 64-bit floats are converted.
    Floats {
        /// One per element.
        values: Vec<f32>,
    },
    /// Integers. Shorter integers are converted.
    Integers {
        /// One per element.
        values: Vec<i64>,
    },
    /// Bools.
    Bools {
        /// One per element.
        values: Vec<bool>,
    },
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, uniffi::Record)]
pub struct NamedTensor {
    /// Its extents.
    pub shape: Vec<u64>,
    /// Its elements.
    pub elements: Elements,
}

/// An input tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Record)]
pub struct Input {
    /// The name.
    pub name: String,
    /// The element type, such as `f32`.
    pub dtype: String,
    /// Its extents; `None` if only known in a run.
    pub shape: Vec<Option<u64>>,
}

/// A model of any kind, on named tensors. Threads that share one wait for each other.
#[derive(Debug, uniffi::Object)]
pub struct Model(Mutex<Program>);

#[uniffi::export]
impl Model {
    /// Opens a model: a package or, unless the library was built only for packages, a model folder, an archive of
    /// `torch.export.save` (.pt2) or an ONNX model (.onnx). Blocks.
    #[uniffi::constructor(default(options = None))]
    pub fn open(path: String, options: Option<Options>) -> Result<Self, RewireError> {
        let options = options.map(RankOptions::from).unwrap_or_default();
        let program = opened(Path::new(&path), &options).map_err(RewireError::of_model)?;
        Ok(Self(Mutex::new(program)))
    }

    /// Opens a package from memory.
    #[uniffi::constructor(default(options = None))]
    pub fn from_bytes(bytes: Vec<u8>, options: Option<Options>) -> Result<Self, RewireError> {
        let package = Package::parse(bytes).map_err(RewireError::of_model)?;
        let options = options.map(RankOptions::from).unwrap_or_default();
        let program = Program::from_package(&package, &options).map_err(RewireError::of_model)?;
        Ok(Self(Mutex::new(program)))
    }

    /// The inputs of a run.
    pub fn inputs(&self) -> Vec<Input> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).inputs().iter().map(input).collect()
    }

    /// Runs the model on named tensors. The results are its outputs, and buffers and inputs that it changes; buffers keep their values for
    /// the next run. Blocks.
    pub fn run(&self, inputs: HashMap<String, NamedTensor>) -> Result<HashMap<String, NamedTensor>, RewireError> {
        let mut program = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = inputs.into_iter().map(|(name, tensor)| {
            let ty = program.inputs().iter().find(|port| port.name == name).map(|port| port.ty);
            Ok((name, taken(tensor, ty)?))
        });
        let given = given.collect::<Result<_, RankError>>()?;
        let results = program.run(given)?.tensors();
        Ok(results.into_iter().map(|(name, tensor)| (name, shown(&tensor))).collect())
    }
}

fn opened(path: &Path, options: &RankOptions) -> Result<Program, RankError> {
    #[cfg(feature = "folders")]
    return Program::load(&ModelFile::open(path, options.mapping)?, options);
    #[cfg(not(feature = "folders"))]
    return Program::from_package(&Package::read_mapping(path, options.mapping)?, options);
}

fn input(port: &Port) -> Input {
    let extent = |extent: &Extent| match extent {
        Extent::Known(extent) => Some(*extent as u64),
        Extent::Open(_) => None,
    };
    Input { name: port.name.clone(), dtype: port.ty.to_string(), shape: port.shape.iter().map(extent).collect() }
}

/// Converts a tensor to the model's type, if it is of that kind.
fn taken(tensor: NamedTensor, ty: Option<ScalarType>) -> Result<TypedTensor, RankError> {
    let shape: Vec<usize> = tensor.shape.iter().map(|&extent| extent as usize).collect();
    let (own, host) = match tensor.elements {
        Elements::Floats { values } => (ScalarType::F32, HostTensor::f32(shape, &values)?),
        Elements::Integers { values } => (ScalarType::I64, HostTensor::i64(shape, &values)?),
        Elements::Bools { values } => (ScalarType::Bool, HostTensor::new(shape, &values)?),
    };
    match ty.filter(|ty| ty.is_float() == own.is_float() && ty.is_integer() == own.is_integer()) {
        Some(ty) if ty.dtype() != host.dtype() => {
            let tensor = HostTensor::from_f64(ty.dtype(), host.shape().to_vec(), &host.to_f64())?;
            Ok(TypedTensor { ty, tensor })
        }
        Some(ty) => Ok(TypedTensor { ty, tensor: host }),
        None => Ok(TypedTensor { ty: own, tensor: host }),
    }
}

fn shown(typed: &TypedTensor) -> NamedTensor {
    let tensor = &typed.tensor;
    let elements = match typed.ty.dtype() {
        DType::Bool => Elements::Bools { values: tensor.to_i64().into_iter().map(|value| value != 0).collect() },
        _ if typed.ty.is_integer() => Elements::Integers { values: tensor.to_i64() },
        _ => Elements::Floats { values: tensor.to_f32() },
    };
    NamedTensor { shape: tensor.shape().iter().map(|&extent| extent as u64).collect(), elements }
}
