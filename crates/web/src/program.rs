use crate::Failure;
use crate::backend::{report_of, with_kernel};
use rewire::package::Package;
use rewire::program::{Extent, Port, Program, ScalarType, TypedTensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A package of any model, ready to run on named tensors.
#[derive(Debug)]
pub struct OpenedProgram(Program);

/// A tensor of the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct RawTensor {
    /// The element type of the array.
    pub ty: ScalarType,
    /// The extents.
    pub shape: Vec<usize>,
    /// Little-endian elements in row-major order.
    pub bytes: Vec<u8>,
}

impl OpenedProgram {
    /// Opens the bytes of a package with a backend: `auto`, `wgpu` or `cpu`.
    ///
    /// # Errors
    /// [`Failure`] for an invalid package, or for a missing or failing device.
    pub async fn open(package: Vec<u8>, kernel: &str) -> Result<Self, Failure> {
        let options = with_kernel(kernel)?;
        Ok(Self(Program::from_package_async(&Package::parse(package)?, &options).await?))
    }

    /// Runs the model. States keep their values for the next run.
    ///
    /// # Errors
    /// [`Failure`] for a tensor that does not fit, or for a failed run.
    pub async fn run(&mut self, tensors: Vec<(String, RawTensor)>) -> Result<BTreeMap<String, TypedTensor>, Failure> {
        let typed = |(name, raw): (String, RawTensor)| {
            let port = self.0.inputs().iter().find(|port| port.name == name);
            let ty = port.map_or(raw.ty, |port| of_array(raw.ty, port.ty));
            let tensor = TypedTensor::from_bytes(&name, ty, &raw.shape, &raw.bytes);
            Ok((name, tensor.map_err(Failure::of_tensor)?))
        };
        let inputs = tensors.into_iter().map(typed).collect::<Result<_, Failure>>()?;
        Ok(self.0.run_async(inputs).await?.tensors())
    }

    /// Resets states to their initial values.
    ///
    /// # Errors
    /// [`Failure`] for a state that does not accept its value.
    pub fn reset(&mut self) -> Result<(), Failure> {
        Ok(self.0.reset()?)
    }

    /// The inputs of a run as text, one tensor per line.
    pub fn describe(&self) -> String {
        let shown = |port: &Port| {
            let extents: Vec<String> = port.shape.iter().map(Extent::to_string).collect();
            format!("{}: {} [{}]", port.name, port.ty, extents.join(", "))
        };
        self.0.inputs().iter().map(shown).collect::<Vec<_>>().join("\n")
    }

    /// A description for JavaScript: input tensors and device.
    pub fn report(&self) -> Value {
        let mut report = report_of(&self.0.report());
        report["inputs"] = json!(self.0.inputs());
        report["outputs"] = json!(self.0.signature().outputs.iter().map(|output| &output.name).collect::<Vec<_>>());
        report
    }
}

/// The dtype of an input given by an array: JavaScript has no boolean arrays, and many browsers have no f16 arrays.
fn of_array(array: ScalarType, input: ScalarType) -> ScalarType {
    match (array, input) {
        (ScalarType::U8, ScalarType::Bool) | (ScalarType::U16, ScalarType::F16 | ScalarType::BF16) => input,
        _ => array,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::block_on;
    use rewire::program::ModelFile;
    use rewire::rank::PackOptions;

    fn opened(name: &str) -> OpenedProgram {
        let path = format!("{}/../../tests/pt2/{name}/model.pt2", env!("CARGO_MANIFEST_DIR"));
        let file = ModelFile::of_export(rewire::import::read(path.as_ref()).unwrap());
        let packed = file.pack(&PackOptions::default()).unwrap();
        block_on(OpenedProgram::open(packed.bytes().to_vec(), "cpu")).unwrap()
    }

    #[test]
    fn tensors_go_in_and_come_out_by_name() {
        let mut opened = opened("linear_relu");
        let name = opened.0.inputs()[0].name.clone();
        let raw = |ty, values: usize, size: usize| RawTensor {
            ty,
            shape: vec![values / 16, 16],
            bytes: vec![0; values * size],
        };
        let mut run = |name: &str, raw| block_on(opened.run(vec![(name.to_owned(), raw)]));
        let results = run(&name, raw(ScalarType::F32, 48, 4)).unwrap();
        assert_eq!(results.values().next().unwrap().tensor.shape(), [3, 4]);
        assert_eq!(run("other", raw(ScalarType::F32, 16, 4)).unwrap_err().code, "run.unknown_name");
        assert_eq!(run(&name, raw(ScalarType::I32, 16, 4)).unwrap_err().code, "rank.tensor_type");
        assert_eq!(run(&name, raw(ScalarType::F32, 16, 3)).unwrap_err().code, "request.tensor");
        assert!(opened.describe().starts_with(&format!("{name}: f32 [")), "{}", opened.describe());
        assert_eq!(opened.report()["inputs"][0]["dtype"], json!("f32"));
    }

    #[test]
    fn bytes_stand_for_booleans_and_words_for_short_floats() {
        assert_eq!(of_array(ScalarType::U8, ScalarType::Bool), ScalarType::Bool);
        assert_eq!(of_array(ScalarType::U16, ScalarType::BF16), ScalarType::BF16);
        assert_eq!(of_array(ScalarType::U8, ScalarType::F32), ScalarType::U8);
    }
}
