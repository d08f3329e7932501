//! Descriptions of models' inputs and outputs.

use super::kind::ModelConfig;
use super::package::{compiled, text_of};
use super::scorer::schema;
use super::{CacheOptions, Column, Precision, RankError, Request, Schema, Task};
use crate::package::{Package, Vocabulary, vocabulary};
use crate::predict::{PredictedColumn, ReadColumn, Signature};
use rewire_graph_rewrite::plan::Plan;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// The `model` of the configuration of a ranking model.
pub(super) const RANKING: &str = "dlrm_hstu";
/// The `model` of the configuration of a matching model.
pub(super) const MATCHING: &str = "hstu_match";

/// The key of an imported pipeline.
const IMPORTED: &str = "pipeline";

/// The inputs and outputs of a model: features of requests, tasks, tensors, and an example request. `Display` prints a
/// readable form.
///
/// ```no_run
/// use rewire::rank::{RankOptions, Ranker};
/// let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
/// println!("{}", ranker.describe());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Description {
    /// `dlrm_hstu` for a ranking model, `hstu_match` for a matching model, `pipeline` for an imported model, the
    /// `model_type` of a language model, `None` for a traced model without a configuration.
    pub model: Option<String>,
    /// The most rows of a sequence, if the model reads sequences.
    pub max_seq_len: Option<usize>,
    /// Tokens of the vocabulary of a language model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<usize>,
    /// Features of requests, with the sizes of their tables; empty for a model without a configuration.
    pub features: Schema,
    /// Input columns of an imported model.
    pub columns: Vec<ReadColumn>,
    /// Output columns of an imported model.
    pub predictions: Vec<PredictedColumn>,
    /// Tasks, in the order of logits.
    pub tasks: Vec<Task>,
    /// Input tensors of a run.
    pub inputs: Vec<Vocabulary>,
    /// Output tensors of a run.
    pub outputs: Vec<Vocabulary>,
    /// A valid request; it prints as a line of JSON Lines.
    pub example: Option<Request>,
    /// A valid row of a table for an imported model.
    pub example_row: Option<Value>,
}

impl Description {
    pub(super) fn of(model: &str, plan: &Plan, features: &Schema, tasks: &[Task], max_seq_len: usize) -> Self {
        Self {
            model: Some(model.to_owned()),
            max_seq_len: Some(max_seq_len),
            features: features.clone(),
            tasks: tasks.to_vec(),
            example: Some(features.example()),
            ..Self::of_plan(plan)
        }
    }

    /// The description of a plan that only has tensors.
    pub(crate) fn of_plan(plan: &Plan) -> Self {
        let (inputs, outputs) = vocabulary(plan);
        Self {
            model: None,
            max_seq_len: None,
            vocabulary: None,
            features: Schema::default(),
            columns: vec![],
            predictions: vec![],
            tasks: vec![],
            inputs,
            outputs,
            example: None,
            example_row: None,
        }
    }

    pub(crate) fn of_signature(signature: &Signature, plan: &Plan) -> Self {
        Self {
            model: Some(IMPORTED.to_owned()),
            columns: signature.read(),
            predictions: signature.outputs().to_vec(),
            example_row: Some(signature.example()),
            ..Self::of_plan(plan)
        }
    }

    fn of_text(name: &str, text: &str, plan: &Plan) -> Result<Self, RankError> {
        Ok(match ModelConfig::parse(name, text)? {
            ModelConfig::Ranking(config) => {
                Self::of(RANKING, plan, &schema(&config.inputs(), plan), &Task::all_of(&config), config.max_seq_len)
            }
            ModelConfig::Matching(config) => {
                Self::of(MATCHING, plan, &schema(&config.inputs(), plan), &[], config.max_seq_len)
            }
            ModelConfig::Imported(_) => Self::of_signature(&Signature::new(name, text, plan)?, plan),
            ModelConfig::Language(config) => Self {
                model: Some(config.model_type().to_owned()),
                vocabulary: Some(config.vocabulary()),
                ..Self::of_plan(plan)
            },
        })
    }

    /// Describes a package, without loading it on a device.
    ///
    /// # Errors
    /// [`RankError::Package`] for a damaged plan, [`RankError::Config`] for a configuration that is not valid.
    pub fn of_package(package: &Package) -> Result<Self, RankError> {
        let plan = package.plan()?;
        if package.config().is_none() {
            return Ok(Self::of_plan(&plan));
        }
        Self::of_text("the configuration of the package", text_of(package)?, &plan)
    }

    /// Describes the model of a `config.json`; errors refer to it as `name`.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key.
    pub fn parse(name: &str, config: &str) -> Result<Self, RankError> {
        let parsed = ModelConfig::parse(name, config)?;
        let plan = compiled(&parsed.tables(), parsed.graph(&CacheOptions::default())?, Precision::default())?;
        Self::of_text(name, config, &plan)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.model.as_deref(), self.max_seq_len, self.vocabulary) {
            (Some(model), Some(rows), _) => writeln!(f, "model {model}, sequences of at most {rows} rows")?,
            (Some(model), None, Some(tokens)) => {
                writeln!(f, "model {model}: it continues prompts of tokens 0 to {}", tokens.saturating_sub(1))?;
            }
            (Some(model), None, None) => writeln!(f, "model {model}: it reads tables")?,
            (None, ..) => writeln!(f, "a traced model: it reads tensors, not requests")?,
        }
        let groups = [
            ("features of the user, one value each", &self.features.contextual),
            ("history, lists of equal length", &self.features.history),
            ("candidates, lists of equal length", &self.features.candidates),
        ];
        for (title, columns) in groups {
            section(f, title, columns.iter().map(|column| (column.name.as_str(), values(column))))?;
        }
        section(
            f,
            "columns of the table",
            self.columns.iter().map(|column| (column.name.as_str(), column.to_string())),
        )?;
        let predictions = self.predictions.iter();
        let kind = |column: &PredictedColumn| if column.is_list { "lists of numbers" } else { "numbers" }.to_owned();
        section(f, "columns of predictions", predictions.map(|column| (column.name.as_str(), kind(column))))?;
        let tasks = self.tasks.iter().map(|task| (task.name.as_str(), format!("action bits {}", task.bitmask)));
        section(f, "tasks", tasks)?;
        for (title, tensors) in [("input tensors", &self.inputs), ("output tensors", &self.outputs)] {
            section(f, title, tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.ty())))?;
        }
        match (&self.example, &self.example_row) {
            (Some(example), _) => write!(f, "\nexample request\n{example}"),
            (None, Some(row)) => write!(f, "\nexample row\n{row}"),
            (None, None) => Ok(()),
        }
    }
}

/// A title and one line per entry; nothing without entries.
fn section<'a>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    entries: impl Iterator<Item = (&'a str, String)> + Clone,
) -> fmt::Result {
    let Some(width) = entries.clone().map(|(name, _)| name.chars().count()).max() else { return Ok(()) };
    writeln!(f, "\n{title}")?;
    for (name, text) in entries {
        writeln!(f, "  {name:<width$}  {text}")?;
    }
    Ok(())
}

/// The valid values of a column.
fn values(column: &Column) -> String {
    let range = match (&column.table, column.name.as_str()) {
        (Some(table), _) => format!("ids 0 to {}", table.rows.saturating_sub(1)),
        (None, "timestamp") => "seconds since the epoch".to_owned(),
        (None, "action") => "bits of tasks".to_owned(),
        (None, "watchtime") => "seconds".to_owned(),
        (None, _) => "integers".to_owned(),
    };
    if column.required { range } else { format!("{range}; may be left out") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::{Batch, testing};

    #[test]
    fn the_example_is_a_request_of_the_schema() {
        let mut schema = testing::schema();
        schema.history.push(Column::ids("single", 1));
        schema.candidates.push(Column::numbers("watchtime", true));
        let example = schema.example();
        let (mut pushed, mut read) = (Batch::new(schema.clone()), Batch::new(schema));
        pushed.push(&example).unwrap();
        read.push_json(example.to_string().as_bytes()).unwrap();
        assert_eq!(pushed, read);
        assert_eq!((read.events(0), read.candidates(0)), (2, 2));
    }
}
