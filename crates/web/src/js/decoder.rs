use crate::OpenedDecoder;
use js_sys::{Function, Promise, Uint32Array};
use std::ops::ControlFlow;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// A language model, ready to generate.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Decoder(OpenedDecoder);

#[wasm_bindgen]
impl Decoder {
    /// Opens a package with the backend `auto`, `wgpu` or `cpu`.
    pub async fn open(package: Vec<u8>, kernel: String) -> Result<Decoder, JsValue> {
        Ok(Self(OpenedDecoder::open(package, &kernel).await?))
    }

    /// Generates for prompts and options in JSON; the result is JSON. After each token, `on_token` receives the index
    /// of a prompt and its tokens, and returns a promise of whether the prompt continues.
    pub async fn generate(&mut self, asked: String, on_token: Function) -> Result<String, JsValue> {
        let watch = async |prompt: usize, tokens: &[u32]| {
            let told = on_token.call2(&JsValue::NULL, &(prompt as f64).into(), &Uint32Array::from(tokens));
            let answer = match told {
                Ok(promise) => JsFuture::from(Promise::resolve(&promise)).await,
                Err(error) => Err(error),
            };
            match answer.is_ok_and(|answer| answer.is_truthy()) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        Ok(self.0.generate(&asked, watch).await?.to_string())
    }

    /// The inputs and outputs of the model as text.
    pub fn describe(&self) -> String {
        self.0.describe().to_owned()
    }

    /// A description of the model and its device, as JSON.
    pub fn report(&self) -> String {
        self.0.report().to_string()
    }
}
