//! Models on tables and on named tensors.

use super::{table, tensors};
use crate::{OpenedPredictor, OpenedProgram};
use js_sys::Object;
use wasm_bindgen::prelude::*;

/// An imported model, ready to predict.
#[wasm_bindgen]
#[derive(Clone, Debug)]
pub struct Predictor(OpenedPredictor);

#[wasm_bindgen]
impl Predictor {
    /// Opens a package with the backend `auto`, `wgpu` or `cpu`.
    pub async fn open(package: Vec<u8>, kernel: String) -> Result<Predictor, JsValue> {
        Ok(Self(OpenedPredictor::open(package, &kernel).await?))
    }

    /// Predicts the rows of an object of columns; returns an object of typed arrays.
    pub async fn predict(&self, columns: Object) -> Result<Object, JsValue> {
        let columns = table::columns(&columns, self.0.columns())?;
        Ok(table::predictions(self.0.outputs(), &self.0.predict(&columns).await?))
    }

    /// The inputs and outputs of the model as text.
    pub fn describe(&self) -> String {
        self.0.describe()
    }

    /// A description of the model and its device, as JSON.
    pub fn report(&self) -> String {
        self.0.report().to_string()
    }
}

/// A model of any kind, ready to run on named tensors.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Model(OpenedProgram);

#[wasm_bindgen]
impl Model {
    /// Opens a package with the backend `auto`, `wgpu` or `cpu`.
    pub async fn open(package: Vec<u8>, kernel: String) -> Result<Model, JsValue> {
        Ok(Self(OpenedProgram::open(package, &kernel).await?))
    }

    /// Runs the model on an object of tensors by name; returns an object of tensors by name.
    pub async fn run(&mut self, named: Object) -> Result<Object, JsValue> {
        Ok(tensors::results(&self.0.run(tensors::tensors(&named)?).await?))
    }

    /// Resets states to their initial values.
    pub fn reset(&mut self) -> Result<(), JsValue> {
        Ok(self.0.reset()?)
    }

    /// The inputs of the model as text.
    pub fn describe(&self) -> String {
        self.0.describe()
    }

    /// A description of the model and its device, as JSON.
    pub fn report(&self) -> String {
        self.0.report().to_string()
    }
}
