use super::{Noise, Shape};
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor, TensorSizeError};

/// A graph in the making, with values for its inputs.
pub(super) struct Draft<'a> {
    pub scope: Scope,
    pub shape: &'a Shape,
    pub noise: Noise,
    pub inputs: Vec<(String, HostTensor)>,
}

/// Samples with their rows.
pub(super) struct Rows {
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
        let scope = Scope::new().with_weights(shape.dtype);
        Self { scope, shape, noise: Noise::new(shape.seed), inputs: vec![] }
    }

    /// An input with its value.
    pub fn input(&mut self, name: &str, dims: &[Dim], value: HostTensor) -> Tensor {
        let tensor = self.scope.input(name, value.dtype(), dims);
        self.inputs.push((name.to_owned(), value));
        tensor
    }

    /// Floats `[first, ..rest]`; `count` is the value of `first`.
    pub fn floats(&mut self, name: &str, first: &Dim, count: usize, rest: &[usize]) -> Result<Tensor, TensorSizeError> {
        let dims: Vec<Dim> = std::iter::once(first.clone()).chain(rest.iter().map(|&n| n.into())).collect();
        let value = self.noise.floats(self.shape.dtype, &[&[count], rest].concat())?;
        Ok(self.input(name, &dims, value))
    }

    /// Floats of samples, `[total, ..rest]`.
    pub fn rows_of(&mut self, name: &str, rows: &Rows, rest: &[usize]) -> Result<Tensor, TensorSizeError> {
        self.floats(name, &rows.ragged.total, rows.total(), rest)
    }

    /// Lengths of samples as the shape has them.
    pub fn lengths(&mut self) -> Vec<i64> {
        let (low, high) = self.shape.len_dist.within(self.shape.max_len);
        (0..self.shape.batch).map(|_| self.noise.between(low as i64, high as i64)).collect()
    }

    /// Candidates of samples of some lengths, at least `least` where there is room.
    pub fn targets(&mut self, lengths: &[i64], least: i64) -> Vec<i64> {
        let (low, high) = self.shape.targets.within(self.shape.max_len);
        let draw = |length: &i64| self.noise.between(low as i64, high as i64).max(least).min(*length);
        lengths.iter().map(draw).collect()
    }

    /// Samples with these lengths.
    pub fn samples(&mut self, name: &str, lengths: Vec<i64>) -> Rows {
        let batch = self.scope.size(&format!("{name} samples"));
        self.more_samples(name, &batch, lengths)
    }

    /// Samples with these lengths, as many as others.
    pub fn more_samples(&mut self, name: &str, batch: &Dim, lengths: Vec<i64>) -> Rows {
        let ragged = self.scope.lengths(name, batch);
        self.inputs.push((name.to_owned(), HostTensor::lengths(&lengths)));
        Rows { ragged, lengths }
    }

    /// Numbers of candidates that attention reads; `None` if the shape has none.
    pub fn num_targets(&mut self, rows: &Rows) -> Option<Tensor> {
        if self.shape.targets == super::Lengths::NONE {
            return None;
        }
        let targets = self.targets(&rows.lengths, 0);
        self.inputs.push(("num_targets".to_owned(), HostTensor::lengths(&targets)));
        Some(self.scope.host_input("num_targets", std::slice::from_ref(&rows.ragged.batch)))
    }

    /// Times of the rows of samples.
    pub fn timestamps(&mut self, name: &str, rows: &Rows) -> Result<Tensor, TensorSizeError> {
        let value = self.noise.ascending(&rows.lengths, 1, 5000)?;
        Ok(self.input(name, std::slice::from_ref(&rows.ragged.total), value))
    }

    /// A weight `[..shape]`.
    pub fn weight(&self, name: &str, shape: &[usize]) -> Tensor {
        let dims: Vec<Dim> = shape.iter().map(|&n| n.into()).collect();
        self.scope.weight(name, &dims)
    }

    /// A result in the type of the shape.
    pub fn stored(&self, tensor: &Tensor) -> Tensor {
        if tensor.dtype() == DType::F16 || !tensor.dtype().is_float() {
            return tensor.clone();
        }
        tensor.cast(self.shape.dtype)
    }
}
