//! Vectors of users and of items.

use super::kind::{ModelConfig, untraced};
use super::package::{check_plan, compiled, store, text_of};
use super::runs::runs;
use super::scorer::{capacity, schema};
use super::sequence::{Capacity, Layout};
use super::sessions::Sessions;
use super::{Batch, Precision, RankError, RankOptions, Schema};
use crate::delta::{Delta, DeltaError, ModelVersion, Served};
use crate::package::Package;
use crate::weights::Weights;
use rewire_graph::DType;
use rewire_graph_rewrite::plan::Plan;
use rewire_hstu::models::dlrm_hstu::{self, InputSpec};
use rewire_hstu::models::hstu_match;
use rewire_runtime::{Model, ModelOptions, Report, RuntimeError, Session, block_on};
use std::collections::HashSet;
use std::sync::Arc;

/// The subject of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedded {
    /// Users: one vector per request for a matching model, or one per candidate for a ranking model, where the vector
    /// depends on the candidate.
    Users,
    /// Candidates.
    Items,
}

/// A loaded model that computes vectors. Clones share it, and any number of threads may use it at the same time.
#[derive(Clone, Debug)]
pub struct Embedder(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    model: Model,
    sessions: Sessions,
    served: Served,
    schema: Arc<Schema>,
    inputs: Vec<(String, Option<DType>)>,
    embedded: Embedded,
    output: &'static str,
    capacity: Capacity,
    is_by_candidate: bool,
    most: usize,
}

/// Vectors of a batch, concatenated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    /// Elements of a vector.
    pub width: usize,
    /// All elements.
    pub values: Vec<f32>,
    /// The subject of each vector: the request, and the candidate's item if the vector belongs to a candidate.
    pub of: Vec<(usize, Option<i64>)>,
    /// Events of each request that were dropped because the history was too long.
    pub dropped_events: Vec<usize>,
}

/// The parts of a model that depend on its kind.
struct Described {
    inputs: Vec<InputSpec>,
    /// Selects the [`Described::inputs`] that requests have; the others have no entries.
    is_given: fn(&str, Embedded) -> bool,
    output: &'static str,
    capacity: Capacity,
    is_by_candidate: bool,
}

impl Embedder {
    /// Loads a ranking or a matching model from the text of its configuration, which errors refer to as `name`, and its
    /// weights.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key or tensor, or the reason why no device is available.
    pub fn new(
        name: &str,
        config: &str,
        weights: &Weights<'_>,
        embedded: Embedded,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let config = ModelConfig::parse(name, config)?;
        let graph = match (&config, embedded) {
            (ModelConfig::Matching(config), _) => config.trace(),
            (ModelConfig::Ranking(config), Embedded::Users) => dlrm_hstu::trace_users(config),
            (ModelConfig::Ranking(config), Embedded::Items) => dlrm_hstu::trace_items(config),
            (ModelConfig::Imported(_), _) => return Err(RankError::Imported { name: name.to_owned() }),
            (ModelConfig::Language(_), _) => return Err(RankError::Language { name: name.to_owned() }),
        };
        let tables = config.tables();
        let mut plan = compiled(&tables, graph.map_err(untraced)?, options.precision)?;
        let precision = stored(&plan, &tables, weights, options.precision);
        store(&tables, &mut plan, precision)?;
        Self::build(plan, weights, (&config, embedded), options.of_model(), options)
    }

    /// Loads a package. For a ranking model it uses the configuration and the weights, since the package's plan computes no
    /// vectors.
    ///
    /// # Errors
    /// As [`Embedder::new`], and [`RankError::Package`].
    pub fn from_package(package: &Package, embedded: Embedded, options: &RankOptions) -> Result<Self, RankError> {
        let (name, text) = ("the configuration of the package", text_of(package)?);
        let config = ModelConfig::parse(name, text)?;
        let ModelConfig::Matching(own) = &config else {
            return Self::new(name, text, package.weights(), embedded, options);
        };
        own.check().map_err(|error| untraced(error.into()))?;
        let mut plan = package.plan()?;
        let known: Vec<(String, Option<DType>)> =
            own.inputs().into_iter().map(|spec| (spec.name, spec.dtype)).collect();
        check_plan(&known, own.table_sizes(), &plan)?;
        store(&config.tables(), &mut plan, options.precision)?;
        let of_model = package.of_model(options)?;
        Self::build(plan, package.weights(), (&config, embedded), of_model, options)
    }

    fn build(
        plan: Plan,
        weights: &Weights<'_>,
        (config, embedded): (&ModelConfig, Embedded),
        of_model: ModelOptions,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let Described { inputs, is_given, output, capacity, is_by_candidate } = describe(config, embedded, options)?;
        let read: HashSet<&str> = plan.inputs().map(|input| input.name).collect();
        let inputs: Vec<InputSpec> = inputs.into_iter().filter(|input| read.contains(input.name.as_str())).collect();
        let given: Vec<InputSpec> = inputs.iter().filter(|input| is_given(&input.name, embedded)).cloned().collect();
        let schema = Arc::new(schema(&given, &plan));
        let inputs = inputs.into_iter().map(|input| (input.name, input.dtype)).collect();
        let model = Model::build(|| Ok::<_, RuntimeError>(plan), weights, of_model)?;
        let (sessions, served, most) = (Sessions::default(), Served::of(weights), options.batch_rows);
        let loaded =
            Loaded { model, sessions, served, schema, inputs, embedded, output, capacity, is_by_candidate, most };
        Ok(Self(Arc::new(loaded)))
    }

    /// Loads a package, or a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// As [`Embedder::new`] and [`Embedder::from_package`], and for unreadable files.
    #[cfg(feature = "files")]
    pub fn load(model: &std::path::Path, embedded: Embedded, options: &RankOptions) -> Result<Self, RankError> {
        if !model.is_dir() {
            return Self::from_package(&super::files::package(model, options.mapping)?, embedded, options);
        }
        let (config, weights) =
            (super::read_config_text(model, options.mapping)?, super::read_weights(model, options.mapping)?);
        Self::new(&model.display().to_string(), &config, &weights, embedded, options)
    }

    /// The version of the parameters; `None` for a model that has none, to which no delta applies.
    pub fn version(&self) -> Option<ModelVersion> {
        self.0.served.version()
    }

    /// Applies the next delta while other threads use the model. A call of [`Embedder::embed`] uses the parameters of
    /// one version.
    ///
    /// # Errors
    /// [`DeltaError`] if the delta does not follow the model's version or does not fit the model. The model is then
    /// unchanged.
    pub fn update(&self, delta: &Delta) -> Result<(), DeltaError> {
        block_on(self.0.served.update(&self.0.model, delta))?;
        self.0.sessions.follow();
        Ok(())
    }

    /// The schema of the model's requests.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// An empty batch for this model.
    pub fn batch(&self) -> Batch {
        Batch::new(self.0.schema.clone())
    }

    /// True if there is a vector for every candidate, rather than for every request.
    pub fn is_by_candidate(&self) -> bool {
        self.0.is_by_candidate
    }

    /// The most rows of a sequence.
    pub fn max_seq_len(&self) -> usize {
        self.0.capacity.rows
    }

    /// Describes where the model runs.
    pub fn report(&self) -> Report {
        self.0.sessions.report(&self.0.model)
    }

    /// The vectors of a batch, in the order of its requests and their candidates. They do not depend on the other requests of the batch.
    ///
    /// # Errors
    /// [`RankError::Schema`] for a batch of another model; other errors are failures of the run.
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
            false => Layout { parts: std::iter::once(0..0).collect(), ..layout },
        }
    }

    fn embed(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
        vectors: &mut Vectors,
    ) -> Result<(), RankError> {
        for mut run in runs(&self.capacity, layouts, self.most) {
            if self.embedded == Embedded::Items {
                run.histories.clear();
            }
            let outputs = block_on(session.run_async(&run.inputs(&self.inputs, batch)?))?;
            let values = outputs.get(self.output).map(|tensor| tensor.to_f32()).unwrap_or_default();
            let rows: Vec<(usize, Option<usize>)> = run
                .sequences
                .iter()
                .flat_map(|one| match self.is_by_candidate {
                    true => one.part.clone().map(|at| (one.request, Some(at))).collect(),
                    false => vec![(one.request, None)],
                })
                .collect();
            let width = values.len() / rows.len().max(1);
            let is_whole = values.len() == rows.len() * width && (width > 0 || rows.is_empty());
            if !is_whole || values.iter().any(|value| !value.is_finite()) {
                let reason = format!("has {} values for {} rows: expected finite ones", values.len(), rows.len());
                return Err(RankError::Output { output: self.output.into(), reason });
            }
            vectors.width = vectors.width.max(width);
            for ((request, position), vector) in rows.into_iter().zip(values.chunks_exact(width.max(1))) {
                let items = batch.rows().candidates.row(0, request).unwrap_or_default();
                vectors.of.push((request, position.and_then(|at| items.get(at).copied())));
                vectors.values.extend_from_slice(vector);
            }
        }
        Ok(())
    }
}

fn describe(config: &ModelConfig, embedded: Embedded, options: &RankOptions) -> Result<Described, RankError> {
    let (inputs, own) = match config {
        ModelConfig::Matching(config) => {
            let contextual = config.feature_groups.contextual.len();
            // Without a candidate, a history may have one more event.
            let own = Capacity { rows: config.max_seq_len + 1, contextual, rows_per_event: 1, candidate_room: 1 };
            (config.inputs(), own)
        }
        ModelConfig::Ranking(config) => (config.inputs(), capacity(config, options)?),
        ModelConfig::Imported(_) => return Err(RankError::Imported { name: "the model".to_owned() }),
        ModelConfig::Language(_) => return Err(RankError::Language { name: "the model".to_owned() }),
    };
    let is_match = matches!(config, ModelConfig::Matching(_));
    let apart = Capacity { rows: usize::MAX, contextual: 0, rows_per_event: 1, candidate_room: 1 };
    Ok(Described {
        inputs,
        is_given: match is_match {
            true => |name, embedded| name.starts_with("candidate.") == (embedded == Embedded::Items),
            false => |_, _| true,
        },
        output: match (is_match, embedded) {
            (true, Embedded::Users) => hstu_match::USERS,
            (true, Embedded::Items) => hstu_match::ITEMS,
            (false, _) => "embeddings",
        },
        capacity: if embedded == Embedded::Items { apart } else { own },
        is_by_candidate: embedded == Embedded::Items || !is_match,
    })
}

/// The requested storage types, or those of the weights.
fn stored(plan: &Plan, tables: &HashSet<String>, weights: &Weights<'_>, asked: Precision) -> Precision {
    let found = |of_tables: bool| {
        let types = plan.parameters().filter(|parameter| tables.contains(parameter.name) == of_tables);
        let mut types = types.filter_map(|parameter| weights.describe(parameter.name).map(|(dtype, _)| dtype));
        types.find(|dtype| *dtype != DType::F32)
    };
    Precision { tables: asked.tables.or_else(|| found(true)), weights: asked.weights.or_else(|| found(false)), ..asked }
}
