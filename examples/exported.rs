//! Runs a model that PyTorch exported (`.pt2`), an ONNX file or a package on named tensors:
//!
//! ```sh
//! cargo run --release -p rewire-examples --example exported -- tests/pt2/linear_relu/model.pt2
//! ```

use rewire::Mapping;
use rewire::prelude::*;
use rewire::program::{Extent, ModelFile, Port, Program, TypedTensor};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Extents that a run decides, such as the batch.
const OPEN: usize = 3;

/// Values that rise by 0.1 from -1 to 1, and begin again.
fn ramp(input: &Port) -> Result<TypedTensor, Box<dyn Error>> {
    let extent = |extent: &Extent| if let Extent::Known(known) = extent { *known } else { OPEN };
    let shape: Vec<usize> = input.shape.iter().map(extent).collect();
    let values: Vec<f64> = (0..shape.iter().product()).map(|n| (n % 21) as f64 / 10.0 - 1.0).collect();
    Ok(TypedTensor { ty: input.ty, tensor: HostTensor::from_f64(input.ty.dtype(), shape, &values)? })
}

/// Extents as numbers, or as the names of those that a run decides.
fn shape(input: &Port) -> String {
    input.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Runs a model on made-up values, and prints shapes and means.
pub fn run(model: &Path) -> Result<(), Box<dyn Error>> {
    let file = ModelFile::open(model, Mapping::default())?;
    let mut program = Program::load(&file, &RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() })?;
    let mut inputs = BTreeMap::new();
    for input in program.inputs() {
        println!("input {} of shape [{}]", input.name, shape(input));
        inputs.insert(input.name.clone(), ramp(input)?);
    }
    for (name, result) in program.run(inputs)?.tensors() {
        println!("{name} of shape {:?}, mean {:.4}", result.tensor.shape(), mean(&result.tensor));
    }
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1).ok_or("expected a model file")?.as_ref())
}

fn mean(tensor: &HostTensor) -> f64 {
    let values = tensor.to_f64();
    values.iter().sum::<f64>() / values.len() as f64
}
