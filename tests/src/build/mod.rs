//! Programs traced to graphs, with inputs and parameters to run them on.

mod attention;
mod dense;
mod jagged;
mod layers;
mod pool;

use crate::backend::Tensors;
use crate::case::GraphCase;
use crate::noise::Noise;
use crate::program::{Instruction, Kind, Program};
use pool::{Pool, Rows};
use rewire_graph::{DType, Dim, Graph, HostTensor, Ragged, Scope, Tensor};

struct Builder {
    scope: Scope,
    seed: u64,
    inputs: Tensors,
    parameters: Tensors,
    pool: Pool,
    batch: Dim,
    count: usize,
}

/// Traces a program.
pub fn build(program: &Program) -> Result<GraphCase, String> {
    trace(program).0.finish(program)
}

/// The kinds of a program's instructions that fit.
pub fn kinds(program: &Program) -> Vec<Kind> {
    trace(program).1
}

fn trace(program: &Program) -> (Builder, Vec<Kind>) {
    let scope = Scope::new();
    let mut inputs = Tensors::new();
    let divisions = divisions(&scope, program, &mut inputs);
    let batch = divisions[0].ragged.batch.clone();
    let mut builder = Builder {
        scope,
        seed: program.seed,
        inputs,
        parameters: Tensors::new(),
        pool: Pool { rows: divisions, ..Pool::default() },
        batch,
        count: 0,
    };
    builder.sources(program);
    let fit = |&instruction: &Instruction| builder.step(instruction).then_some(instruction.kind);
    let kinds = program.instructions.iter().filter_map(fit).collect();
    (builder, kinds)
}

fn divisions(scope: &Scope, program: &Program, inputs: &mut Tensors) -> Vec<Rows> {
    let first: Vec<i64> = program.lengths.iter().map(|pair| i64::from(pair.0)).collect();
    let second: Vec<i64> = program.lengths.iter().map(|pair| i64::from(pair.1)).collect();
    let a = if program.offsets {
        let ends = first.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        });
        let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
        inputs.insert("first".to_owned(), HostTensor::lengths(&offsets));
        scope.offsets("first")
    } else {
        inputs.insert("first".to_owned(), HostTensor::lengths(&first));
        scope.lengths("first", &scope.size("batch"))
    };
    inputs.insert("second".to_owned(), HostTensor::lengths(&second));
    let b = Ragged::from_lengths(&scope.host_input("second", std::slice::from_ref(&a.batch)));
    vec![Rows { ragged: a, lengths: first }, Rows { ragged: b, lengths: second }]
}

impl Builder {
    /// The tensors a program starts with.
    fn sources(&mut self, program: &Program) {
        let (batch, width) = (program.lengths.len(), program.width);
        let totals: Vec<(Dim, usize)> =
            self.pool.rows.iter().map(|rows| (rows.ragged.total.clone(), rows.total())).collect();
        let rows = self.scope.size("rows");
        let few = (rows, program.rows);
        let samples = (self.batch.clone(), batch);
        for (name, dtype, (dim, count)) in [
            ("free", DType::F32, &few),
            ("sample", DType::F32, &samples),
            ("other", DType::F32, &totals[1]),
            ("half", DType::F16, &totals[0]),
            ("x", DType::F32, &totals[0]),
            ("y", DType::F32, &totals[0]),
        ] {
            let tensor = self.scope.input(name, dtype, &[dim.clone(), width.into()]);
            let values = Noise::new(self.seed, name).floats(dtype, &[*count, width], 1.5);
            self.inputs.insert(name.to_owned(), values);
            self.pool.floats.push(tensor);
        }
        let factor = self.scope.input("factor", DType::F32, &[]);
        self.inputs.insert("factor".to_owned(), Noise::new(self.seed, "factor").floats(DType::F32, &[], 1.5));
        self.pool.floats.insert(0, factor);
        for (name, dtype, (dim, count), low, high) in [
            ("time", DType::I64, &totals[0], -3_000_000_000_000, 3_000_000_000_000),
            ("now", DType::I64, &samples, -5, 5_000_000_000),
            ("small", DType::I32, &totals[0], -9, 10),
            ("id", DType::U32, &totals[0], 0, 12),
            ("free_id", DType::U32, &few, 0, 12),
        ] {
            let tensor = self.scope.input(name, dtype, std::slice::from_ref(dim));
            let values = Noise::new(self.seed, name).integers(dtype, &[*count], low, high);
            self.inputs.insert(name.to_owned(), values);
            self.pool.integers.push(tensor);
        }
    }

    /// Executes an instruction; false if it does not fit.
    fn step(&mut self, instruction: Instruction) -> bool {
        self.count += 1;
        let added = match instruction.kind {
            Kind::Unary => self.unary(instruction),
            Kind::Binary => self.binary(instruction),
            Kind::Scalar => self.scalar(instruction),
            Kind::Choose => self.choose(instruction),
            Kind::Reduce => self.reduce(instruction),
            Kind::Norm => self.norm(instruction),
            Kind::Linear => self.linear(instruction),
            Kind::MatMul => self.matmul(instruction),
            Kind::Reshape => self.reshape(instruction),
            Kind::Permute => self.permute(instruction),
            Kind::Slice => self.slice(instruction),
            Kind::Concat => self.concat(instruction),
            Kind::SplitJoin => self.split_join(instruction),
            Kind::Gather => self.gather(instruction),
            Kind::Integer => self.integer(instruction),
            Kind::Float => self.float(instruction),
            Kind::JaggedConcat => self.jagged_concat(instruction),
            Kind::JaggedSlice => self.jagged_slice(instruction),
            Kind::JaggedBroadcast => self.jagged_broadcast(instruction),
            Kind::Position => self.position(instruction),
            Kind::JaggedMatMul => self.jagged_matmul(instruction),
            Kind::Attention => self.attention(instruction),
            Kind::Half => self.half(instruction),
            Kind::Host => self.host(instruction),
            Kind::Dropout => self.dropout(instruction),
            Kind::Padded => self.padded(instruction),
            Kind::SoftmaxAttention => self.softmax_attention(instruction),
            Kind::JaggedSoftmaxAttention => self.jagged_softmax_attention(instruction),
            Kind::HstuAttention => self.hstu_attention(instruction),
            Kind::Timestamps => self.timestamps(instruction),
            Kind::Siblings => self.siblings(instruction),
            Kind::LinearNorm => self.linear_norm(instruction),
            Kind::Convolution => self.convolution(instruction),
            Kind::Ranking => self.ranking(instruction),
            Kind::Bag => self.bag(instruction),
        };
        let fits = added.is_some();
        added.into_iter().for_each(|tensor| self.pool.add(tensor));
        fits
    }

    fn finish(mut self, program: &Program) -> Result<GraphCase, String> {
        let last = self.pool.last.clone().unwrap_or_else(|| self.pool.floats[self.pool.floats.len() - 1].abs());
        let mut outputs = vec![last];
        for &pick in &program.outputs {
            let tensor = self.pool.any(pick);
            if outputs.iter().all(|known| known.value() != tensor.value()) {
                outputs.push(tensor);
            }
        }
        let names: Vec<String> = (0..outputs.len()).map(|n| format!("out{n}")).collect();
        let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
        let graph = self.scope.clone().finish(&named).map_err(|error| format!("trace: {error}"))?;
        self.module_parameters(&graph);
        Ok(GraphCase { graph, inputs: self.inputs, parameters: self.parameters })
    }

    /// Values for the parameters of modules.
    fn module_parameters(&mut self, graph: &Graph) {
        for parameter in graph.parameters() {
            let scale = 1.0 / (parameter.shape.last().copied().unwrap_or(1).max(1) as f64).sqrt();
            let mut noise = Noise::new(self.seed, &parameter.name);
            self.parameters
                .entry(parameter.name.clone())
                .or_insert_with(|| noise.floats(parameter.dtype, &parameter.shape, scale));
        }
    }

    /// A parameter of this step.
    fn parameter(&mut self, name: &str, shape: &[usize], scale: f64) -> Tensor {
        let name = format!("{name}{}", self.count);
        let dims: Vec<Dim> = shape.iter().map(|&n| n.into()).collect();
        let values = Noise::new(self.seed, &name).floats(DType::F32, shape, scale);
        let tensor = self.scope.parameter(&name, DType::F32, &dims);
        self.parameters.insert(name, values);
        tensor
    }
}
