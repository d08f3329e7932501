use crate::ops::TABLE;
use crate::{Lengths, Noise, Shape};
use rewire_graph::limits::MAX_EXTENT;
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor, TensorSizeError};
use rewire_hstu::models::ModelError;
use rewire_hstu::modules::ConfigError;
use rewire_runtime::{HostMemory, HostMemoryError};

/// A graph under construction, with values for its inputs.
pub(crate) struct Draft<'a> {
    pub scope: Scope,
    pub shape: &'a Shape,
    pub noise: Noise,
    pub inputs: Vec<(String, HostTensor)>,
    pub memory: HostMemory,
    /// Number of rows of states with a dynamic first extent.
    pub state_rows: usize,
}

/// Why a graph or its values cannot be created.
pub(crate) enum DraftError {
    Model(Box<ModelError>),
    Memory(HostMemoryError),
    /// A size is invalid.
    Size {
        name: &'static str,
        expected: String,
        actual: String,
    },
}

impl From<ModelError> for DraftError {
    fn from(error: ModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

impl From<ConfigError> for DraftError {
    fn from(error: ConfigError) -> Self {
        ModelError::from(error).into()
    }
}

impl From<TensorSizeError> for DraftError {
    fn from(error: TensorSizeError) -> Self {
        ModelError::from(error).into()
    }
}

impl From<serde_json::Error> for DraftError {
    fn from(error: serde_json::Error) -> Self {
        ModelError::from(error).into()
    }
}

impl From<HostMemoryError> for DraftError {
    fn from(error: HostMemoryError) -> Self {
        Self::Memory(error)
    }
}

/// Estimated host memory per sample of a run, in bytes: lengths, offsets and values derived from them.
const SAMPLE_BYTES: u64 = 64;

/// Reserves host memory for a tensor.
pub(crate) fn take(memory: &mut HostMemory, dtype: DType, shape: &[usize]) -> Result<(), HostMemoryError> {
    memory.take("the data", dtype.format().host_bytes(shape).map_or(u64::MAX, |bytes| bytes as u64))
}

/// Draws the number of rows of each sample. Their total is limited to the largest 32-bit count of a kernel.
pub(crate) fn draw_lengths(
    noise: &mut Noise,
    memory: &mut HostMemory,
    batch: usize,
    dist: Lengths,
    most: usize,
) -> Result<Vec<i64>, DraftError> {
    memory.take("the data", SAMPLE_BYTES.saturating_mul(batch as u64))?;
    let (low, high) = dist.within(most);
    let lengths: Vec<i64> = (0..batch).map(|_| noise.between(low as i64, high as i64)).collect();
    match lengths.iter().sum::<i64>() {
        0 => Err(DraftError::Size {
            name: "len_dist",
            expected: "a distribution with rows".to_owned(),
            actual: format!("{dist} of {most}, without rows for this seed"),
        }),
        1..=MAX_EXTENT => Ok(lengths),
        total => Err(DraftError::Size {
            name: "batch",
            expected: format!("at most {MAX_EXTENT} rows in all"),
            actual: format!("{batch}, which has {total}"),
        }),
    }
}

/// Ragged rows of samples, and their lengths.
pub(crate) struct Rows {
    pub ragged: Ragged,
    pub lengths: Vec<i64>,
}

impl Rows {
    pub fn total(&self) -> usize {
        self.lengths.iter().sum::<i64>() as usize
    }
}

impl<'a> Draft<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        let scope = Scope::new().without_places().with_weights(shape.dtype);
        Self { scope, shape, noise: Noise::new(shape.seed), inputs: vec![], memory: HostMemory::now(), state_rows: 1 }
    }

    /// Adds an input with its value.
    pub fn input(&mut self, name: &str, dims: &[Dim], value: HostTensor) -> Tensor {
        let tensor = self.scope.input(name, value.dtype(), dims);
        self.inputs.push((name.to_owned(), value));
        tensor
    }

    /// Adds random floats `[first, ..rest]`; `count` is the value of `first`.
    pub fn floats(&mut self, name: &str, first: &Dim, count: usize, rest: &[usize]) -> Result<Tensor, DraftError> {
        let dims: Vec<Dim> = std::iter::once(first.clone()).chain(rest.iter().map(|&n| n.into())).collect();
        let shape = [&[count], rest].concat();
        take(&mut self.memory, self.shape.dtype, &shape)?;
        let value = self.noise.floats(self.shape.dtype, &shape)?;
        Ok(self.input(name, &dims, value))
    }

    /// Adds `count` random ids `[..dims]` of a table with `table` rows. Also reserves memory for their embeddings.
    pub fn ids(&mut self, name: &str, dims: &[Dim], count: usize, table: usize) -> Result<Tensor, DraftError> {
        take(&mut self.memory, DType::U32, &[count])?;
        take(&mut self.memory, self.shape.dtype, &[count, self.shape.width])?;
        let value = self.noise.ids(count, table)?;
        Ok(self.input(name, dims, value))
    }

    /// Adds random floats per row of samples, `[total, ..rest]`.
    pub fn rows_of(&mut self, name: &str, rows: &Rows, rest: &[usize]) -> Result<Tensor, DraftError> {
        self.floats(name, &rows.ragged.total, rows.total(), rest)
    }

    /// Draws lengths of samples from the shape's distribution.
    pub fn lengths(&mut self) -> Result<Vec<i64>, DraftError> {
        let Shape { batch, len_dist, max_len, .. } = *self.shape;
        draw_lengths(&mut self.noise, &mut self.memory, batch, len_dist, max_len)
    }

    /// Draws the number of candidates of each sample, at least `least`, but at most the sample's length.
    pub fn targets(&mut self, lengths: &[i64], least: i64) -> Vec<i64> {
        let (low, high) = self.shape.targets.within(self.shape.max_len);
        let draw = |length: &i64| self.noise.between(low as i64, high as i64).max(least).min(*length);
        lengths.iter().map(draw).collect()
    }

    /// Adds samples with these lengths and a new batch size.
    pub fn samples(&mut self, name: &str, lengths: Vec<i64>) -> Rows {
        let batch = self.scope.size(&format!("{name} samples"));
        self.more_samples(name, &batch, lengths)
    }

    /// Adds samples with these lengths and an existing batch size.
    pub fn more_samples(&mut self, name: &str, batch: &Dim, lengths: Vec<i64>) -> Rows {
        let ragged = self.scope.lengths(name, batch);
        self.inputs.push((name.to_owned(), HostTensor::lengths(&lengths)));
        Rows { ragged, lengths }
    }

    /// Adds numbers of candidates for attention; `None` if the shape has no candidates.
    pub fn num_targets(&mut self, rows: &Rows) -> Option<Tensor> {
        if self.shape.targets == Lengths::NONE {
            return None;
        }
        let targets = self.targets(&rows.lengths, 0);
        self.inputs.push(("num_targets".to_owned(), HostTensor::lengths(&targets)));
        Some(self.scope.host_input("num_targets", std::slice::from_ref(&rows.ragged.batch)))
    }

    /// Adds ascending timestamps of the rows of samples.
    pub fn timestamps(&mut self, name: &str, rows: &Rows) -> Result<Tensor, DraftError> {
        take(&mut self.memory, DType::I64, &[rows.total()])?;
        let value = self.noise.ascending(&rows.lengths, 1, 5000)?;
        Ok(self.input(name, std::slice::from_ref(&rows.ragged.total), value))
    }

    /// A weight of this shape.
    pub fn weight(&self, name: &str, shape: &[usize]) -> Tensor {
        let dims: Vec<Dim> = shape.iter().map(|&n| n.into()).collect();
        self.scope.weight(name, &dims)
    }

    /// The embedding table, `[table, width]`.
    pub fn table(&self) -> Tensor {
        let size = [self.shape.table, self.shape.width];
        match self.shape.tables {
            Some(dtype) => self.scope.parameter(TABLE, dtype, size),
            None => self.weight(TABLE, &size),
        }
    }

    /// Casts a float result to the element type of the shape.
    pub fn stored(&self, tensor: &Tensor) -> Tensor {
        if tensor.dtype() != DType::F32 {
            return tensor.clone();
        }
        tensor.cast(self.shape.dtype)
    }
}
