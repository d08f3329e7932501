use crate::GrowingTables;
use crate::config::Sharding;
use rewire_graph::Graph;
use std::collections::{BTreeMap, BTreeSet};

/// The training objective: a model with its loss.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_train::Objective;
/// let scope = Scope::new();
/// let rows = scope.size("rows");
/// let x = scope.input("x", DType::F32, (&rows, 3));
/// let y = scope.input("y", DType::F32, (&rows, 1));
/// let error = x.matmul(&scope.parameter("weight", DType::F32, [3, 1])) - y;
/// let loss = (&error * &error).mean(0);
/// let objective = Objective::new(scope.finish(&[("loss", loss)])?, "loss");
/// # Ok::<(), rewire_graph::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Objective {
    pub(crate) graph: Graph,
    pub(crate) loss: String,
    pub(crate) tables: BTreeSet<String>,
    pub(crate) frozen: BTreeSet<String>,
    pub(crate) examples: Option<String>,
    pub(crate) sharding: BTreeMap<String, Sharding>,
    pub(crate) growing: Vec<GrowingTables>,
}

impl Objective {
    /// Creates an objective from the graph of a model, traced in [`Mode::Train`](rewire_graph::Mode::Train), and the name of the output to
    /// minimize, an `F32` of one element. Other outputs of one element are reported with it. All float parameters are trained.
    pub fn new(graph: Graph, loss: impl Into<String>) -> Self {
        Self {
            graph,
            loss: loss.into(),
            tables: BTreeSet::new(),
            frozen: BTreeSet::new(),
            examples: None,
            sharding: BTreeMap::new(),
            growing: vec![],
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Declares parameters as tables: the sparse optimizer updates only the rows looked up in a step. The ids must depend
    /// only on inputs of a run.
    #[must_use]
    pub fn tables<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.tables.extend(names.into_iter().map(Into::into));
        self
    }

    /// The names of the tables.
    pub fn table_names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(String::as_str)
    }

    /// Declares growing tables, whose rows are assigned to ids at run time. Their inputs may then be raw ids, `I64`, instead of rows.
    #[must_use]
    pub fn growing(mut self, tables: impl IntoIterator<Item = GrowingTables>) -> Self {
        self.growing.extend(tables);
        self
    }

    /// Overrides the configured sharding of some tables.
    #[must_use]
    pub fn sharded(mut self, tables: impl IntoIterator<Item = (String, Sharding)>) -> Self {
        self.sharding.extend(tables);
        self
    }

    /// Declares an input with one row per example, for a loss that is a mean over examples. Ranks then weight the losses
    /// of their batches by the number of examples; otherwise all batches have the same weight.
    #[must_use]
    pub fn examples(mut self, input: impl Into<String>) -> Self {
        self.examples = Some(input.into());
        self
    }

    /// Declares parameters as frozen.
    #[must_use]
    pub fn frozen<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.frozen.extend(names.into_iter().map(Into::into));
        self
    }
}
