use crate::Failure;
use crate::backend::{report_of, with_kernel};
use rewire::generate::decoder::Decoder;
use rewire::generate::{Found, Sampling};
use rewire::package::Package;
use rewire::rank::Description;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// A package of a language model, ready to generate.
#[derive(Debug)]
pub struct OpenedDecoder {
    decoder: Decoder,
    description: String,
}

/// Prompts, and options of a generation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    prompts: Vec<Vec<u32>>,
    items: Option<Vec<Vec<u32>>>,
    num_beams: usize,
    max_new_tokens: usize,
    temperature: f64,
    top_k: Option<usize>,
    top_p: f64,
    seed: u64,
    stop: Vec<u32>,
}

impl OpenedDecoder {
    /// Opens the bytes of a package with a backend: `auto`, `wgpu` or `cpu`.
    ///
    /// # Errors
    /// [`Failure`] for an invalid package, or for a missing or failing device.
    pub async fn open(package: Vec<u8>, kernel: &str) -> Result<Self, Failure> {
        let options = with_kernel(kernel)?;
        let package = Package::parse(package)?;
        let decoder = Decoder::from_package_async(&package, &options).await?;
        Ok(Self { decoder, description: Description::of_package(&package)?.to_string() })
    }

    /// Generates for prompts and options in JSON: the results of each prompt, best first. After each token, `watch`
    /// receives the index of a prompt and the tokens of its best prefix; if it breaks, the prompt has no results.
    ///
    /// # Errors
    /// [`Failure`] for an invalid option or prompt, or for a failed run.
    pub async fn generate(
        &mut self,
        asked: &str,
        watch: impl AsyncFnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> Result<Value, Failure> {
        let asked: Asked = serde_json::from_str(asked).map_err(Failure::of_option)?;
        let sampling = Sampling {
            tokens: asked.max_new_tokens,
            temperature: asked.temperature,
            top_k: asked.top_k,
            top_p: asked.top_p,
            seed: asked.seed,
            stop: asked.stop,
        };
        let prompts: Vec<&[u32]> = asked.prompts.iter().map(Vec::as_slice).collect();
        let found = self.decoder.answer_async(&prompts, (asked.items, asked.num_beams), sampling, watch).await?;
        let entry = |Found { codes, items, score }: &Found| json!({ "tokens": codes, "score": score, "items": items });
        Ok(found.iter().map(|found| found.iter().map(entry).collect::<Value>()).collect())
    }

    /// The inputs and outputs of the model as text.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// A description for JavaScript: vocabulary and device.
    pub fn report(&self) -> Value {
        let mut report = report_of(&self.decoder.report());
        report["vocabSize"] = json!(self.decoder.config().vocabulary());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::Mapping;
    use rewire::block_on;
    use rewire::program::ModelFile;
    use rewire::rank::PackOptions;

    fn opened() -> OpenedDecoder {
        let folder = format!("{}/../../tests/decoders/qwen3", env!("CARGO_MANIFEST_DIR"));
        let file = ModelFile::open(folder.as_ref(), Mapping::Large).unwrap();
        let packed = file.pack(&PackOptions::default()).unwrap();
        block_on(OpenedDecoder::open(packed.bytes().to_vec(), "cpu")).unwrap()
    }

    fn asked(changed: &Value) -> String {
        let mut asked = json!({
            "prompts": [[87, 173, 158], [9]], "items": null, "numBeams": 2, "maxNewTokens": 3, "temperature": 0,
            "topK": null, "topP": 1, "seed": 0, "stop": [],
        });
        asked.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        asked.to_string()
    }

    #[test]
    fn prompts_go_in_as_json_and_sequences_come_out() {
        let mut opened = opened();
        let mut generate = |changed: Value, ended: usize| {
            let watch = async |prompt, _: &[u32]| match prompt == ended {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            block_on(opened.generate(&asked(&changed), watch))
        };
        let items = json!([[319, 360, 366], [7, 21], [319, 338, 370]]);
        let found = generate(json!({ "items": items }), 2).unwrap();
        assert_eq!((found.as_array().unwrap().len(), found[0].as_array().unwrap().len()), (2, 2));
        let place = found[0][0]["items"][0].as_u64().unwrap() as usize;
        assert!(found[0][0]["tokens"] == items[place] && found[0][0]["score"].as_f64() > found[0][1]["score"].as_f64());
        let drawn = generate(json!({}), 2).unwrap();
        assert_eq!(drawn[1][0]["tokens"].as_array().unwrap().len(), 3);
        assert_eq!(generate(json!({}), 0).unwrap(), json!([[], drawn[1]]));
        for (changed, code) in [
            (json!({ "prompts": [[400]] }), "generate.token"),
            (json!({ "topP": 0 }), "generate.sampling"),
            (json!({ "beams": 3 }), "option"),
        ] {
            assert_eq!(generate(changed, 2).unwrap_err().code, code);
        }
        assert_eq!(opened.report()["vocabSize"], 400);
        assert!(!opened.describe().is_empty());
    }
}
