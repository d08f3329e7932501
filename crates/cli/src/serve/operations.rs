//! Operations of models: bodies of requests to bodies of answers.

use super::arrow;
use super::error::{Fault, ServeError};
use super::generation::{Generated, Mode, Prompts};
use super::queue::Queue;
use super::requests::{GenerateBody, JsonTensor, RankBody, tensors};
use super::rows::TableRows;
use crate::rank::UserLine;
use rewire::predict::{Lists, Predicted, PredictedColumn};
use rewire::program::{Results, TypedTensor};
use rewire::rank::{Batch, Ranked, Vectors};
use serde::Serialize;
use std::collections::BTreeMap;

/// The types of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    /// A stream of Arrow's IPC format.
    Arrow,
}

impl Format {
    /// The name of Arrow streams.
    pub const ARROW: &'static str = "application/vnd.apache.arrow.stream";

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Arrow => Self::ARROW,
        }
    }
}

/// A body with its type, and the type that the client accepts.
pub struct Body<'a> {
    pub bytes: &'a [u8],
    pub format: Format,
    pub accepted: Format,
    /// Maximum number of rows.
    pub rows_limit: usize,
}

impl Body<'_> {
    /// The requests of the body, added to an empty batch.
    fn requests(&self, empty: &Batch) -> Result<RankBody, Fault> {
        match self.format {
            Format::Json => RankBody::parse(self.bytes, empty.clone(), self.rows_limit),
            Format::Arrow => {
                let batch = arrow::read_requests(self.bytes, empty.clone(), self.rows_limit)?;
                Ok(RankBody { batch, top: None })
            }
        }
    }
}

/// An operation of a model, and the queue of the thread that answers it.
pub enum Operation {
    Rank(Ranking),
    Embed(Embedding),
    Predict(Prediction),
    Generate(Generation),
    Run(Running),
}

pub struct Ranking {
    pub empty: Batch,
    pub tasks: Vec<String>,
    pub queue: Queue<Batch, Vec<Ranked>>,
}

pub struct Embedding {
    /// `users` or `items`.
    pub name: &'static str,
    pub empty: Batch,
    pub queue: Queue<Batch, Vectors>,
}

pub struct Prediction {
    pub columns: Vec<String>,
    pub outputs: Vec<PredictedColumn>,
    pub queue: Queue<TableRows, Predicted>,
}

pub struct Generation {
    pub queue: Queue<Prompts, Generated>,
}

pub struct Running {
    pub queue: Queue<BTreeMap<String, TypedTensor>, Results>,
}

impl Operation {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rank(_) => "rank",
            Self::Embed(embedding) => embedding.name,
            Self::Predict(_) => "predict",
            Self::Generate(_) => "generate",
            Self::Run(_) => "run",
        }
    }

    /// Answers a request. Dropping the future cancels it.
    pub async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let has_arrow = body.format == Format::Arrow || body.accepted == Format::Arrow;
        if has_arrow && matches!(self, Self::Generate(_) | Self::Run(_)) {
            let (actual, expected) = (Format::ARROW.to_owned(), Format::Json.content_type());
            return Err(ServeError::ContentType { actual, expected }.into());
        }
        match self {
            Self::Rank(ranking) => ranking.answer(body).await,
            Self::Embed(embedding) => embedding.answer(body).await,
            Self::Predict(prediction) => prediction.answer(body).await,
            Self::Generate(generation) => generation.answer(body).await,
            Self::Run(running) => running.answer(body).await,
        }
    }
}

/// A value as JSON.
pub fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(Fault::of_text)
}

impl Ranking {
    async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let RankBody { batch, top } = body.requests(&self.empty)?;
        let mut ranked = self.queue.answer(batch).await?;
        let top = top.unwrap_or(usize::MAX);
        if body.accepted == Format::Arrow {
            ranked.iter_mut().for_each(|ranked| ranked.candidates.truncate(top));
            return Ok(arrow::ranked(&ranked, &self.tasks)?);
        }
        let lines: Vec<_> = ranked.iter().map(|ranked| UserLine::new(ranked, top, &self.tasks)).collect();
        to_json(&BTreeMap::from([("ranked", lines)]))
    }
}

/// A vector in an answer.
#[derive(Serialize)]
struct Embedded<'a> {
    request: usize,
    item: Option<i64>,
    vector: &'a [f32],
}

impl Embedding {
    async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let RankBody { batch, top } = body.requests(&self.empty)?;
        if top.is_some() {
            return Err(Fault::of_text("`top` applies to `rank` only"));
        }
        let vectors = self.queue.answer(batch).await?;
        if body.accepted == Format::Arrow {
            return Ok(arrow::vectors(vectors)?);
        }
        let Vectors { width, values, of, .. } = vectors;
        let subjects = values.chunks(width.max(1)).zip(of);
        let vectors = subjects.map(|(vector, (request, item))| Embedded { request, item, vector });
        to_json(&BTreeMap::from([("vectors", vectors.collect::<Vec<_>>())]))
    }
}

/// Predictions in an answer.
#[derive(Serialize)]
struct Columns<'a> {
    columns: BTreeMap<&'a str, Values>,
    /// Entries of the columns per row of the request.
    counts: &'a [usize],
}

#[derive(Serialize)]
#[serde(untagged)]
enum Values {
    Floats(Vec<f32>),
    Lists(Vec<Vec<f32>>),
}

impl Prediction {
    async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let rows = match body.format {
            Format::Json => TableRows::parse(body.bytes, &self.columns, body.rows_limit)?,
            Format::Arrow => arrow::read(body.bytes, &self.columns, body.rows_limit)?,
        };
        let predicted = self.queue.answer(rows).await?;
        match body.accepted {
            Format::Json => self.to_json(&predicted),
            Format::Arrow => Ok(arrow::write(&self.outputs, predicted)?),
        }
    }

    fn to_json(&self, Predicted { counts, columns }: &Predicted) -> Result<Vec<u8>, Fault> {
        let values = |(output, lists): (&PredictedColumn, &'_ Lists)| match output.is_list {
            true => Values::Lists((0..lists.ends.len()).map(|row| lists.row(row).to_vec()).collect()),
            false => Values::Floats(lists.values.clone()),
        };
        let columns = self.outputs.iter().zip(columns).map(|both| (both.0.name.as_str(), values(both))).collect();
        to_json(&Columns { columns, counts })
    }
}

/// The sequences of a prompt, best first, as `generate` prints them.
#[derive(Serialize)]
struct Sequences<'a> {
    items: Vec<&'a [u32]>,
    scores: Vec<f64>,
}

impl Generation {
    async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let body = GenerateBody::parse(body.bytes, body.rows_limit)?;
        let mode = match body.beams {
            Some(_) if body.has_sampling() => {
                return Err(Fault::of_text("`beams` searches the items of the server and samples no tokens"));
            }
            Some(width) => Mode::Search(width),
            None => Mode::Sample(body.sampling()),
        };
        let generated = self.queue.answer(Prompts { tokens: body.prompts, mode }).await?;
        let sequences = generated.iter().map(|found| Sequences {
            items: found.iter().map(|found| found.codes.as_slice()).collect(),
            scores: found.iter().map(|found| found.score).collect(),
        });
        to_json(&BTreeMap::from([("generated", sequences.collect::<Vec<_>>())]))
    }
}

impl Running {
    async fn answer(&self, body: Body<'_>) -> Result<Vec<u8>, Fault> {
        let results = self.queue.answer(tensors(body.bytes)?).await?;
        let outputs: BTreeMap<_, _> =
            results.tensors().iter().map(|(name, tensor)| (name.clone(), JsonTensor::of(tensor))).collect();
        to_json(&BTreeMap::from([("outputs", outputs)]))
    }
}
