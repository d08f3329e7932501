use super::{Application, Context, Pass, PassReport, Report};
use crate::cost::{HardwareModel, traffic};
use crate::error::RewriteError;
use rewire_graph::{DType, Graph};

/// Passes in order.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::passes::Pipeline;
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
/// let graph = scope.finish(&[("y", &x * &x.sigmoid())])?;
///
/// let (simplified, report) = Pipeline::default().up_to(2).run(graph.clone())?;
/// assert_eq!(simplified.counts().get("silu"), Some(&1));
/// assert_eq!(report.passes[1].applications[0].rule, "silu");
///
/// let (same, _) = Pipeline::default().up_to(2).without("silu")?.run(graph)?;
/// assert_eq!(same.counts().get("silu"), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pipeline {
    passes: Vec<Box<dyn Pass>>,
    context: Context,
}

impl Default for Pipeline {
    /// The passes of [`optimize`].
    fn default() -> Self {
        Self::new(super::all())
    }
}

impl Pipeline {
    /// A pipeline of these passes.
    pub fn new(passes: Vec<Box<dyn Pass>>) -> Self {
        Self { passes, context: Context::new() }
    }

    /// The passes, in order.
    pub fn passes(&self) -> impl Iterator<Item = &dyn Pass> {
        self.passes.iter().map(AsRef::as_ref)
    }

    /// The first `count` passes.
    #[must_use]
    pub fn up_to(mut self, count: usize) -> Self {
        self.passes.truncate(count);
        self
    }

    /// The pipeline without a pass or a rule.
    ///
    /// # Errors
    /// [`RewriteError::Unknown`] if the name does not exist.
    pub fn without(mut self, name: &str) -> Result<Self, RewriteError> {
        self.known(name)?;
        self.context.disable(name);
        self.passes.retain(|pass| pass.name() != name);
        Ok(self)
    }

    /// The pipeline with only one pass or rule.
    ///
    /// # Errors
    /// [`RewriteError::Unknown`] if the name does not exist.
    pub fn only(mut self, name: &str) -> Result<Self, RewriteError> {
        self.known(name)?;
        self.passes.retain(|pass| pass.name() == name || pass.rules().iter().any(|rule| rule == name));
        for pass in self.passes.iter().filter(|pass| pass.name() != name) {
            for rule in pass.rules().iter().filter(|rule| *rule != name) {
                self.context.disable(rule);
            }
        }
        Ok(self)
    }

    /// Limits the pipeline to the first `rewrites` rewrites.
    #[must_use]
    pub fn limit(mut self, rewrites: usize) -> Self {
        self.context.limit(rewrites);
        self
    }

    /// Optimizes for a machine instead of [`HardwareModel::TYPICAL`].
    #[must_use]
    pub fn for_machine(mut self, machine: HardwareModel) -> Self {
        self.context.choose_for(machine);
        self
    }

    /// Optimizes for a plan that [stores floats](crate::plan::Plan::store_floats_as) as `dtype` between kernels instead
    /// of as `F32`.
    #[must_use]
    pub fn for_storage(mut self, dtype: DType) -> Self {
        self.context.store_floats_as(dtype);
        self
    }

    /// Allows kernels to read and write up to `count` tensors instead of the number that every GPU supports.
    #[must_use]
    pub fn for_bindings(mut self, count: usize) -> Self {
        self.context.bind(count);
        self
    }

    /// Adds near misses and memory traffic to the report.
    #[must_use]
    pub fn explain(mut self) -> Self {
        self.context.explain();
        self
    }

    /// Runs all passes, verifying the graph after each.
    ///
    /// # Errors
    /// [`RewriteError::Graph`] if `graph` is invalid before the first pass or after a pass, which the error names;
    /// otherwise the error of a pass.
    pub fn run(&self, graph: Graph) -> Result<(Graph, Report), RewriteError> {
        self.run_within(graph, self.context.fresh())
    }

    /// Finds the first rewrite that changes the graph's results, by bisecting the number of rewrites; `None` if
    /// `is_same` accepts the graph after all rewrites.
    ///
    /// `is_same` usually runs its argument on some inputs and compares the outputs with the outputs of `graph`.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::passes::{Pipeline, Simplify};
    /// use rewire_graph_rewrite::rules::TracedRule;
    /// let wrong = TracedRule::new(
    ///     "wrong",
    ///     |p| vec![p.any("x", DType::F32).tanh()],
    ///     |r| vec![r.tensor("x").sigmoid()],
    /// )?;
    /// let pipeline = Pipeline::new(vec![Box::new(Simplify::default()), Box::new(Simplify::new(vec![Box::new(wrong)]))]);
    ///
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[4.into()]);
    /// let graph = scope.finish(&[("y", (&(&x * &x.sigmoid()) * 1.0).tanh())])?;
    /// let found = pipeline.bisect(&graph, |graph| graph.counts().contains_key("tanh"))?;
    /// assert_eq!(found.map(|application| application.rule), Some("wrong".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::run`].
    pub fn bisect(
        &self,
        graph: &Graph,
        mut is_same: impl FnMut(&Graph) -> bool,
    ) -> Result<Option<Application>, RewriteError> {
        let run = |rewrites: usize| {
            let mut context = self.context.fresh();
            context.limit(rewrites);
            self.run_within(graph.clone(), context)
        };
        let (last, report) = self.run(graph.clone())?;
        if is_same(&last) {
            return Ok(None);
        }
        let (mut right, mut wrong): (usize, usize) =
            (0, report.passes.iter().map(|pass| pass.applications.len()).sum());
        while right + 1 < wrong {
            let middle = right.midpoint(wrong);
            if is_same(&run(middle)?.0) {
                right = middle;
            } else {
                wrong = middle;
            }
        }
        let applications = run(wrong)?.1.passes.into_iter().flat_map(|pass| pass.applications);
        Ok(applications.last())
    }

    /// Runs all passes in a context.
    pub(super) fn run_within(&self, graph: Graph, mut context: Context) -> Result<(Graph, Report), RewriteError> {
        graph.verify().map_err(|source| RewriteError::graph("input", source))?;
        let mut report = Report::default();
        let mut graph = graph;
        let explaining = context.is_explaining();
        let mut bytes = explaining.then(|| traffic(&graph)).transpose()?;
        for pass in &self.passes {
            let next = pass.run(&graph, &mut context)?;
            let after = match next.is_unchanged(&graph) {
                true => bytes,
                false => {
                    next.verify_since(&graph).map_err(|source| RewriteError::graph(pass.name(), source))?;
                    explaining.then(|| traffic(&next)).transpose()?
                }
            };
            report.passes.push(PassReport {
                pass: pass.name().to_owned(),
                applications: std::mem::take(&mut context.applications),
                near_misses: std::mem::take(&mut context.near_misses),
                nodes: (graph.len(), next.len()),
                bytes: bytes.zip(after),
                detail: std::mem::take(&mut context.detail),
            });
            (graph, bytes) = (next, after);
        }
        Ok((graph, report))
    }

    fn known(&self, name: &str) -> Result<(), RewriteError> {
        let mut known = vec![];
        for pass in &self.passes {
            known.push(pass.name().to_owned());
            known.extend(pass.rules().into_iter().filter(|rule| rule != pass.name()));
        }
        if known.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(RewriteError::Unknown { name: name.to_owned(), known: known.join(", ") })
    }
}

/// Runs the default [`Pipeline`].
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
/// let y = &(&x * 2.0).silu() + 1.0;
/// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", y)])?)?;
/// assert_eq!(graph.counts().get("pointwise"), Some(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Pipeline::run`].
pub fn optimize(graph: Graph) -> Result<(Graph, Report), RewriteError> {
    Pipeline::default().run(graph)
}
