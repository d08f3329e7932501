use crate::backend::{report_of, with_kernel};
use crate::{Failure, Requests};
use rewire::package::Package;
use rewire::rank::{Batch, Column, RankedColumns, Ranker};
use serde_json::{Value, json};

/// A package, ready to rank.
#[derive(Clone, Debug)]
pub struct Opened(Ranker);

impl Opened {
    /// Opens the bytes of a package with a backend: `auto`, `wgpu` or `cpu`.
    ///
    /// # Errors
    /// [`Failure`] for an invalid package, or for a missing or failing device.
    pub async fn open(package: Vec<u8>, kernel: &str) -> Result<Self, Failure> {
        let options = with_kernel(kernel)?;
        Ok(Self(Ranker::from_package_async(&Package::parse(package)?, &options).await?))
    }

    /// Ranks requests, one line of JSON each.
    ///
    /// # Errors
    /// [`Failure`] for the first line that does not fit the model, or for a failed run.
    pub async fn rank_json(&self, lines: &str) -> Result<RankedColumns, Failure> {
        let mut batch = self.0.batch();
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        lines.into_iter().try_for_each(|line| batch.push_json(line.as_bytes()))?;
        self.rank(&batch).await
    }

    /// Ranks requests given as columns.
    ///
    /// # Errors
    /// [`Failure`] for the first row that does not fit the model, or for a failed run.
    pub async fn rank_columns(&self, requests: &Requests) -> Result<RankedColumns, Failure> {
        let mut batch = self.0.batch();
        batch.extend(&requests.columns())?;
        self.rank(&batch).await
    }

    async fn rank(&self, batch: &Batch) -> Result<RankedColumns, Failure> {
        Ok(self.0.rank_batch_async(batch).await?.into_iter().collect())
    }

    /// Names of the tasks, in the order of logits.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.0.tasks().iter().map(|task| task.name.as_str())
    }

    /// The inputs and outputs of the model as text, with an example request as a line of JSON.
    pub fn describe(&self) -> String {
        self.0.describe().to_string()
    }

    /// A description for JavaScript: tasks, features of requests, and device.
    pub fn report(&self) -> Value {
        let mut report = report_of(&self.0.report());
        let columns = |columns: &[Column]| -> Vec<Value> {
            let rows = |column: &Column| column.table.as_ref().map(|table| table.rows);
            let column = |own: &Column| json!({ "name": own.name, "rows": rows(own), "required": own.required });
            columns.iter().map(column).collect()
        };
        let schema = self.0.schema();
        report["tasks"] = json!(self.tasks().collect::<Vec<_>>());
        report["maxSeqLen"] = json!(self.0.max_seq_len());
        report["contextual"] = json!(columns(&schema.contextual));
        report["history"] = json!(columns(&schema.history));
        report["candidates"] = json!(columns(&schema.candidates));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lists, Values};
    use rewire::block_on;
    use rewire::rank::{PackOptions, User, pack};
    use rewire::weights::Weights;

    const CONFIG: &str = include_str!("../../cli/demo/model/config.json");
    const WEIGHTS: &[u8] = include_bytes!("../../cli/demo/model/model.safetensors");
    const USERS: &str = include_str!("../../cli/demo/interactions.jsonl");

    fn opened() -> Opened {
        let weights = Weights::parse(WEIGHTS).unwrap();
        let package = pack("the demo", CONFIG, &weights, &PackOptions::default()).unwrap();
        block_on(Opened::open(package.bytes().to_vec(), "cpu")).unwrap()
    }

    fn integers(list: &Value) -> Values {
        Values::I64(list.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect())
    }

    fn lists(group: &Value) -> Vec<(String, Lists)> {
        let group = group.as_object().unwrap();
        let list = |(name, values): (&String, &Value)| {
            let offsets = Values::U32(vec![0, values.as_array().unwrap().len() as u32]);
            (name.clone(), Lists { offsets, values: integers(values) })
        };
        group.iter().map(list).collect()
    }

    #[test]
    fn typed_arrays_rank_as_json_does() {
        let opened = opened();
        let line = USERS.lines().nth(2).unwrap();
        let user: Value = serde_json::from_str(line).unwrap();
        let contextual = ["age_bucket", "country"].map(|name| (name.to_owned(), integers(&json!([user[name]]))));
        let requests = Requests {
            users: vec![User::from(user["user"].as_str().unwrap())],
            contextual: contextual.into(),
            history: lists(&user["history"]),
            candidates: lists(&user["candidates"]),
        };
        let of_json = block_on(opened.rank_json(&format!("\n{line}\n"))).unwrap();
        assert_eq!(of_json.items.len(), user["candidates"]["item_id"].as_array().unwrap().len());
        assert_eq!(block_on(opened.rank_columns(&requests)).unwrap(), of_json);
        let cut = Requests { history: vec![], ..requests };
        assert_eq!(block_on(opened.rank_columns(&cut)).unwrap_err().code, "rank.request");
        assert_eq!(block_on(opened.rank_json("{}")).unwrap_err().code, "request.text");
        assert!(block_on(opened.rank_json("")).unwrap().users.is_empty());
        let description = opened.describe();
        let example = block_on(opened.rank_json(description.lines().last().unwrap())).unwrap();
        assert!(description.contains("ids 0 to 1499") && !example.items.is_empty(), "{description}");
    }

    #[test]
    fn a_report_tells_what_requests_hold_and_what_runs_them() {
        let report = opened().report();
        assert_eq!(report["tasks"], json!(["is_click", "is_like"]));
        assert_eq!(
            (&report["kernel"], &report["adapter"], &report["gpuSteps"]),
            (&json!("cpu"), &Value::Null, &json!(0))
        );
        assert!(report["cpuSteps"].as_u64().unwrap() > 0);
        assert_eq!(report["candidates"][0], json!({ "name": "item_id", "rows": 1500, "required": true }));
        assert_eq!(block_on(Opened::open(vec![], "npu")).unwrap_err().code, "option");
    }
}
