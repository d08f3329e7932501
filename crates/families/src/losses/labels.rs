//! Inputs of a graph with losses, in addition to the inputs of features: labels, sample weights, sessions.

use rewire_features::{Column, EncodeError, Features, LabelColumn, LabelValues};
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};
use std::ops::Range;

/// The values of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelKind {
    /// A number from 0 to 1.
    Probability,
    /// An integer below this number of classes.
    Class(usize),
    /// A bit mask of actions.
    Bits,
    Number,
}

/// An input, and its source column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LabelInput {
    pub name: String,
    /// The column, or the feature.
    pub column: String,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Label(LabelKind),
    SampleWeight,
    /// For every label the first id of a feature.
    Session,
}

/// The rows that labels belong to.
#[derive(Clone, Debug)]
pub(super) enum LabelRows {
    /// One label per row of the batch.
    Batch,
    /// One label per step of a sequence; `feature` defines the steps.
    Steps { feature: String },
}

/// The label inputs that a graph uses so far.
#[derive(Debug)]
pub(super) struct LabelInputs {
    pub rows: LabelRows,
    pub inputs: Vec<LabelInput>,
}

/// The name of the input with the number of positive items of each row.
pub(super) const POSITIVES: &str = "positives.lengths";

impl LabelInputs {
    pub fn new(rows: LabelRows) -> Self {
        Self { rows, inputs: vec![] }
    }

    /// A label `[rows]`: `F32` for probabilities and numbers, otherwise `I64`.
    pub fn label(&mut self, scope: &Scope, column: &str, kind: LabelKind, rows: &Dim) -> Tensor {
        let (name, dtype) = match kind {
            LabelKind::Probability | LabelKind::Number => (format!("labels.{column}"), DType::F32),
            LabelKind::Class(_) | LabelKind::Bits => (format!("labels.{column}.integer"), DType::I64),
        };
        self.input(scope, name, column, (dtype, rows), Source::Label(kind))
    }

    /// Sample weights `[rows]`.
    pub fn sample_weight(&mut self, scope: &Scope, column: &str, rows: &Dim) -> Tensor {
        self.input(scope, format!("sample_weights.{column}"), column, (DType::F32, rows), Source::SampleWeight)
    }

    /// The session of every label, `U32` `[rows]`.
    pub fn session(&mut self, scope: &Scope, feature: &str, rows: &Dim) -> Tensor {
        self.input(scope, format!("sessions.{feature}"), feature, (DType::U32, rows), Source::Session)
    }

    /// The number of positive items of each row of the batch.
    pub fn positives(scope: &Scope) -> Ragged {
        scope.lengths(POSITIVES, scope.size("batch"))
    }

    /// Adds an input, unless one with the same name, column and kind exists.
    fn input(
        &mut self,
        scope: &Scope,
        name: String,
        column: &str,
        (dtype, rows): (DType, &Dim),
        source: Source,
    ) -> Tensor {
        let tensor = scope.input(&name, dtype, std::slice::from_ref(rows));
        let input = LabelInput { name, column: column.to_owned(), source };
        if !self.inputs.contains(&input) {
            self.inputs.push(input);
        }
        tensor
    }

    /// Encodes the inputs from rows of the named columns.
    pub fn encode<'c>(
        &self,
        features: &Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let steps = self.rows.steps(features, column, rows.clone())?;
        let mut encoded: Vec<(String, HostTensor)> = vec![];
        for LabelInput { name, column: own, source } in &self.inputs {
            let read = LabelColumn { name: own, delimiter: steps.as_ref().map(|steps| steps.delimiter) };
            let data = || column(own).ok_or_else(|| EncodeError::Missing { column: own.clone() });
            let tensor = match source {
                Source::Label(LabelKind::Probability) => {
                    let is_one = |value: f32| (0.0..=1.0).contains(&value);
                    floats(&read.floats(data()?, rows.clone(), "a label from 0 to 1", is_one)?, own, &steps)?
                }
                Source::Label(LabelKind::Number) => {
                    floats(&read.floats(data()?, rows.clone(), "a number", f32::is_finite)?, own, &steps)?
                }
                Source::SampleWeight => {
                    let is_weight = |value: f32| value.is_finite() && value >= 0.0;
                    floats(&read.floats(data()?, rows.clone(), "a weight of at least 0", is_weight)?, own, &steps)?
                }
                Source::Label(LabelKind::Class(count)) => {
                    let expected = format!("a class, an integer from 0 to {}", count.saturating_sub(1));
                    let is_class = |value: i64| usize::try_from(value).is_ok_and(|class| class < *count);
                    integers(&read.integers(data()?, rows.clone(), &expected, is_class)?, own, &steps)?
                }
                Source::Label(LabelKind::Bits) => integers(
                    &read.integers(data()?, rows.clone(), "bits of actions, an integer", |_| true)?,
                    own,
                    &steps,
                )?,
                Source::Session => HostTensor::vector(&self.rows.ids(features, own, column, rows.clone())?),
            };
            if encoded.iter().all(|(known, _)| known != name) {
                encoded.push((name.clone(), tensor));
            }
        }
        Ok(encoded)
    }
}

/// The steps of a sequence that have labels.
pub(super) struct Steps<'a> {
    feature: &'a str,
    delimiter: &'a str,
    pub lengths: Vec<i64>,
}

impl LabelRows {
    pub fn steps<'a, 'c>(
        &'a self,
        features: &'a Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Option<Steps<'a>>, EncodeError> {
        let Self::Steps { feature } = self else { return Ok(None) };
        let delimiter = features.features.get(feature).and_then(|feature| feature.sequence.as_ref());
        let delimiter = delimiter.map_or(";", |form| form.delimiter.as_str());
        Ok(Some(Steps { feature, delimiter, lengths: features.steps(feature, column, rows)? }))
    }

    /// For every label the first id of a feature.
    pub fn ids<'c>(
        &self,
        features: &Features,
        feature: &str,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, EncodeError> {
        let ids = features.first_ids(feature, column, rows.clone())?;
        let Some(steps) = self.steps(features, column, rows)? else { return Ok(ids) };
        let repeated = ids.iter().zip(&steps.lengths);
        Ok(repeated.flat_map(|(&id, &length)| std::iter::repeat_n(id, length as usize)).collect())
    }
}

fn floats(read: &LabelValues<f32>, column: &str, steps: &Option<Steps<'_>>) -> Result<HostTensor, EncodeError> {
    check(&read.lengths, column, steps)?;
    Ok(HostTensor::vector(&read.values))
}

fn integers(read: &LabelValues<i64>, column: &str, steps: &Option<Steps<'_>>) -> Result<HostTensor, EncodeError> {
    check(&read.lengths, column, steps)?;
    Ok(HostTensor::vector(&read.values))
}

/// Checks that every step has a label.
fn check(lengths: &[i64], column: &str, steps: &Option<Steps<'_>>) -> Result<(), EncodeError> {
    let Some(steps) = steps else { return Ok(()) };
    let unequal = steps.lengths.iter().zip(lengths).enumerate().find(|(_, (steps, labels))| steps != labels);
    unequal.map_or(Ok(()), |(row, (&steps_of_row, &labels))| {
        let (first, second) = (steps.feature.to_owned(), column.to_owned());
        Err(EncodeError::Lengths { first, second, row, lengths: (steps_of_row, labels) })
    })
}
