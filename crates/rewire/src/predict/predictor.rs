use super::apart::{Apart, Placed};
use super::ids::IdRows;
use super::imported::{TOWERS, is_table};
use super::signature::Signature;
use super::{Column, EncodeError, Feature, Imported, LabelledTask, PredictedColumn, is_pipeline};
use crate::delta::Served;
use crate::package::{Package, PackageError};
use crate::rank::{Description, Embedded, Kept, RankError, RankOptions, Sessions, compiled, store, text_of};
use crate::weights::Weights;
use rewire_graph::{HostTensor, Ordered};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Inputs, Model, ModelOptions, Report, Session, block_on};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a table per run.
const ROWS: usize = 512;

/// Retries after parameters were replaced during a prediction.
const TRIES: usize = 16;

/// Name of a package's configuration in errors.
const PACKAGE: &str = "the configuration of the package";

/// A loaded imported model. Clones share it, and any number of threads may predict at the same time.
#[derive(Clone, Debug)]
pub struct Predictor(Arc<Loaded>);

#[derive(Debug)]
pub(super) struct Loaded {
    pub model: Model,
    pub sessions: Sessions,
    pub served: Served,
    pub signature: Signature,
    /// The rows of raw ids before the first delta; the rows of later versions are attached to the parameters.
    pub ids: IdRows,
    /// Tokens of histories per run.
    pub most: usize,
}

/// The rows of a column, concatenated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    /// End offset of each row's values.
    pub ends: Vec<usize>,
    /// All values.
    pub values: Vec<f32>,
}

/// The predictions of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Rows of the output columns per row of the table: the number of candidates if each candidate has a prediction,
    /// otherwise 1.
    pub counts: Vec<usize>,
    /// By output.
    pub columns: Vec<Lists>,
}

impl Predictor {
    /// Loads the text of a `config.json`, which errors refer to as `name`, and weights.
    ///
    /// # Errors
    /// [`RankError`] names the invalid key or tensor, or the reason why no device is available.
    pub async fn new_async(
        name: &str,
        config: &str,
        weights: &Weights<'_>,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        Self::with_output(name, config, weights, options, None).await
    }

    /// [`Predictor::new_async`], optionally with a single output: inputs that only other outputs need are not read.
    async fn with_output(
        name: &str,
        config: &str,
        weights: &Weights<'_>,
        options: &RankOptions,
        output: Option<&str>,
    ) -> Result<Self, RankError> {
        let imported = Imported::parse(name, config)?;
        imported.check_weights(weights)?;
        let (mut graph, tables) = (imported.served(&options.cache)?, imported.tables());
        if let Some(output) = output {
            graph.narrow(|name| name == output);
        }
        if graph.outputs().is_empty() {
            return Err(RankError::NoTowers { name: name.to_owned() });
        }
        let plan = || compiled(&tables, graph, options.precision);
        Self::build(name, config, plan, weights, (options.of_model(), options.batch_rows)).await
    }

    /// [`Predictor::new_async`], blocking.
    ///
    /// # Errors
    /// As [`Predictor::new_async`].
    pub fn new(name: &str, config: &str, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::new_async(name, config, weights, options))
    }

    /// Loads a package; nothing is traced, rewritten or lowered.
    ///
    /// # Errors
    /// As [`Predictor::new_async`], and [`RankError::Package`].
    pub async fn from_package_async(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        Self::of_plan_async(package, || package.plan(), options).await
    }

    /// Loads a plan of a package.
    async fn of_plan_async(
        package: &Package,
        plan: impl FnOnce() -> Result<Plan, PackageError> + Send,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let plan = || {
            let mut plan = plan()?;
            let names = plan.parameters().map(|parameter| parameter.name.to_owned());
            let tables = names.filter(|name| is_table(name)).collect();
            store(&tables, &mut plan, options.precision)?;
            Ok(plan)
        };
        let with = (package.of_model(options)?, options.batch_rows);
        Self::build(PACKAGE, text_of(package)?, plan, package.weights(), with).await
    }

    /// [`Predictor::from_package_async`], blocking.
    ///
    /// # Errors
    /// As [`Predictor::from_package_async`].
    pub fn from_package(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::from_package_async(package, options))
    }

    async fn build(
        name: &str,
        config: &str,
        plan: impl FnOnce() -> Result<Plan, RankError> + Send,
        weights: &Weights<'_>,
        (options, most): (ModelOptions, usize),
    ) -> Result<Self, RankError> {
        // Ids of columns are not checked before a run, so the run checks them.
        let options = ModelOptions { clamp_ids: false, ..options };
        let mut signature = None;
        let build = || {
            let plan = plan()?;
            signature = Some(Signature::new(name, config, &plan)?);
            Ok::<_, RankError>(plan)
        };
        let model = Model::build_async(build, weights, options).await?;
        let signature = match signature {
            Some(signature) => signature,
            None => Signature::new(name, config, model.plan())?,
        };
        let parameters = model.plan().parameters().map(|parameter| parameter.name);
        let ids = IdRows::new(signature.features(), parameters, |name| Ok(weights.get(name)?))?;
        let (sessions, served) = (Sessions::default(), Served::of(weights));
        Ok(Self(Arc::new(Loaded { model, sessions, served, signature, ids, most })))
    }

    /// Loads a package, or a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// As [`Predictor::new_async`] and [`Predictor::from_package_async`], and for unreadable files.
    #[cfg(feature = "files")]
    pub fn load(model: &std::path::Path, options: &RankOptions) -> Result<Self, RankError> {
        if !model.is_dir() {
            return Self::load_package(model, options);
        }
        let weights = crate::rank::read_weights(model, options.mapping)?;
        let config = crate::rank::read_config_text(model, options.mapping)?;
        Self::new(&model.join("config.json").display().to_string(), &config, &weights, options)
    }

    /// Loads a tower of a matching model from a folder or a package: it reads only the columns of users or of items. A package without
    /// plans of towers is traced.
    ///
    /// # Errors
    /// As [`Predictor::load`], and [`RankError::NoTowers`] for a model of another kind.
    #[cfg(feature = "files")]
    pub fn load_tower(model: &std::path::Path, embedded: Embedded, options: &RankOptions) -> Result<Self, RankError> {
        let [users, items] = TOWERS;
        let output = if embedded == Embedded::Users { users } else { items };
        if !model.is_dir() {
            let package = crate::rank::read_package(model, options.mapping)?;
            if let Some(plan) = package.tower(output)? {
                return block_on(Self::of_plan_async(&package, || Ok(plan), options));
            }
        }
        let config = crate::rank::read_config_text(model, options.mapping)?;
        let weights = crate::rank::read_weights(model, options.mapping)?;
        let name = model.display().to_string();
        block_on(Self::with_output(&name, &config, &weights, options, Some(output)))
    }

    /// Loads a package; a folder is an error. A program that loads no folders does not link the tracing code.
    ///
    /// # Errors
    /// As [`Predictor::from_package_async`], and for unreadable files.
    #[cfg(feature = "files")]
    pub fn load_package(path: &std::path::Path, options: &RankOptions) -> Result<Self, RankError> {
        Self::from_package(&crate::rank::read_package(path, options.mapping)?, options)
    }

    /// The columns of a table that the model reads.
    pub fn columns(&self) -> &[String] {
        self.0.signature.columns()
    }

    /// The output columns, in the order of the model's tasks.
    pub fn outputs(&self) -> &[PredictedColumn] {
        self.0.signature.outputs()
    }

    /// The feature that holds the items of each row, if every item has a prediction.
    pub fn item(&self) -> Option<&Feature> {
        self.0.signature.item()
    }

    /// The inputs and outputs of the model, with an example row.
    pub fn describe(&self) -> Description {
        Description::of_signature(&self.0.signature, self.0.model.plan())
    }

    /// The underlying model: its inputs, parameters and kernels.
    pub fn model(&self) -> &Model {
        &self.0.model
    }

    /// Its tasks, as the configuration names their labels.
    pub fn tasks(&self) -> &[LabelledTask] {
        self.0.signature.tasks()
    }

    /// Describes where the model runs.
    pub fn report(&self) -> Report {
        self.0.sessions.report(&self.0.model)
    }

    /// Predicts the rows of a table, given as named columns. Predictions do not depend on the other rows of a batch.
    ///
    /// ```no_run
    /// use rewire::predict::{Column, Data, OwnedCell, Predictor};
    /// use rewire::rank::RankOptions;
    /// let predictor = Predictor::load("model.rewire".as_ref(), &RankOptions::default())?;
    /// let prices = Column::new(Data::F32((&[0.5, 1.25]).into()));
    /// let clicks = Column::of_cells(vec![OwnedCell::Text("41;7".into()), OwnedCell::Null])?;
    /// let predicted = predictor.predict(2, &[("price", prices), ("click_seq__item", clicks)])?;
    /// for (output, column) in predictor.outputs().iter().zip(&predicted.columns) {
    ///     println!("{}: {:?}", output.name, column.values);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RankError::Columns`] names the invalid column and row; other errors are failures of the run.
    pub fn predict(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<Predicted, RankError> {
        block_on(self.predict_async(rows, columns))
    }

    /// The invalid rows of a table, with the reasons.
    pub fn faults(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> BTreeMap<usize, EncodeError> {
        let column = |name: &str| columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column);
        let fault = |row| Some((row, self.0.signature.encode(column, row..row + 1).err()?));
        (0..rows).filter_map(fault).ordered_map()
    }

    /// Async version of [`Predictor::predict`].
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub async fn predict_async(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<Predicted, RankError> {
        let mut session = self.0.sessions.lend(&self.0.model);
        let predicted = self.0.predict_all(&mut session, rows, columns).await;
        self.0.sessions.give(session);
        predicted
    }

    pub(super) fn loaded(&self) -> &Arc<Loaded> {
        &self.0
    }
}

impl Loaded {
    async fn predict_all(
        &self,
        session: &mut Session,
        rows: usize,
        columns: &[(&str, Column<'_>)],
    ) -> Result<Predicted, RankError> {
        let mut predicted = self.predict_part(session, 0..rows, columns).await?;
        while predicted.counts.len() < rows {
            predicted.append(self.predict_part(session, predicted.counts.len()..rows, columns).await?);
        }
        Ok(predicted)
    }

    /// Predicts the first of some rows, as many as one run computes.
    pub async fn predict_some(
        &self,
        rows: Range<usize>,
        columns: &[(&str, Column<'_>)],
    ) -> Result<Predicted, RankError> {
        let mut session = self.sessions.lend(&self.model);
        let predicted = self.predict_part(&mut session, rows, columns).await;
        self.sessions.give(session);
        predicted
    }

    /// [`Loaded::predict_some`] in a session.
    async fn predict_part(
        &self,
        session: &mut Session,
        rows: Range<usize>,
        columns: &[(&str, Column<'_>)],
    ) -> Result<Predicted, RankError> {
        let rows = rows.start..rows.end.min(rows.start + ROWS);
        let column = |name: &str| columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column);
        match self.signature.apart() {
            None => {
                let encoded = self.signature.encode(column, rows.clone())?;
                self.run(session, encoded, rows.len()).await
            }
            Some(apart) => self.predict_apart(session, apart, &column, rows).await,
        }
    }

    /// [`Loaded::predict_some`] with the histories in the session's own caches.
    async fn predict_apart<'c>(
        &self,
        session: &mut Session,
        apart: &Apart,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Predicted, RankError> {
        let tokens = apart.tokens(self.signature.features(), column, rows.clone())?;
        let kept = self.places(&tokens);
        let placed = Placed::all(rows, &tokens, &kept);
        let size = kept.iter().map(|kept| kept.rows.len()).sum::<usize>().next_power_of_two();
        session.reserve_states_async(size).await?;
        for tries in 0..TRIES {
            match self.run_apart(session, apart, column, &placed, None).await {
                Ok(Some(predicted)) => return Ok(predicted),
                Ok(None) => {}
                // The caches were lost with the device and are recomputed.
                Err(RankError::Run(error)) if tries == 0 && session.is_retryable(&error) => {
                    session.reset_states();
                    session.reserve_states_async(size).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(RankError::Updated { times: TRIES })
    }

    /// Predicts rows with histories in a session's caches; missing histories are computed first. `None` if parameters
    /// were replaced during the call, or since [`Session::updates`] was `since`.
    pub async fn run_apart<'c>(
        &self,
        session: &mut Session,
        apart: &Apart,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        placed: &[Placed<'_>],
        since: Option<u64>,
    ) -> Result<Option<Predicted>, RankError> {
        let features = self.signature.features();
        let all: Vec<&Placed<'_>> = placed.iter().collect();
        let missing: Vec<&Placed<'_>> = placed.iter().filter(|one| !one.kept.missing().is_empty()).collect();
        let mut since = since;
        if !missing.is_empty() {
            self.run(session, apart.inputs(features, column, &missing, &[])?, 0).await?;
            since.get_or_insert(session.updates());
        }
        let predicted = self.run(session, apart.inputs(features, column, &[], &all)?, placed.len()).await?;
        Ok(since.is_none_or(|since| since == session.updates()).then_some(predicted))
    }

    /// Assigns consecutive cache rows to the histories of rows, as many as fit into the tokens of a run, and at least
    /// one.
    fn places(&self, tokens: &[Vec<usize>]) -> Vec<Kept> {
        let (mut kept, mut end) = (vec![], 0);
        for tokens in tokens {
            let rows = tokens.iter().copied().max().unwrap_or(0);
            if end > 0 && end + rows > self.most {
                break;
            }
            kept.push(Kept { rows: (end as u32..(end + rows) as u32).collect(), ..Kept::default() });
            end += rows;
        }
        kept
    }

    /// The predictions of a run on some rows.
    pub async fn run(
        &self,
        session: &mut Session,
        mut encoded: Vec<(String, HostTensor)>,
        rows: usize,
    ) -> Result<Predicted, RankError> {
        let Self { model, signature, ids, .. } = self;
        session.attachment::<IdRows>().as_deref().unwrap_or(ids).look_up(signature.features(), &mut encoded);
        let candidates = signature.counts(&encoded);
        let is_read = |name: &str| model.plan().inputs().any(|input| input.name == name);
        let mut inputs = Inputs::new();
        encoded.into_iter().filter(|(name, _)| is_read(name)).for_each(|(name, tensor)| inputs.insert(name, tensor));
        let run = session.run_async(&inputs).await?;
        let counts = match &candidates {
            Some(candidates) if signature.is_by_candidate() => candidates.clone(),
            _ => vec![1; rows],
        };
        let column = |output: &PredictedColumn| {
            let tensor = run.get(&output.name).ok_or_else(|| missing(&output.name))?;
            let is_of_items = !signature.is_by_candidate() && signature.is_of_items(&output.name);
            let items = candidates.as_deref().filter(|_| is_of_items);
            Lists::of(tensor, counts.iter().sum(), items).ok_or_else(|| missing(&output.name))
        };
        let columns = signature.outputs().iter().map(column).collect::<Result<_, _>>()?;
        Ok(Predicted { counts, columns })
    }
}

impl Predicted {
    /// Appends the predictions of further rows by the same model.
    pub fn append(&mut self, other: Self) {
        self.counts.extend(other.counts);
        for (own, other) in self.columns.iter_mut().zip(other.columns) {
            let before = own.values.len();
            own.ends.extend(other.ends.into_iter().map(|end| before + end));
            own.values.extend(other.values);
        }
    }
}

impl Lists {
    /// The values of a row; empty if the row does not exist.
    pub fn row(&self, row: usize) -> &[f32] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(row).and_then(|end| self.values.get(start..*end)).unwrap_or_default()
    }

    /// The rows of a tensor; if the tensor has one row per item, the items of each row are grouped.
    fn of(tensor: &HostTensor, rows: usize, items: Option<&[usize]>) -> Option<Self> {
        let values = tensor.to_f32();
        let all = items.map_or(rows, |items| items.iter().sum());
        let width = values.len().checked_div(all).unwrap_or(0);
        let ones = vec![1; rows];
        let ends = items.unwrap_or(&ones).iter().scan(0, |end, count| {
            *end += count * width;
            Some(*end)
        });
        (all * width == values.len()).then(|| Self { ends: ends.collect(), values })
    }
}

fn missing(output: &str) -> RankError {
    RankError::Output { output: output.to_owned(), reason: "has not one row a prediction".to_owned() }
}

/// True for a folder or package of an imported model; reads only the configuration. False if the files cannot be read.
#[cfg(feature = "files")]
pub fn is_imported(model: &std::path::Path) -> bool {
    let config = match model.is_dir() {
        true => crate::rank::read_config_text(model, rewire_runtime::Mapping::Never).ok(),
        false => Package::config_at(model),
    };
    config.is_some_and(|text| is_pipeline(&text))
}

/// Reads the configuration of a folder or package of an imported model.
///
/// # Errors
/// Unreadable files, and [`RankError::Pipeline`].
#[cfg(feature = "files")]
pub fn read(model: &std::path::Path, mapping: rewire_runtime::Mapping) -> Result<Imported, RankError> {
    Imported::parse(&model.display().to_string(), &crate::rank::read_config_text(model, mapping)?)
}
