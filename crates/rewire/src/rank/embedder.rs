//! Vectors of users and of items.

use super::runs::runs;
use super::scorer::{capacity, schema};
use super::sequence::{Capacity, Layout, Part};
use super::sessions::Sessions;
use super::{Batch, Precision, RankError, RankOptions, Schema};
use crate::weights::Weights;
use rewire_graph::{DType, Graph};
use rewire_graph_rewrite::plan::{Plan, PlanError};
use rewire_graph_rewrite::{lower, optimize};
use rewire_hstu::models::dlrm_hstu::{self, EMBEDDINGS, InputSpec};
use rewire_hstu::models::{ModelError, hstu_match};
use rewire_runtime::{Model, Report, RuntimeError, Session, block_on};
use serde::Deserialize;
use std::collections::HashSet;
use std::sync::Arc;

const OUTPUT: &str = "embeddings";

/// What vectors are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedded {
    /// Users: of a matching model one a request, of a ranking model one a candidate, as it sees the user.
    Users,
    /// Candidates.
    Items,
}

/// A model that gives vectors, ready to run. Clones share it, and any number of threads use it at the same time.
#[derive(Clone, Debug)]
pub struct Embedder(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    model: Model,
    sessions: Sessions,
    schema: Arc<Schema>,
    inputs: Vec<(String, Option<DType>)>,
    capacity: Capacity,
    is_by_candidate: bool,
    most: usize,
}

/// Vectors of a batch, back to back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    /// Elements of a vector.
    pub width: usize,
    /// All elements.
    pub values: Vec<f32>,
    /// What each vector is of: the request, and the candidate's item where it is of one.
    pub of: Vec<(usize, Option<i64>)>,
    /// Events of each request that were left out because the history was too long.
    pub dropped_events: Vec<usize>,
}

/// What of a model depends on its kind.
struct Traced {
    graph: Graph,
    inputs: Vec<InputSpec>,
    capacity: Capacity,
    is_by_candidate: bool,
}

impl Embedder {
    /// Takes the text of a configuration, `name` in errors, and weights of a ranking or a matching model.
    ///
    /// # Errors
    /// [`RankError`] names the key or tensor that is not good, or what is missing for a device.
    pub fn new(
        name: &str,
        config: &str,
        weights: &Weights<'_>,
        embedded: Embedded,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let Traced { graph, inputs, capacity, is_by_candidate } = trace(name, config, embedded, options)?;
        let mut plan = lower(&optimize(graph)?.0)?;
        store_as(&mut plan, weights, options.precision)?;
        let read: HashSet<&str> = plan.inputs().map(|input| input.name).collect();
        let inputs: Vec<InputSpec> = inputs.into_iter().filter(|input| read.contains(input.name.as_str())).collect();
        let schema = Arc::new(schema(&inputs, &plan));
        let inputs = inputs.into_iter().map(|input| (input.name, input.dtype)).collect();
        let model = Model::build(|| Ok::<_, RuntimeError>(plan), weights, options.of_model())?;
        let (sessions, most) = (Sessions::default(), options.batch_rows);
        Ok(Self(Arc::new(Loaded { model, sessions, schema, inputs, capacity, is_by_candidate, most })))
    }

    /// Loads a package, or a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// As [`Embedder::new`], and what cannot be read.
    #[cfg(feature = "files")]
    pub fn load(model: &std::path::Path, embedded: Embedded, options: &RankOptions) -> Result<Self, RankError> {
        let (config, weights) = (super::read_config_text(model)?, super::read_weights(model)?);
        Self::new(&model.display().to_string(), &config, &weights, embedded, options)
    }

    /// What the model reads from a request.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// No requests yet, for this model.
    pub fn batch(&self) -> Batch {
        Batch::new(self.0.schema.clone())
    }

    /// True if there is a vector for every candidate, rather than for every request.
    pub fn is_by_candidate(&self) -> bool {
        self.0.is_by_candidate
    }

    /// Rows that a sequence has at most.
    pub fn max_seq_len(&self) -> usize {
        self.0.capacity.rows
    }

    /// What it runs on.
    pub fn report(&self) -> Report {
        self.0.sessions.report(&self.0.model)
    }

    /// The vectors of a batch, in the order of its requests and their candidates. They do not depend on what else is computed with them.
    ///
    /// # Errors
    /// [`RankError::Schema`] for a batch of another model, or what failed while it ran.
    pub fn embed(&self, batch: &Batch) -> Result<Vectors, RankError> {
        if !std::ptr::eq(batch.schema(), self.schema()) && batch.schema() != self.schema() {
            return Err(RankError::Schema);
        }
        let layouts: Vec<Layout> = (0..batch.len()).map(|request| self.0.lay_out(batch, request)).collect();
        let mut vectors =
            Vectors { dropped_events: layouts.iter().map(|layout| layout.kept.start).collect(), ..Vectors::default() };
        let mut session = self.0.sessions.lend(&self.0.model);
        let embedded = self.0.embed(&mut session, batch, &layouts, &mut vectors);
        self.0.sessions.give(session);
        embedded.map(|()| vectors)
    }
}

impl Loaded {
    fn lay_out(&self, batch: &Batch, request: usize) -> Layout {
        let layout = self.capacity.lay_out(batch, request);
        match self.is_by_candidate {
            true => layout,
            false => Layout { parts: vec![Part { scored: 0..0, clock: None }], ..layout },
        }
    }

    fn embed(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
        vectors: &mut Vectors,
    ) -> Result<(), RankError> {
        for run in runs(&self.capacity, layouts, self.most) {
            let outputs = block_on(session.run_async(&run.inputs(&self.inputs, batch)?))?;
            let values = outputs.get(OUTPUT).map(|tensor| tensor.to_f32()).unwrap_or_default();
            let rows: Vec<(usize, Option<usize>, bool)> = run
                .sequences
                .iter()
                .flat_map(|one| -> Box<dyn Iterator<Item = _>> {
                    match self.is_by_candidate {
                        true => Box::new(
                            one.part.positions().map(|at| (one.request, Some(at), one.part.scored.contains(&at))),
                        ),
                        false => Box::new(std::iter::once((one.request, None, true))),
                    }
                })
                .collect();
            let width = values.len() / rows.len().max(1);
            if values.len() != rows.len() * width || values.iter().any(|value| !value.is_finite()) {
                let reason = format!("has {} values for {} rows: expected finite ones", values.len(), rows.len());
                return Err(RankError::Output { output: OUTPUT.into(), reason });
            }
            vectors.width = vectors.width.max(width);
            for ((request, position, is_asked), vector) in rows.into_iter().zip(values.chunks_exact(width.max(1))) {
                if is_asked {
                    let items = batch.rows().candidates.row(0, request).unwrap_or_default();
                    vectors.of.push((request, position.and_then(|at| items.get(at).copied())));
                    vectors.values.extend_from_slice(vector);
                }
            }
        }
        Ok(())
    }
}

/// The kind of model that a configuration is of.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    model: String,
}

fn trace(name: &str, config: &str, embedded: Embedded, options: &RankOptions) -> Result<Traced, RankError> {
    let config = config.trim_start_matches('\u{feff}');
    let bad = |source| RankError::Config { name: name.to_owned(), source: Box::new(source) };
    let untraced = |error: ModelError| RankError::Trace(Box::new(error));
    let is_match = serde_json::from_str::<Kind>(config).is_ok_and(|kind| kind.model == "hstu_match");
    let (graph, inputs, own) = if is_match {
        let config = hstu_match::MatchConfig::from_json(config).map_err(bad)?;
        let graph = match embedded {
            Embedded::Users => config.trace_users(),
            Embedded::Items => config.trace_items(),
        };
        let contextual = config.feature_groups.contextual.len();
        // There is room for one event more than for a candidate beside them.
        let own = Capacity { rows: config.max_seq_len + 1, contextual, rows_per_event: 1, candidate_room: 1 };
        (graph.map_err(untraced)?, config.inputs(), own)
    } else {
        let config = dlrm_hstu::Config::from_json(config).map_err(bad)?;
        let graph = match embedded {
            Embedded::Users => dlrm_hstu::trace_users(&config),
            Embedded::Items => dlrm_hstu::trace_items(&config),
        };
        let own = capacity(&config, options)?;
        (graph.map_err(untraced)?, config.inputs(), own)
    };
    let apart = Capacity { rows: usize::MAX, contextual: 0, rows_per_event: 1, candidate_room: 1 };
    let capacity = if embedded == Embedded::Items { apart } else { own };
    let is_by_candidate = embedded == Embedded::Items || !is_match;
    Ok(Traced { graph, inputs, capacity, is_by_candidate })
}

/// Takes the types that are asked for, or those that weights are stored in.
fn store_as(plan: &mut Plan, weights: &Weights<'_>, asked: Precision) -> Result<(), RankError> {
    let is_table = |name: &str| name.strip_prefix(EMBEDDINGS).is_some_and(|rest| rest.starts_with('.'));
    let stored = |of_tables: bool| {
        let types = plan.parameters().filter(|parameter| is_table(parameter.name) == of_tables);
        let mut types = types.filter_map(|parameter| weights.describe(parameter.name).map(|(dtype, _)| dtype));
        types.find(|dtype| *dtype != DType::F32)
    };
    let precision = Precision {
        tables: asked.tables.or(stored(true)),
        weights: asked.weights.or(stored(false)),
        activations: asked.activations,
    };
    plan.store(precision, is_table);
    let wrong = |error: PlanError| RuntimeError::Plan { reason: error.to_string() };
    Ok(plan.check_limits().map_err(wrong)?)
}
