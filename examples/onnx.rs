//! An ONNX model with two threads, for images of several sizes. It makes images twice as high and three times as wide, and is compiled once.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example onnx
//! ```

use rewire::prelude::*;
use rewire::program::{ModelFile, Program, TypedTensor};
use rewire::{Mapping, ThreadPool, ThreadPoolOptions};
use std::error::Error;

/// A case of the standard with symbolic sizes.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/onnx/test_q_resize_symbolic/model.onnx");

/// Prints inputs, and the shapes of results.
pub fn main() -> Result<(), Box<dyn Error>> {
    let model = ModelFile::open(MODEL.as_ref(), Mapping::default())?;
    let threads = ThreadPool::new(ThreadPoolOptions { threads: Some(2), ..Default::default() })?;
    let options = ModelOptions { kernel: Kernel::Cpu, threads: Some(threads), ..ModelOptions::default() };
    let mut program = Program::load_with(&model, options)?;
    for input in program.inputs() {
        let shape: Vec<String> = input.shape.iter().map(ToString::to_string).collect();
        println!("input {}: {} [{}]", input.name, input.ty, shape.join(", "));
    }
    for (height, width) in [(2, 3), (5, 1)] {
        let image = HostTensor::f32([1, 3, height, width], &vec![0.5; 3 * height * width])?;
        let results = program.run([("x".to_owned(), TypedTensor::from(image))].into())?;
        for (name, result) in results.tensors() {
            println!("{height} x {width}: {name} {:?}", result.tensor.shape());
        }
    }
    Ok(())
}
