use super::{Column, Feature, Imported, is_pipeline};
use crate::package::Package;
use crate::rank::{RankError, RankOptions, Sessions, check_plan, compiled, store, text_of};
use crate::weights::Weights;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::{Inputs, Model, ModelOptions, Report, block_on};
use std::sync::Arc;

/// An imported model, ready to run. Clones share it, and any number of threads predict with it at the same time.
#[derive(Clone, Debug)]
pub struct Predictor(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    model: Model,
    sessions: Sessions,
    imported: Imported,
    outputs: Vec<PredictedColumn>,
}

/// A column that a model gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedColumn {
    /// The reference's name, such as `probs_ctr`.
    pub name: String,
    /// A row is a list of classes or of the elements of vectors, rather than one number.
    pub is_list: bool,
}

/// The rows of a column back to back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lists {
    /// Where the values of each row end.
    pub ends: Vec<usize>,
    /// All values.
    pub values: Vec<f32>,
}

/// What was predicted of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Rows of the columns for each row of the table: its candidates where each of them has a prediction, and 1 otherwise.
    pub counts: Vec<usize>,
    /// By output.
    pub columns: Vec<Lists>,
}

impl Predictor {
    /// Takes the text of a `config.json`, which `name` stands for in errors, and weights.
    ///
    /// # Errors
    /// [`RankError`] names the key or tensor that is not good, or what is missing for a device.
    pub async fn new_async(
        name: &str,
        config: &str,
        weights: &Weights<'_>,
        options: &RankOptions,
    ) -> Result<Self, RankError> {
        let imported = Imported::parse(name, config)?;
        imported.check_weights(weights)?;
        let (graph, tables) = (imported.graph().clone(), imported.tables());
        let build = || compiled(&tables, graph, options.precision);
        Self::build(imported.clone(), build, weights, options.of_model()).await
    }

    /// [`Predictor::new_async`], blocking.
    ///
    /// # Errors
    /// As [`Predictor::new_async`].
    pub fn new(name: &str, config: &str, weights: &Weights<'_>, options: &RankOptions) -> Result<Self, RankError> {
        block_on(Self::new_async(name, config, weights, options))
    }

    /// Takes a package; nothing is rewritten or lowered.
    ///
    /// # Errors
    /// As [`Predictor::new_async`], and [`RankError::Package`].
    pub async fn from_package_async(package: &Package, options: &RankOptions) -> Result<Self, RankError> {
        let imported = Imported::parse("the configuration of the package", text_of(package)?)?;
        let known: Vec<_> = imported.inputs().iter().map(|port| (port.name.clone(), Some(port.dtype))).collect();
        let tables = imported.tables();
        let build = || {
            let mut plan = package.plan()?;
            check_plan(&known, imported.table_sizes(), &plan)?;
            store(&tables, &mut plan, options.precision)?;
            Ok(plan)
        };
        Self::build(imported.clone(), build, package.weights(), package.of_model(options)?).await
    }

    async fn build(
        imported: Imported,
        plan: impl FnOnce() -> Result<Plan, RankError> + Send,
        weights: &Weights<'_>,
        options: ModelOptions,
    ) -> Result<Self, RankError> {
        // Columns are not checked against the rows of tables before a run.
        let options = ModelOptions { clamp_ids: false, ..options };
        let model = Model::build_async(plan, weights, options).await?;
        let outputs = imported.predicted();
        Ok(Self(Arc::new(Loaded { model, sessions: Sessions::default(), imported, outputs })))
    }

    /// Loads a package, or a folder with `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// As [`Predictor::new_async`] and [`Predictor::from_package_async`], and what cannot be read.
    #[cfg(feature = "files")]
    pub fn load(model: &std::path::Path, options: &RankOptions) -> Result<Self, RankError> {
        if !model.is_dir() {
            return block_on(Self::from_package_async(&crate::rank::read_package(model, options.mapping)?, options));
        }
        let weights = crate::rank::read_weights_mapping(model, options.mapping)?;
        let config = crate::rank::read_config_text(model)?;
        Self::new(&model.join("config.json").display().to_string(), &config, &weights, options)
    }

    /// The columns of a table that the model reads.
    pub fn columns(&self) -> &[String] {
        self.0.imported.columns()
    }

    /// What it gives, in the order of the model's tasks.
    pub fn outputs(&self) -> &[PredictedColumn] {
        &self.0.outputs
    }

    /// The feature with the items of each row, where every item has a prediction.
    pub fn item(&self) -> Option<&Feature> {
        let features = self.0.imported.features();
        let candidates = features.group("candidate").filter(|_| self.0.imported.is_by_candidate())?;
        features.features.get(candidates.feature_names.first()?)
    }

    /// What it runs on.
    pub fn report(&self) -> Report {
        self.0.sessions.report(&self.0.model)
    }

    /// The predictions of the rows of a table, by its columns with their names. They do not depend on what else is computed with them.
    ///
    /// # Errors
    /// [`RankError::Columns`] names the column and the row that is not good; otherwise what failed while it ran.
    pub fn predict(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<Predicted, RankError> {
        block_on(self.predict_async(rows, columns))
    }

    /// [`Predictor::predict`] for callers that do not block.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub async fn predict_async(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<Predicted, RankError> {
        let Loaded { model, sessions, imported, outputs } = &*self.0;
        let column = |name: &str| columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column.clone());
        let encoded = imported.encode(column, rows)?;
        let candidates = imported.counts(&encoded);
        let is_read = |name: &str| model.plan().inputs().any(|input| input.name == name);
        let mut inputs = Inputs::new();
        encoded.into_iter().filter(|(name, _)| is_read(name)).for_each(|(name, tensor)| inputs.insert(name, tensor));
        let mut session = sessions.lend(model);
        let run = session.run_async(&inputs).await;
        sessions.give(session);
        let run = run?;
        let by_row = vec![1; rows];
        let counts = match (&candidates, imported.is_by_candidate()) {
            (Some(candidates), true) => candidates,
            _ => &by_row,
        };
        let mut predicted = Predicted { counts: counts.clone(), columns: vec![] };
        for output in outputs {
            let tensor = run.get(&output.name).ok_or_else(|| missing(&output.name))?;
            let items =
                candidates.as_ref().filter(|_| !imported.is_by_candidate() && imported.is_of_items(&output.name));
            let lists = Lists::of(tensor, counts.iter().sum(), items.map(Vec::as_slice));
            predicted.columns.push(lists.ok_or_else(|| missing(&output.name))?);
        }
        Ok(predicted)
    }
}

impl Lists {
    /// The rows of a tensor; of a tensor with a row an item the items of each row together.
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

/// True for a folder or package of an imported model. What cannot be read is none.
#[cfg(feature = "files")]
pub fn is_imported(model: &std::path::Path) -> bool {
    crate::rank::read_config_text(model).is_ok_and(|text| is_pipeline(&text))
}

/// Reads the configuration of a folder or package of an imported model.
///
/// # Errors
/// What cannot be read, and [`RankError::Pipeline`].
#[cfg(feature = "files")]
pub fn read(model: &std::path::Path) -> Result<Imported, RankError> {
    Imported::parse(&model.display().to_string(), &crate::rank::read_config_text(model)?)
}
