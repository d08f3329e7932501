//! Compiles kernels with a GPU driver, without running them.

use crate::{BenchError, Program, Workload};
use rewire::emit::{ParsedKernel, emit_with_windows, of_family};
use rewire_graph::op::Registry;
use rewire_graph_rewrite::device::{BindingChunks, Target, Tuning};
use rewire_graph_rewrite::lower;
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::plan::{Computation, Plan, Step, Table};
use rewire_graph_rewrite::prove::confine;
use rewire_runtime::{CompiledKernel, KernelCompiler, RuntimeError};
use serde::Serialize;
use std::collections::HashMap;

/// A kernel of a workload, compiled by the driver of an adapter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompiledStep {
    /// The operator, module or model.
    pub work: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Module path of the kernel.
    pub path: String,
    /// Schedule of the kernel; `None` for a custom operator.
    pub schedule: Option<&'static str>,
    /// The adapter.
    pub adapter: String,
    /// Statistics reported by the driver.
    #[serde(flatten)]
    pub compiled: CompiledKernel,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: Option<u64>,
    /// True if the kernel uses cooperative matrices.
    pub matrix: bool,
    /// The error, if the kernel does not compile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CompiledStep {
    /// True if the kernel spills registers.
    pub fn spills(&self) -> bool {
        self.compiled.spills.is_some_and(|count| count > 0) || self.compiled.scratch.is_some_and(|bytes| bytes > 0)
    }
}

/// A compiled shader, its workgroup memory in bytes, and whether it uses cooperative matrices.
type Figures = Result<(CompiledKernel, u64, bool), String>;

impl Workload {
    /// The plan of the workload's kernels.
    ///
    /// # Errors
    /// [`BenchError`] if the graph cannot be rewritten or lowered, or the package is damaged.
    pub fn plan(&self) -> Result<Plan, BenchError> {
        let mut plan = match &self.program {
            Program::Graph(graph) => {
                let passes = Pipeline::default().for_storage(self.dtype);
                let passes = self.without.iter().try_fold(passes, |passes, name| passes.without(name))?;
                lower(&passes.run(graph.clone())?.0)?
            }
            Program::Package(package) => package.plan()?,
        };
        plan.store(self.precision, |name| self.tables.contains(name).then_some(Table::Pooled));
        Ok(plan)
    }
}

/// Compiles the kernels of workloads with the driver of an adapter. A shader that several kernels share is compiled once.
pub struct DriverCompiler<'c> {
    compiler: &'c KernelCompiler,
    tuning: Tuning,
    code: bool,
    known: HashMap<String, Figures>,
}

impl<'c> DriverCompiler<'c> {
    /// A compiler with no known shaders. If `code` is set, results include the compiled programs.
    pub fn new(compiler: &'c KernelCompiler, tuning: Tuning, code: bool) -> Self {
        Self { compiler, tuning, code, known: HashMap::new() }
    }

    /// Emits and compiles the kernels of a plan for unknown sizes. A kernel that does not compile has an error in its result.
    ///
    /// # Errors
    /// [`BenchError::Load`] if the plan is invalid.
    pub fn compile(&mut self, work: &str, mut plan: Plan) -> Result<Vec<CompiledStep>, BenchError> {
        let wrong = |reason: String| BenchError::from(RuntimeError::Plan { reason });
        plan.bind(&Registry::default()).map_err(|error| wrong(error.to_string()))?;
        confine(&mut plan).map_err(|error| wrong(error.to_string()))?;
        Ok(plan.load.iter().chain(&plan.steps).map(|step| self.step(work, step)).collect())
    }

    fn step(&mut self, work: &str, step: &Step) -> CompiledStep {
        let own = CompiledStep {
            work: work.to_owned(),
            kernel: step.name.clone(),
            path: step.path.clone(),
            schedule: match &step.computation {
                Computation::Nest(nest) => Some(nest.schedule().name()),
                Computation::Custom(_) => None,
            },
            adapter: self.compiler.name().to_owned(),
            ..CompiledStep::default()
        };
        match self.figures(&step.computation) {
            Ok((compiled, bytes, matrix)) => CompiledStep { compiled, workgroup_bytes: Some(bytes), matrix, ..own },
            Err(error) => CompiledStep { error: Some(error), ..own },
        }
    }

    fn figures(&mut self, computation: &Computation) -> Figures {
        let parsed = emitted(computation, self.compiler.target(), self.tuning)?;
        let (compiler, code) = (self.compiler, self.code);
        let figures = self.known.entry(parsed.kernel.wgsl.clone()).or_insert_with(|| {
            let compiled = compiler.compile(&parsed, code).map_err(|error| error.to_string())?;
            Ok((compiled, parsed.workgroup_bytes(), parsed.multiplies_matrices()))
        });
        figures.clone()
    }
}

/// Emits the same kernel as loading a model.
fn emitted(computation: &Computation, target: &Target, tuning: Tuning) -> Result<ParsedKernel, String> {
    let tuning = of_family(tuning, computation, target);
    let windows = BindingChunks::of_constants(computation, target);
    emit_with_windows(computation, target, &tuning, &windows).map_err(|error| error.to_string())
}
