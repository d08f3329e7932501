//! Random sequences for a language model.

use crate::draft::{DraftError, take};
use crate::{Noise, Shape};
use rewire::generate::decoder::Config;
use rewire_graph::{DType, HostTensor};
use rewire_runtime::HostMemory;

/// The inputs of a run that computes a token of `batch` sequences after the same `max_len` tokens, like beams of a prompt, and their rows
/// of the caches.
pub(crate) fn step(
    config: &Config,
    shape: &Shape,
    noise: &mut Noise,
    memory: &mut HostMemory,
) -> Result<(Vec<(String, HostTensor)>, usize), DraftError> {
    let (batch, before) = (shape.batch, shape.max_len);
    take(memory, DType::U32, &[batch.saturating_mul(before)])?;
    let lengths = |count: usize, length: usize| HostTensor::lengths(&vec![length as i64; count]);
    let rows =
        |first: usize, count: usize| HostTensor::vector(&(first as u32..(first + count) as u32).collect::<Vec<_>>());
    let none = || HostTensor::vector::<u32>(&[]);
    let shared: Vec<u32> = (0..batch).flat_map(|_| 0..before as u32).collect();
    let mut tokens = || -> Result<HostTensor, DraftError> {
        let ids = noise.ids(batch, config.vocabulary())?.to_f64();
        Ok(HostTensor::from_f64(DType::U32, vec![batch], &ids)?)
    };
    let mut inputs = vec![
        ("lengths", lengths(batch, 1)),
        ("tokens", tokens()?),
        ("kept", rows(before, batch)),
        ("before.lengths", lengths(batch, before)),
        ("before", HostTensor::vector(&shared)),
        ("wanted", rows(0, batch)),
        ("asked.rows", rows(0, batch)),
        ("asked.tokens", tokens()?),
    ];
    match config.rope() {
        Some(rope) => {
            let [cos, sin] = rope.tables(&vec![before as u32; batch])?;
            inputs.extend([("cos", cos), ("sin", sin)]);
        }
        None => inputs.extend([
            ("memory.lengths", lengths(batch, before)),
            ("memory", HostTensor::vector(&shared)),
            ("encoder.kept.lengths", lengths(1, 0)),
            ("encoder.tokens", none()),
            ("encoder.kept", none()),
        ]),
    }
    Ok((inputs.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect(), before + batch))
}
