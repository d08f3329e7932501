//! ONNX backend cases: folders with `model.onnx` and sets of inputs and outputs as `.pb` files.

use super::exported::{ExportedError, ONNX, error_of};
use super::{CaseReport, Failure, Status, Verifier};
use rewire::write_file;
use rewire_graph_rewrite::{lower, optimize};
use rewire_import::onnx::{self, Options};
use rewire_import::{ImportError, ImportedModel, OutputKind, TypedTensor, tensors};
use rewire_runtime::{Inputs, Kernel, Model};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Relative and absolute tolerance of ONNX's official runner.
const TOLERANCE: [f64; 2] = [1e-3, 1e-7];

/// True for a folder with an ONNX backend case.
pub(super) fn is_node_case(folder: &Path) -> bool {
    folder.join(ONNX).is_file() && folder.join("test_data_set_0").is_dir()
}

/// The files `KIND_0.pb`, `KIND_1.pb`, ... of a set.
fn files(set: &Path, kind: &str) -> Vec<PathBuf> {
    (0..).map(|place| set.join(format!("{kind}_{place}.pb"))).take_while(|path| path.is_file()).collect()
}

fn bytes(path: &Path) -> Result<Vec<u8>, ExportedError> {
    std::fs::read(path).map_err(|source| ExportedError::Read { path: path.to_owned(), source })
}

fn values(set: &Path, kind: &str) -> Result<Vec<TypedTensor>, ExportedError> {
    files(set, kind).iter().map(|path| Ok(onnx::read_tensor(&bytes(path)?)?)).collect()
}

impl Verifier {
    /// Replays the model of a case with all sets.
    pub(super) fn node_case(&self, folder: &Path) -> CaseReport {
        let mut report = self.report(folder);
        (report.op, report.tolerance) = ("onnx".to_owned(), TOLERANCE[0]);
        let replayed = self.replay_node_case(folder, &mut report);
        report.or_failure(replayed)
    }

    fn replay_node_case(&self, folder: &Path, report: &mut CaseReport) -> Result<(), Failure> {
        let model = bytes(&folder.join(ONNX))?;
        let sets = (0..).map(|set| folder.join(format!("test_data_set_{set}"))).take_while(|set| set.is_dir());
        let names = onnx::input_names(&model).map_err(ExportedError::from)?;
        // Only models whose values are all tensors are supported.
        if let Err(error @ ImportError::Unsupported(_)) = onnx::from_bytes(&model) {
            return Err(ExportedError::from(error).into());
        }
        for (number, set) in sets.enumerate() {
            let inputs = names.iter().cloned().zip(values(&set, "input")?).collect();
            let expected = values(&set, "output")?;
            let computed = self.run_node_case(&model, &inputs, report)?;
            self.save_node_case(folder, &set, &computed)?;
            let wrong = |reason: String| ExportedError::Wrong { set: number, reason };
            if computed.len() != expected.len() {
                Err(wrong(format!("{} outputs instead of {}", computed.len(), expected.len())))?;
            }
            for (place, (computed, expected)) in computed.iter().zip(&expected).enumerate() {
                let error = error_of(computed, expected, TOLERANCE);
                let error = error.map_err(|reason| wrong(format!("output {place}: {reason}")))? * TOLERANCE[0];
                report.max_rel_err = Some(report.max_rel_err.map_or(error, |worst| worst.max(error)));
            }
        }
        if self.options.kernel == Kernel::Wgpu && report.cpu_steps > 0 {
            report.status = Status::Fail;
            report.message = Some(format!("{} steps ran on the CPU", report.cpu_steps));
        }
        Ok(())
    }

    fn run_node_case(
        &self,
        bytes: &[u8],
        inputs: &BTreeMap<String, TypedTensor>,
        report: &mut CaseReport,
    ) -> Result<Vec<TypedTensor>, Failure> {
        let model = specialised(bytes, inputs)?;
        let plan = lower(&optimize(model.graph.clone())?.0)?;
        let mut session = Model::load(plan, &model.parameters, self.session.clone())?.session();
        (report.gpu_steps, report.cpu_steps) = (session.report().gpu_steps, session.report().cpu_steps);
        report.adapter = session.report().adapter.unwrap_or_else(|| "cpu".into());
        let given =
            model.inputs.iter().filter_map(|spec| Some((spec.name.clone(), inputs.get(&spec.name)?.tensor.clone())));
        let outputs = session.run(&given.collect::<Inputs>())?;
        let tensors = model.outputs.iter().filter_map(|spec| match &spec.kind {
            OutputKind::Tensor(name, ty) => Some(TypedTensor { ty: *ty, tensor: outputs.get(name)?.clone() }),
            _ => None,
        });
        Ok(tensors.collect())
    }

    fn save_node_case(&self, folder: &Path, set: &Path, computed: &[TypedTensor]) -> Result<(), Failure> {
        let (Some(save), Some(name), Some(set)) = (&self.options.save, folder.file_name(), set.file_name()) else {
            return Ok(());
        };
        let save = save.join(name).join(set);
        let named = |place: usize| format!("output_{place}");
        let all = computed.iter().enumerate().map(|(place, tensor)| (named(place), tensor.clone())).collect();
        let types =
            computed.iter().enumerate().map(|(place, tensor)| (named(place), Value::from(tensor.ty.onnx_name())));
        let types = Value::Object(types.collect::<Map<_, _>>()).to_string();
        let tensors = tensors::serialize(&all).map_err(ExportedError::from)?;
        for (name, bytes) in [("outputs.safetensors", tensors.as_slice()), ("dtypes.json", types.as_bytes())] {
            let path = save.join(name);
            let written = std::fs::create_dir_all(&save).and_then(|()| write_file(&path, bytes));
            written.map_err(|error| Failure::Save { path, reason: error.to_string() })?;
        }
        Ok(())
    }
}

/// Imports the model. Inputs that shapes depend on are bound to their values.
fn specialised(bytes: &[u8], inputs: &BTreeMap<String, TypedTensor>) -> Result<ImportedModel, ExportedError> {
    let mut options = Options::default();
    let mut left: BTreeMap<&String, &TypedTensor> = inputs.iter().collect();
    loop {
        let wanted = match onnx::from_bytes_with(bytes, &options) {
            Err(ImportError::Unbound { inputs }) => inputs,
            read => return Ok(read?),
        };
        let found: Vec<_> = wanted.iter().filter_map(|name| left.remove_entry(name)).collect();
        if found.is_empty() {
            return Err(ImportError::Unbound { inputs: wanted }.into());
        }
        options = found.into_iter().fold(options, |options, (name, tensor)| options.bind(name, tensor.clone()));
    }
}
