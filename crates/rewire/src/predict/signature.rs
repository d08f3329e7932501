use super::apart::Apart;
use super::imported::{is_table, pipeline_of};
use super::{Column, EncodeError, Feature, FeatureValues, Features};
use crate::package::PackageError;
use crate::rank::RankError;
use rewire_families::{HISTORIES, Interface, OutputRows};
use rewire_graph::{Dim, HostTensor};
use rewire_graph_rewrite::plan::{Named, Plan, PlanOutput};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// An output column of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredictedColumn {
    /// The reference's name, such as `probs_ctr`.
    pub name: String,
    /// True if a row is a list of classes or vector elements rather than one number.
    pub is_list: bool,
}

/// An input column of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadColumn {
    /// The full name of its feature.
    pub name: String,
    /// Rows of the embedding table if values are ids from 0; `None` for numbers.
    pub rows: Option<usize>,
    /// True if the table grows: ids are any integers or strings.
    pub raw: bool,
    /// Values per row, or per step of a sequence; 0 for any number.
    pub value_dim: usize,
    /// True if every id has a weight.
    pub weighted: bool,
    /// True if a row is a sequence.
    pub sequence: bool,
    /// The feature groups that use it.
    pub groups: Vec<String>,
}

/// A task with a label column, which a table may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabelledTask {
    /// The name; empty if the model has one task.
    pub name: String,
    /// The column of labels.
    pub label: String,
    /// The bits of a label that make it positive; if `None`, any value above 0 is positive.
    pub bitmask: Option<i64>,
    /// The output to order items by for this task.
    pub output: String,
}

impl LabelledTask {
    /// True for a positive label.
    pub fn is_positive(&self, label: i64) -> bool {
        self.bitmask.map_or(label > 0, |bits| label & bits != 0)
    }

    /// The tasks of a configuration with an output of probabilities.
    fn all_of(pipeline: &Value, outputs: &[PredictedColumn]) -> Vec<Self> {
        let model = pipeline.get("model_config").and_then(Value::as_object).into_iter().flatten();
        let towers = model.filter_map(|(_, message)| {
            let towers = message.get("task_towers").or_else(|| message.pointer("/fusion_mtl_tower/task_configs"));
            towers?.as_array()
        });
        let text = |task: &Value, key: &str| task.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut named: Vec<(String, String, Option<i64>)> = towers
            .flatten()
            .filter_map(|task| {
                let name = text(task, "tower_name").or_else(|| text(task, "task_name"))?;
                let bits = task.get("task_bitmask").and_then(Value::as_i64).filter(|&bits| bits != 0);
                Some((name, text(task, "label_name")?, bits))
            })
            .collect();
        if named.is_empty() {
            let first = pipeline.pointer("/data_config/label_fields/0").and_then(Value::as_str);
            named.extend(first.map(|label| (String::new(), label.to_owned(), None)));
        }
        let with_output = |(name, label, bitmask): (String, String, Option<i64>)| {
            let suffix = if name.is_empty() { String::new() } else { format!("_{name}") };
            let is_of_task = |output: &&PredictedColumn| {
                let rest = output.name.strip_prefix("probs1").or_else(|| output.name.strip_prefix("probs"));
                !output.is_list && rest.is_some_and(|rest| rest == suffix || name.is_empty())
            };
            let output = outputs.iter().find(is_of_task)?.name.clone();
            Some(Self { name, label, bitmask, output })
        };
        named.into_iter().filter_map(with_output).collect()
    }
}

/// Maps tables to the inputs and outputs of a plan, without tracing.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    interface: Interface,
    columns: Vec<String>,
    outputs: Vec<PredictedColumn>,
    tasks: Vec<LabelledTask>,
    is_by_candidate: bool,
    apart: Option<Apart>,
}

/// Checks that tables have the number of rows that ids of columns are checked against.
fn check_tables(interface: &Interface, plan: &Plan) -> Result<(), PackageError> {
    for Named { name, shape, .. } in plan.parameters().filter(|parameter| is_table(parameter.name)) {
        let table = name.rsplit_once(".embedding_bags.").or_else(|| name.rsplit_once(".embeddings."));
        let table = table.and_then(|(_, table)| table.strip_suffix(".weight"));
        let rows = shape.first().and_then(Dim::as_const).unwrap_or_default();
        if !table.is_some_and(|table| interface.features.has_table(table, rows)) {
            let reason = format!("has a table `{name}` of {rows} rows, which the configuration has not");
            return Err(PackageError::part("plan", reason));
        }
    }
    Ok(())
}

impl Signature {
    /// Parses the text of a `config.json`, which errors refer to as `name`, and combines it with a plan of its model.
    ///
    /// # Errors
    /// [`RankError::Pipeline`], and [`RankError::Package`] if the plan does not match the configuration.
    pub fn new(name: &str, config: &str, plan: &Plan) -> Result<Self, RankError> {
        let bad = |problems| RankError::Pipeline { name: name.to_owned(), problems };
        let pipeline = pipeline_of(name, config)?;
        let interface = Interface::new(&pipeline).map_err(bad)?;
        let states = plan.states();
        let apart = if states.is_empty() { None } else { Some(Apart::new(&interface, plan)?) };
        let columns = match &apart {
            Some(apart) => apart.columns(),
            None => interface.columns(plan.inputs().map(|input| input.name)),
        };
        let read: HashSet<&str> = columns.iter().map(String::as_str).collect();
        let is_of_feature = |input: &str| input.rsplit_once('.').is_some_and(|(feature, _)| read.contains(feature));
        let is_of_history = |input: &str| input.strip_prefix(HISTORIES).is_some_and(is_of_feature);
        let is_input = |input: &str| {
            is_of_feature(input) || apart.as_ref().is_some_and(|apart| apart.is_input(input) || is_of_history(input))
        };
        if let Some(other) = plan.inputs().find(|input| !is_input(input.name)) {
            let reason = format!("reads `{}`, which is not an input of the configuration's model", other.name);
            return Err(PackageError::part("plan", reason).into());
        }
        check_tables(&interface, plan)?;
        // Masks and states are not columns of a table.
        let is_column = |output: &&PlanOutput| output.dtype.is_float() && !states.contains_key(output.name.as_str());
        let floats = || plan.outputs.iter().filter(is_column);
        let is_of_items = |output: &str| interface.rows_of(output) != OutputRows::Batch;
        let is_by_candidate = floats().all(|output| is_of_items(&output.name));
        let outputs = floats().map(|output| PredictedColumn {
            is_list: output.shape.len() > 1 || !is_by_candidate && is_of_items(&output.name),
            name: output.name.clone(),
        });
        let outputs: Vec<PredictedColumn> = outputs.collect();
        let tasks = LabelledTask::all_of(&pipeline, &outputs);
        Ok(Self { interface, columns, outputs, tasks, is_by_candidate, apart })
    }

    /// The features of the configuration.
    pub fn features(&self) -> &Features {
        &self.interface.features
    }

    /// The cache layout of histories, if the plan computes them separately from candidates.
    pub fn apart(&self) -> Option<&Apart> {
        self.apart.as_ref()
    }

    /// The columns of a table that the model reads.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The output columns.
    pub fn outputs(&self) -> &[PredictedColumn] {
        &self.outputs
    }

    /// The tasks.
    pub fn tasks(&self) -> &[LabelledTask] {
        &self.tasks
    }

    /// True for list rankers: all outputs have one row per item.
    pub fn is_by_candidate(&self) -> bool {
        self.is_by_candidate
    }

    /// True for an output with one row per item.
    pub fn is_of_items(&self, output: &str) -> bool {
        self.interface.rows_of(output) != OutputRows::Batch
    }

    /// The feature that holds the items of each row, if every item has a prediction.
    pub fn item(&self) -> Option<&Feature> {
        let features = &self.interface.features;
        let candidates = features.group("candidate").filter(|_| self.is_by_candidate)?;
        features.features.get(candidates.feature_names.first()?)
    }

    /// The inputs of the plan from the columns of a table.
    pub fn encode<'c>(
        &self,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        self.interface.features.encode(&self.columns, column, rows)
    }

    /// The number of items of each row, from the inputs, if outputs have one row per item.
    pub fn counts(&self, inputs: &[(String, HostTensor)]) -> Option<Vec<usize>> {
        let lengths = self.outputs.iter().find_map(|output| match self.interface.rows_of(&output.name) {
            OutputRows::Steps { lengths } => Some(lengths),
            OutputRows::Batch => None,
        })?;
        let (_, lengths) = inputs.iter().find(|(name, _)| *name == lengths)?;
        Some(lengths.to_i64().into_iter().map(|length| usize::try_from(length).unwrap_or(0)).collect())
    }

    /// The columns that the model reads, with their valid values.
    pub fn read(&self) -> Vec<ReadColumn> {
        let features = self.columns.iter().filter_map(|name| self.interface.features.features.get(name));
        features.map(|feature| self.column_of(feature)).collect()
    }

    fn column_of(&self, feature: &Feature) -> ReadColumn {
        let groups = self.interface.features.groups.iter().filter(|group| {
            let nested = group.sequence_groups.iter().flat_map(|inner| &inner.feature_names);
            group.feature_names.iter().chain(nested).any(|name| *name == feature.name)
        });
        ReadColumn {
            name: feature.name.clone(),
            rows: match feature.values {
                FeatureValues::Ids { rows, .. } => Some(rows),
                FeatureValues::Floats { .. } => None,
            },
            raw: feature.growing.is_some(),
            value_dim: feature.value_dim,
            weighted: feature.weighted,
            sequence: feature.sequence.is_some(),
            groups: groups.map(|group| group.group_name.clone()).collect(),
        }
    }

    /// A row that the model accepts.
    pub fn example(&self) -> Value {
        Value::Object(self.read().into_iter().map(|column| (column.name.clone(), column.example())).collect())
    }
}

impl fmt::Display for ReadColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.rows {
            Some(_) if self.raw => "raw ids, integers or strings".to_owned(),
            Some(rows) => format!("ids 0 to {}", rows.saturating_sub(1)),
            None => "numbers".to_owned(),
        };
        let values = match (self.value_dim, self.weighted) {
            (_, true) => format!("any number of {kind} with weights"),
            (0, _) => format!("any number of {kind}"),
            (1, _) => kind,
            (width, _) => format!("{width} {kind}"),
        };
        let steps = if self.sequence { "a sequence of " } else { "" };
        write!(f, "{steps}{values}; {}", self.groups.join(", "))
    }
}

impl ReadColumn {
    fn example(&self) -> Value {
        let value = if self.rows.is_some() { json!(0) } else { json!(0.5) };
        let step = match (self.value_dim, self.weighted) {
            (_, true) => Value::Object(Map::from_iter([("0".to_owned(), json!(1.0))])),
            (0, _) => json!([value]),
            (1, _) => value,
            (width, _) => Value::Array(vec![value; width]),
        };
        if self.sequence { json!([step]) } else { step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Imported;
    use crate::rank::compiled;

    fn config(rows: usize, name: &str) -> String {
        let feature = json!({ "id_feature": { "feature_name": name, "embedding_dim": 2, "num_buckets": rows } });
        let group = json!({ "group_name": "all", "feature_names": [name] });
        let tower = json!({ "input": "all", "mlp": { "hidden_units": [2] } });
        let model = json!({ "feature_groups": [group], "multi_tower": { "towers": [tower] }, "losses": [{ "binary_cross_entropy": {} }] });
        json!({ "pipeline": { "feature_configs": [feature], "model_config": model } }).to_string()
    }

    #[test]
    fn a_plan_is_of_its_configuration() {
        let imported = Imported::parse("", &config(4, "a")).unwrap();
        let plan = compiled(&imported.tables(), imported.graph().clone(), Default::default()).unwrap();
        let signature = |rows, name| Signature::new("", &config(rows, name), &plan).map(|own| own.columns);
        assert_eq!(signature(4, "a").unwrap(), ["a"]);
        assert!(signature(5, "a").unwrap_err().to_string().contains("of 4 rows, which the configuration has not"));
        assert!(
            signature(4, "b").unwrap_err().to_string().contains("which is not an input of the configuration's model")
        );
    }
}
