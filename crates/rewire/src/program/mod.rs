//! Runs models of any kind on named tensors: a [`ModelFile`] detects the kind of a file, and a [`Program`] runs it.
//!
//! ```
//! use rewire::program::{ModelFile, Program, TypedTensor};
//! use rewire::rank::RankOptions;
//! use rewire::{HostTensor, Kernel};
//! use std::collections::BTreeMap;
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pt2/linear_relu/model.pt2");
//! let file = ModelFile::of_export(rewire::import::read(path.as_ref())?);
//! let mut program = Program::load(&file, &RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() })?;
//! let x = TypedTensor::from(HostTensor::f32([2, 16], &[0.5; 32])?);
//! let results = program.run(BTreeMap::from([(program.inputs()[0].name.clone(), x)]))?;
//! assert_eq!(results.tensors().values().next().map(|y| y.tensor.shape()), Some(&[2, 4][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod results;
mod signature;

#[cfg(feature = "files")]
pub use file::Folder;
pub(crate) use file::config_of_package;
pub use file::{ModelFile, ModelKind};
pub use results::{ResultValue, Results};
pub use rewire_import::{OutputKind, OutputSpec, ScalarType, TypedTensor};
pub use signature::{Extent, Port, Signature, TypedInput};

use crate::package::Package;
use crate::rank::{Precision, RankError, RankOptions, names_of_tables, store};
use rewire_graph::{DType, HostTensor};
use rewire_graph_rewrite::cost::Count;
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Detail, Inputs, Model, ModelOptions, Profile, Report, RunError, Session, block_on};
use signature::described;
use std::collections::{BTreeMap, HashMap};

/// A loaded model with its states.
#[derive(Debug)]
pub struct Program {
    session: Session,
    signature: Signature,
    inputs: Vec<Port>,
    /// Initial values of states.
    states: HashMap<String, HostTensor>,
}

impl Program {
    /// Loads a model.
    ///
    /// # Errors
    /// [`RankError`] describes the invalid part, or the reason why no device is available.
    pub async fn load_async(file: &ModelFile, options: &RankOptions) -> Result<Self, RankError> {
        match file {
            ModelFile::Package(package) => Self::from_package_async(package, options).await,
            _ => Self::load_with_async(file, options.precision, options.of_model()).await,
        }
    }

    /// Loads a package without tracing or rewriting. A program that only loads packages does not link the tracing code.
    ///
    /// # Errors
    /// As [`Program::load_async`].
    pub async fn from_package_async(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        let plan = stored(package.plan()?, options.precision)?;
        let with = ModelOptions { clamp_ids: false, ..package.of_model(options)? };
        let signature = package.signature().cloned().unwrap_or_else(|| Signature::of_plan(&plan));
        let states = package.states()?.into_iter().collect();
        Self::of_model(Model::load_async(plan, package.weights(), with).await?, signature, states)
    }

    async fn load_with_async(file: &ModelFile, precision: Precision, options: ModelOptions) -> Result<Self, RankError> {
        let plan = file.plan(precision)?;
        let with = ModelOptions { clamp_ids: false, ..options };
        let (signature, states) = (file.signature(&plan), file.states()?);
        let model = match file {
            ModelFile::Exported(model) => Model::load_async(plan, &model.parameters, with).await?,
            _ => Model::load_async(plan, &file.weights()?, with).await?,
        };
        Self::of_model(model, signature, states)
    }

    fn of_model(model: Model, signature: Signature, states: HashMap<String, HostTensor>) -> Result<Self, RankError> {
        let inputs = described(model.plan(), &signature);
        let mut program = Self { session: model.session(), signature, inputs, states };
        program.reset()?;
        Ok(program)
    }

    /// [`Program::load_async`], blocking.
    ///
    /// # Errors
    /// As [`Program::load_async`].
    pub fn load(file: &ModelFile, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::load_async(file, options))
    }

    /// [`Program::load`] with options of the runtime.
    ///
    /// # Errors
    /// As [`Program::load_async`].
    pub fn load_with(file: &ModelFile, options: ModelOptions) -> Result<Self, RankError> {
        block_on(Self::load_with_async(file, Precision::default(), options))
    }

    /// [`Program::from_package_async`], blocking.
    ///
    /// # Errors
    /// As [`Program::load_async`].
    pub fn from_package(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::from_package_async(package, options))
    }

    /// The model, without the states of this program.
    pub fn model(&self) -> &Model {
        self.session.model()
    }

    /// The inputs of a run.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The names and element types of the inputs and outputs of a run.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Describes where its kernels run.
    pub fn report(&self) -> Report {
        self.session.report()
    }

    /// Resets states to their initial values.
    ///
    /// # Errors
    /// [`RankError::Run`] if a state does not accept its value.
    pub fn reset(&mut self) -> Result<(), RankError> {
        for (name, tensor) in &self.states {
            self.session.set_state(name, tensor.clone())?;
        }
        Ok(())
    }

    /// Runs the model. Unknown tensors are an error. States keep their values for the next run.
    ///
    /// # Errors
    /// [`RankError::TensorType`] and [`RankError::Run`] name the invalid tensor or the failure.
    pub async fn run_async(&mut self, tensors: BTreeMap<String, TypedTensor>) -> Result<Results, RankError> {
        let inputs = self.bound(tensors)?;
        let outputs = self.session.run_async(&inputs).await?;
        let mut states = BTreeMap::new();
        if !self.signature.mutations.is_empty() {
            states = self.session.states_async().await?;
        }
        Ok(Results::new(&self.signature, &outputs, &states))
    }

    /// [`Program::run_async`], blocking.
    ///
    /// # Errors
    /// As [`Program::run_async`].
    pub fn run(&mut self, tensors: BTreeMap<String, TypedTensor>) -> Result<Results, RankError> {
        block_on(self.run_async(tensors))
    }

    /// Runs the model and times every kernel. Returns the times, and bytes and operations of every step of the plan. States keep
    /// their values for the next run.
    ///
    /// # Errors
    /// As [`Program::run_async`].
    pub fn profile(&mut self, tensors: BTreeMap<String, TypedTensor>) -> Result<(Profile, Vec<Count>), RankError> {
        let inputs = self.bound(tensors)?;
        let counts = self.session.counts(&inputs)?;
        let (_, profile) = self.session.run_timed(&inputs, Detail::Steps)?;
        Ok((profile, counts))
    }

    /// The inputs of a run, in their storage types.
    fn bound(&self, tensors: BTreeMap<String, TypedTensor>) -> Result<Inputs, RankError> {
        let mut inputs = Inputs::new();
        for (name, tensor) in tensors {
            let Some(port) = self.inputs.iter().find(|port| port.name == name) else {
                let known = self.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(RunError::UnknownName { name, known }.into());
            };
            inputs.insert(name, converted(port, tensor)?);
        }
        Ok(inputs)
    }
}

/// A plan with floats stored at a precision. Parameters that are only read by rows are tables.
///
/// # Errors
/// [`RankError`] names a type that does not support the width of a parameter's rows.
pub fn stored(mut plan: Plan, precision: Precision) -> Result<Plan, RankError> {
    store(&names_of_tables(&plan), &mut plan, precision)?;
    Ok(plan)
}

/// Converts a tensor to the storage type of an input. Types with the same computation are interchangeable.
fn converted(port: &Port, given: TypedTensor) -> Result<HostTensor, RankError> {
    let TypedTensor { ty, tensor } = given;
    let is_computed_alike = ty.is_float() && port.ty.is_float() && ty.dtype() == port.ty.dtype();
    if ty != port.ty && !is_computed_alike {
        return Err(RankError::TensorType { name: port.name.clone(), expected: port.ty, actual: ty });
    }
    match port.dtype {
        DType::U32 => Ok(HostTensor::from_f64(DType::U32, tensor.shape().to_vec(), &tensor.to_f64())?),
        _ => Ok(tensor),
    }
}
