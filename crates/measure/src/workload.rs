use crate::decoder::step;
use crate::draft::{Draft, DraftError, draw_lengths, take};
use crate::imported::rows;
use crate::ops::{OPS, Op, TABLE};
use crate::{BenchError, Noise, Shape};
use rewire::generate::decoder;
use rewire::import::ImportedModel;
use rewire::package::{Package, PackageError};
use rewire::predict::Imported;
use rewire::weights::Weights;
use rewire::{lower, optimize};
use rewire_graph::ParameterSpec;
use rewire_graph::shape::{HostInput, ShapeError};
use rewire_graph::{DType, Graph, HostTensor};
use rewire_graph_rewrite::passes::Pipeline;
use rewire_graph_rewrite::plan::{Named, Plan, Precision, Source};
use rewire_hstu::models::ModelError;
use rewire_hstu::models::dlrm_hstu::{self, Config, InputRows, InputSpec};
use rewire_runtime::HostMemory;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A graph or package with values for its inputs and parameters.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name of the operator, module or model.
    pub op: String,
    /// Its sizes, named by the fields of [`Shape`].
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: DType,
    /// Storage types of floats.
    pub precision: Precision,
    /// Names of the parameters that are embedding tables.
    pub tables: HashSet<String>,
    /// The computation.
    pub program: Program,
    /// Inputs by name.
    pub inputs: Vec<(String, HostTensor)>,
    /// Parameters by name; empty for a package, which contains them.
    pub parameters: HashMap<String, HostTensor>,
    /// Number of rows of states with a dynamic first extent.
    pub state_rows: usize,
    /// Names of rewrite passes and rules to skip.
    pub without: Vec<String>,
}

/// The computation of a workload.
#[derive(Clone, Debug)]
pub enum Program {
    /// A graph as traced.
    Graph(Graph),
    /// A package with its plan and its weights.
    Package(Box<Package>),
}

/// Names and descriptions of the benchmarks.
pub fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPS.iter().map(|op| (op.name, op.about))
}

/// Names of the sizes that a model uses.
const MODEL: [&str; 8] = ["batch", "max_len", "len_dist", "targets", "tables", "weights", "sums", "seed"];

impl Workload {
    /// Checks the sizes of an operator or module, without creating data.
    ///
    /// # Errors
    /// [`BenchError::UnknownOp`] lists the names, [`BenchError::Size`] names the invalid size.
    pub fn check(name: &str, shape: &Shape) -> Result<(), BenchError> {
        let op = find(name)?;
        shape.check(op.sizes).map_err(|error| BenchError::draft(op.name, error))
    }

    /// An operator or module with random data. `name` is one of [`operators`].
    ///
    /// ```
    /// use rewire_measure::{Shape, Workload};
    /// let workload = Workload::operator("layer-norm", &Shape { rows: 100, ..Shape::default() })?;
    /// assert_eq!(workload.inputs[0].1.shape(), [100, 512]);
    /// assert!(Workload::operator("nonsense", &Shape::default()).is_err());
    /// # Ok::<(), rewire_measure::BenchError>(())
    /// ```
    ///
    /// # Errors
    /// [`BenchError::UnknownOp`] lists the names, [`BenchError::Size`] and [`BenchError::Trace`] name the invalid size, and
    /// [`BenchError::Memory`] has the required memory.
    pub fn operator(name: &str, shape: &Shape) -> Result<Self, BenchError> {
        let op = find(name)?;
        let failed = |error: DraftError| BenchError::draft(op.name, error);
        shape.check(op.sizes).map_err(failed)?;
        let mut draft = Draft::new(shape);
        let outputs = (op.build)(&mut draft).map_err(failed)?;
        let Draft { scope, mut noise, inputs, mut memory, state_rows, .. } = draft;
        let graph = scope.finish(&outputs).map_err(|error| failed(ModelError::from(error).into()))?;
        let parameters = random(graph.parameters(), &mut noise, &mut memory).map_err(failed)?;
        let workload = Self {
            op: op.name.to_owned(),
            shape: shape.only(op.sizes),
            dtype: shape.dtype,
            precision: precision(shape),
            tables: HashSet::from([TABLE.to_owned()]),
            program: Program::Graph(graph),
            inputs,
            parameters,
            state_rows,
            without: vec![],
        };
        if shape.backward { workload.with_gradients(&mut noise, &mut memory) } else { Ok(workload) }
    }

    /// A model with its weights, or random ones, and random users with at most `max_len` rows and `targets` candidates each.
    ///
    /// # Errors
    /// [`BenchError::Trace`] if the configuration is invalid; otherwise as [`Workload::operator`].
    pub fn model(
        name: &str,
        config: &Config,
        weights: Option<&Weights<'_>>,
        shape: &Shape,
    ) -> Result<Self, BenchError> {
        let failed = |error: DraftError| BenchError::draft(name, error);
        let graph = dlrm_hstu::trace(config).map_err(|error| failed(error.into()))?;
        let shape = Shape { max_len: shape.max_len.min(config.max_seq_len), ..shape.clone() };
        shape.check(&MODEL).map_err(failed)?;
        let (mut noise, mut memory) = (Noise::new(shape.seed), HostMemory::now());
        let inputs = users(config, &shape, &mut noise, &mut memory).map_err(failed)?;
        let tables = config.tables().collect();
        Self::of_graph(name, graph, (inputs, tables), weights, &shape, (noise, memory))
    }

    /// A language model and its graph with its weights, computing a token of `batch` sequences after the same `max_len` tokens.
    ///
    /// # Errors
    /// As [`Workload::model`].
    pub fn decoder(
        name: &str,
        (config, graph): (&decoder::Config, Graph),
        weights: &Weights<'_>,
        shape: &Shape,
    ) -> Result<Self, BenchError> {
        let failed = |error: DraftError| BenchError::draft(name, error);
        shape.check(&MODEL).map_err(failed)?;
        let (mut noise, mut memory) = (Noise::new(shape.seed), HostMemory::now());
        let (inputs, state_rows) = step(config, shape, &mut noise, &mut memory).map_err(failed)?;
        let tables = config.table().map(str::to_owned).into_iter().collect();
        let workload = Self::of_graph(name, graph, (inputs, tables), Some(weights), shape, (noise, memory))?;
        Ok(Self { state_rows, ..workload })
    }

    /// An imported model with its weights and a random table. The table has one id or number per row and step, `max_len` history steps
    /// and `targets` candidates.
    ///
    /// # Errors
    /// As [`Workload::model`].
    pub fn imported(name: &str, imported: &Imported, weights: &Weights<'_>, shape: &Shape) -> Result<Self, BenchError> {
        let failed = |error: DraftError| BenchError::draft(name, error);
        shape.check(&MODEL).map_err(failed)?;
        let (mut noise, mut memory) = (Noise::new(shape.seed), HostMemory::now());
        let inputs = rows(imported, shape, &mut noise, &mut memory).map_err(failed)?;
        let graph = imported.graph().clone();
        Self::of_graph(name, graph, (inputs, imported.tables()), Some(weights), shape, (noise, memory))
    }

    /// An exported model with its weights and random inputs. Dynamic axes have `rows` elements.
    ///
    /// # Errors
    /// As [`Workload::model`].
    pub fn exported(name: &str, model: &ImportedModel, shape: &Shape) -> Result<Self, BenchError> {
        let failed = |error: DraftError| BenchError::draft(name, error);
        shape.check(&PLAN).map_err(failed)?;
        let (mut noise, mut memory) = (Noise::new(shape.seed), HostMemory::now());
        let plan = lower(&optimize(model.graph.clone())?.0)?;
        let inputs = inputs_of(&plan, shape, &mut noise, &mut memory)?.map_err(failed)?;
        let workload = Self {
            op: name.to_owned(),
            shape: shape.only(&PLAN),
            dtype: shape.dtype,
            precision: precision(shape),
            tables: tables_of(&plan),
            program: Program::Graph(model.graph.clone()),
            inputs,
            parameters: model.parameters.clone(),
            state_rows: 1,
            without: vec![],
        };
        if shape.backward { workload.with_gradients(&mut noise, &mut memory) } else { Ok(workload) }
    }

    /// A graph with its inputs, the names of its tables, and stored and random parameters.
    fn of_graph(
        name: &str,
        graph: Graph,
        (inputs, tables): (Vec<(String, HostTensor)>, HashSet<String>),
        weights: Option<&Weights<'_>>,
        shape: &Shape,
        (mut noise, mut memory): (Noise, HostMemory),
    ) -> Result<Self, BenchError> {
        let failed = |error: DraftError| BenchError::draft(name, error);
        let mut given = weights.map_or(Ok(BTreeMap::new()), Weights::tensors).map_err(PackageError::from)?;
        let (known, unknown): (Vec<_>, _) =
            graph.parameters().into_iter().partition(|spec| given.contains_key(&spec.name));
        let mut values = random(unknown, &mut noise, &mut memory).map_err(failed)?;
        values.extend(known.into_iter().filter_map(|spec| given.remove_entry(&spec.name)));
        let workload = Self {
            op: name.to_owned(),
            shape: shape.only(&MODEL),
            dtype: shape.dtype,
            precision: precision(shape),
            tables,
            program: Program::Graph(graph),
            inputs,
            parameters: values,
            state_rows: 1,
            without: vec![],
        };
        if shape.backward { workload.with_gradients(&mut noise, &mut memory) } else { Ok(workload) }
    }

    /// The same workload without some rewrite passes and rules. Its shape lists them as `without`.
    ///
    /// # Errors
    /// [`BenchError::Compile`] if there is no pass or rule of a name, [`BenchError::NoGraph`] for a package.
    pub fn without(mut self, names: &[String]) -> Result<Self, BenchError> {
        if let Program::Package(_) = self.program {
            return Err(BenchError::NoGraph { name: self.op });
        }
        names.iter().try_fold(Pipeline::default(), |passes, name| passes.without(name))?;
        self.shape.insert("without".to_owned(), names.join("+").into());
        self.without = names.to_vec();
        Ok(self)
    }
}

/// Names of the sizes that a package uses.
const PLAN: [&str; 8] = ["batch", "max_len", "len_dist", "rows", "tables", "weights", "sums", "seed"];

impl Workload {
    /// A package of any model with its weights and random inputs: `batch` samples of at most `max_len` rows if it reads lengths, and `rows`
    /// rows for all other inputs.
    ///
    /// # Errors
    /// [`BenchError::Package`] for a damaged package, [`BenchError::NoGraph`] if gradients are requested; otherwise as
    /// [`Workload::operator`].
    pub fn package(name: &str, package: &Package, shape: &Shape) -> Result<Self, BenchError> {
        if shape.backward {
            return Err(BenchError::NoGraph { name: name.to_owned() });
        }
        let failed = |error: DraftError| BenchError::draft(name, error);
        let plan = package.plan()?;
        shape.check(&PLAN).map_err(failed)?;
        let (mut noise, mut memory) = (Noise::new(shape.seed), HostMemory::now());
        let inputs = inputs_of(&plan, shape, &mut noise, &mut memory)?.map_err(failed)?;
        Ok(Self {
            op: name.to_owned(),
            shape: shape.only(&PLAN),
            dtype: shape.dtype,
            precision: precision(shape),
            tables: tables_of(&plan),
            inputs,
            parameters: HashMap::new(),
            program: Program::Package(Box::new(package.clone())),
            state_rows: 1,
            without: vec![],
        })
    }

    /// The graph as traced.
    ///
    /// # Errors
    /// [`BenchError::NoGraph`] for a package, which only holds a plan.
    pub fn graph(&self) -> Result<&Graph, BenchError> {
        match &self.program {
            Program::Graph(graph) => Ok(graph),
            Program::Package(_) => Err(BenchError::NoGraph { name: self.op.clone() }),
        }
    }
}

/// Names of a plan's tables.
fn tables_of(plan: &Plan) -> HashSet<String> {
    let name = |id| match &plan.buffer(id)?.source {
        Source::Parameter(name) => Some(name.clone()),
        _ => None,
    };
    plan.tables().into_iter().filter_map(name).collect()
}

/// Random inputs of a plan. The outer error is for sizes that the plan rejects.
fn inputs_of(
    plan: &Plan,
    shape: &Shape,
    noise: &mut Noise,
    memory: &mut HostMemory,
) -> Result<Result<Vec<(String, HostTensor)>, DraftError>, ShapeError> {
    let is_host = |name: &str| plan.host_inputs.iter().any(|input| input.name == name);
    let mut host: Vec<(&HostInput, Vec<i64>)> = vec![];
    for input in &plan.host_inputs {
        let values = match input.shape.first().map(|extent| extent.as_const().unwrap_or(shape.batch)) {
            Some(count) => draw_lengths(noise, memory, count, shape.len_dist, shape.max_len),
            None => Ok(vec![shape.max_len as i64]),
        };
        match values {
            Ok(values) => host.push((input, values)),
            Err(error) => return Ok(Err(error)),
        }
    }
    let extent = |name: &str, _: usize| Some(if is_host(name) { shape.batch } else { shape.rows });
    let symbols = plan.shapes.run(host.iter().cloned(), extent)?.symbols;
    let rows_of = |name: &str| {
        let ids = plan.shapes.ids.iter().find(|ids| ids.input == name)?;
        ids.rows.evaluate(|symbol| symbols.get(&symbol).copied())
    };
    let tensor = |input: Named<'_>| -> Result<(String, HostTensor), DraftError> {
        if let Some((_, values)) = host.iter().find(|(known, _)| known.name == input.name) {
            let tensor = HostTensor::lengths(values);
            let shape = if input.shape.is_empty() { vec![] } else { vec![values.len()] };
            return Ok((input.name.to_owned(), tensor.reshape(shape)?));
        }
        let extents = input.shape.iter().map(|dim| dim.evaluate(|symbol| symbols.get(&symbol).copied()).unwrap_or(0));
        let extents: Vec<usize> = extents.collect();
        take(memory, input.dtype, &extents)?;
        let count = extents.iter().product();
        let tensor = match (input.dtype, rows_of(input.name)) {
            (dtype, _) if dtype.is_float() => noise.floats(dtype, &extents)?,
            (dtype, rows) => {
                let ids: Vec<f64> = noise.ids(count, rows.unwrap_or(1))?.to_f64();
                HostTensor::from_f64(dtype, extents, &ids)?
            }
        };
        Ok((input.name.to_owned(), tensor))
    };
    Ok(plan.inputs().map(tensor).collect())
}

/// Storage types of floats for a shape.
fn precision(shape: &Shape) -> Precision {
    let narrow = (shape.dtype != DType::F32).then_some(shape.dtype);
    Precision {
        tables: shape.tables.or(narrow),
        weights: shape.weights.or(narrow),
        activations: narrow,
        sums: shape.sums,
        ..Precision::default()
    }
}

fn find(name: &str) -> Result<&'static Op, BenchError> {
    OPS.iter().find(|op| op.name == name.replace('_', "-")).ok_or_else(|| BenchError::UnknownOp {
        name: name.to_owned(),
        known: OPS.iter().map(|op| op.name).collect::<Vec<_>>().join(", "),
    })
}

fn random(
    specs: Vec<ParameterSpec>,
    noise: &mut Noise,
    memory: &mut HostMemory,
) -> Result<HashMap<String, HostTensor>, DraftError> {
    specs.iter().try_for_each(|spec| take(memory, spec.dtype, &spec.shape))?;
    let value = |spec: ParameterSpec| Ok((spec.name, noise.floats(spec.dtype, &spec.shape)?));
    specs.into_iter().map(value).collect()
}

/// Random inputs of a model.
fn users(
    config: &Config,
    shape: &Shape,
    noise: &mut Noise,
    memory: &mut HostMemory,
) -> Result<Vec<(String, HostTensor)>, DraftError> {
    let context = config.feature_groups.contextual.len();
    let most = shape.max_len.saturating_sub(context);
    let lengths = draw_lengths(noise, memory, shape.batch, shape.len_dist, most)?;
    let (low, high) = shape.targets.within(shape.max_len);
    let candidates: Vec<i64> =
        lengths.iter().map(|length| noise.between(low as i64, high as i64).max(1).min(*length)).collect();
    let history: Vec<i64> = lengths.iter().zip(&candidates).map(|(all, candidates)| all - candidates).collect();
    let inputs = config.inputs();
    let rows = lengths.iter().sum::<i64>() as usize;
    inputs.iter().try_for_each(|_| take(memory, DType::I64, &[rows]))?;
    inputs.iter().map(|spec| Ok((spec.name.clone(), user(spec, &history, &candidates, noise)?))).collect()
}

fn user(
    spec: &InputSpec,
    history: &[i64],
    candidates: &[i64],
    noise: &mut Noise,
) -> Result<HostTensor, rewire_graph::TensorSizeError> {
    let (group, name) = spec.name.split_once('.').unwrap_or(("", &spec.name));
    let of_group = if group == "uih" { history } else { candidates };
    let entries = match spec.rows {
        InputRows::Users => vec![1; history.len()],
        InputRows::History => history.to_vec(),
        InputRows::Candidates => candidates.to_vec(),
    };
    let count = entries.iter().sum::<i64>() as usize;
    let mut below = |end: i64| (0..count).map(|_| noise.between(0, end - 1)).collect::<Vec<i64>>();
    match (spec.num_embeddings, spec.dtype, name) {
        (Some(rows), ..) => noise.ids(count, rows),
        (None, None, _) => Ok(HostTensor::lengths(of_group)),
        (None, Some(_), "action") => HostTensor::i64(vec![count], &below(4)),
        (None, Some(_), "watchtime") => HostTensor::i64(vec![count], &below(2000)),
        (None, Some(_), _) => noise.ascending(&entries, 1, 5000),
    }
}
