//! Language models with expected logits: folders with a Hugging Face checkpoint, `prompts.jsonl` and `expected.safetensors`.

use super::{CaseReport, Failure, Status, Verifier};
use crate::relative_error;
use rewire::generate::GenerateError;
use rewire::generate::decoder::{Decoder, Prompt, read_items, read_prompts};
use rewire::rank::RankOptions;
use rewire::weights::{Weights, serialize};
use rewire::write_file;
use rewire_graph::HostTensor;
use rewire_runtime::Kernel;
use std::collections::BTreeMap;
use std::path::Path;

const EXPECTED: &str = "expected.safetensors";

/// True for a folder with a language model and expected logits.
pub(super) fn is_decoder_case(folder: &Path) -> bool {
    [EXPECTED, "prompts.jsonl", "config.json"].iter().all(|file| folder.join(file).is_file())
}

impl Verifier {
    /// Computes the logits of all prompts of a folder and compares them.
    pub(super) fn decoder(&self, folder: &Path) -> CaseReport {
        let mut report = self.report(folder);
        report.op = "decoder".to_owned();
        report.case = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let replayed = self.replay_decoder(folder, &mut report);
        report.or_failure(replayed)
    }

    fn replay_decoder(&self, folder: &Path, report: &mut CaseReport) -> Result<(), Failure> {
        let options = RankOptions {
            kernel: self.session.kernel,
            kernel_rules: self.session.kernel_rules.clone(),
            gpu: self.session.gpu.clone(),
            tuning: self.session.tuning,
            pipelines: self.session.pipelines.clone(),
            ..RankOptions::default()
        };
        let mut decoder = Decoder::open(folder, &options)?;
        let place = decoder.report();
        (report.gpu_steps, report.cpu_steps) = (place.gpu_steps, place.cpu_steps);
        report.adapter = place.adapter.unwrap_or_else(|| "cpu".into());
        let prompts = read_prompts(&folder.join("prompts.jsonl"))?;
        let items = match decoder.config().start() {
            Some(_) => read_items(&folder.join("trie.json"))?,
            None => vec![],
        };
        let mut computed = BTreeMap::new();
        for (place, Prompt { id, tokens }) in prompts.iter().enumerate() {
            // An encoder-decoder continues each prompt with one of the items, in turn.
            let item = id.as_u64().map_or(place, |id| id as usize).checked_rem(items.len());
            let continuation = item.and_then(|item| items.get(item)).map(Vec::as_slice).unwrap_or_default();
            computed.insert(format!("logits.{}", plain(id)), decoder.logits(tokens, continuation)?);
        }
        self.save_decoder(folder, &computed)?;
        let expected = Weights::read(&folder.join(EXPECTED)).map_err(GenerateError::from)?;
        for (name, expected) in expected.tensors().map_err(GenerateError::from)? {
            let error = match computed.get(&name) {
                Some(logits) => relative_error(&name, logits, &expected, false),
                None => Err(crate::Mismatch::Missing { name }),
            };
            match error {
                Ok(error) => report.max_rel_err = Some(report.max_rel_err.map_or(error, |worst| worst.max(error))),
                Err(mismatch) => {
                    report.status = Status::Fail;
                    report.message.get_or_insert(mismatch.to_string());
                }
            }
        }
        if report.max_rel_err.is_some_and(|error| error > report.tolerance) {
            report.status = Status::Fail;
        }
        if self.options.kernel == Kernel::Wgpu && self.options.kernel_rules.is_empty() && report.cpu_steps > 0 {
            report.status = Status::Fail;
            report.message = Some(format!("{} steps ran on the CPU", report.cpu_steps));
        }
        Ok(())
    }

    fn save_decoder(&self, folder: &Path, computed: &BTreeMap<String, HostTensor>) -> Result<(), Failure> {
        let (Some(save), Some(name)) = (&self.options.save, folder.file_name()) else { return Ok(()) };
        let path = save.join(name).join("logits.safetensors");
        let failed = |reason: String| Failure::Save { path: path.clone(), reason };
        let bytes = serialize(computed, &BTreeMap::new()).map_err(|error| failed(error.to_string()))?;
        let written = std::fs::create_dir_all(save.join(name)).and_then(|()| write_file(&path, &bytes));
        written.map_err(|error| failed(error.to_string()))
    }
}

/// An id as it appears in tensor names.
fn plain(id: &serde_json::Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
