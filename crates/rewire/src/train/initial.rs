use super::{InitialValues, Random};
use rewire_graph::{HostTensor, ParameterSpec, TensorSizeError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The modules of layers that use Xavier initialization.
const TRANSDUCERS: [&str; 2] = ["_hstu_transducer.", "_hstu_encoder."];

/// The distribution of a parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Draw {
    Constant(f64),
    /// From `-bound` to `bound`.
    Uniform(f64),
    /// Around 0.
    Normal(f64),
    /// Uniform between two bounds.
    Between(f64, f64),
    /// Normal, with a mean and a standard deviation.
    Around(f64, f64),
}

impl Draw {
    /// Random numbers of an element.
    fn numbers(self) -> u64 {
        match self {
            Self::Constant(_) => 0,
            Self::Uniform(_) | Self::Between(..) => 1,
            Self::Normal(_) | Self::Around(..) => 2,
        }
    }
}

/// Initial values of parameters, by name, drawn by the conventions of ranking models: tables normal with standard deviation 0.1; linear layers
/// and their biases uniform in +-1/sqrt(fan in), those of the transducer's encoders Xavier uniform with biases of 0; STU weights Xavier
/// uniform, those of contextual tokens Xavier normal; position tables uniform in +-sqrt(1/rows); norms 1 and 0. The same seed gives the
/// same values, whatever other parameters exist.
///
/// ```
/// use rewire::prelude::*;
/// let scope = Scope::new();
/// let table = scope.parameter("embedding.item.weight", DType::F32, [100, 8]);
/// let graph = scope.finish(&[("norms", table.square().sum(1))])?;
/// let values = rewire::train::initial(&graph.parameters(), 1)?;
/// assert_eq!(values["embedding.item.weight"].shape(), [100, 8]);
/// assert_eq!(values, rewire::train::initial(&graph.parameters(), 1)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`TensorSizeError`] if there is not enough memory for the values.
pub fn initial(parameters: &[ParameterSpec], seed: u64) -> Result<BTreeMap<String, HostTensor>, TensorSizeError> {
    let drawn = Drawn::of(parameters, seed);
    let values = drawn.shapes.keys().filter_map(|name| Some((name.clone(), drawn.tensor(name).transpose()?)));
    values.map(|(name, value)| Ok((name, value?))).collect()
}

/// The values of [`initial`], drawn on request.
pub(super) struct Drawn {
    pub shapes: BTreeMap<String, Vec<usize>>,
    pub seed: u64,
}

impl Drawn {
    pub fn of(parameters: &[ParameterSpec], seed: u64) -> Self {
        Self { shapes: parameters.iter().map(|own| (own.name.clone(), own.shape.clone())).collect(), seed }
    }
}

impl InitialValues for Drawn {
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        let Some(shape) = self.shapes.get(name) else { return Ok(None) };
        drawn(draw(name, shape, &self.shapes), name, self.seed, shape, None).map(Some)
    }

    fn rows(&self, name: &str, shape: &[usize], rows: Range<usize>) -> Result<Option<HostTensor>, TensorSizeError> {
        let Some(shape) = self.shapes.get(name).filter(|known| *known == shape) else { return Ok(None) };
        drawn(draw(name, shape, &self.shapes), name, self.seed, shape, Some(rows)).map(Some)
    }
}

/// A parameter of a shape, or some rows of it.
pub(super) fn drawn(
    draw: Draw,
    name: &str,
    seed: u64,
    shape: &[usize],
    rows: Option<Range<usize>>,
) -> Result<HostTensor, TensorSizeError> {
    let (mut shape, width) = (shape.to_vec(), shape.iter().skip(1).product::<usize>());
    let first = rows.as_ref().map_or(0, |rows| rows.start * width);
    shape.iter_mut().zip(rows).for_each(|(extent, rows)| *extent = rows.len());
    HostTensor::generate(shape, values(draw, name, seed, first))
}

pub(super) fn draw(name: &str, shape: &[usize], shapes: &BTreeMap<String, Vec<usize>>) -> Draw {
    let last = name.rsplit('.').next().unwrap_or(name);
    let rows = shape.first().copied().unwrap_or(1).max(1) as f64;
    let sibling = format!("{}weight", name.strip_suffix("bias").unwrap_or(name.strip_suffix("weight").unwrap_or(name)));
    let linear = shapes.get(&sibling).filter(|shape| shape.len() == 2);
    match last {
        _ if name.starts_with("embedding.") || last.ends_with("_embedding_table") => Draw::Normal(0.1),
        _ if last.ends_with("_embeddings_weight") => Draw::Uniform(rows.recip().sqrt()),
        _ if last.ends_with("norm_weight") => Draw::Constant(1.0),
        "_batched_contextual_linear_weights" => Draw::Normal((2.0 / fans(shape)).sqrt()),
        "weight" | "bias" => match linear {
            None => Draw::Constant(if last == "weight" { 1.0 } else { 0.0 }),
            Some(weight) if !TRANSDUCERS.iter().any(|module| name.contains(module)) => {
                Draw::Uniform((weight.last().copied().unwrap_or(1).max(1) as f64).sqrt().recip())
            }
            Some(_) if last == "bias" => Draw::Constant(0.0),
            Some(weight) => Draw::Uniform((6.0 / fans(weight)).sqrt()),
        },
        _ if last.ends_with("_bias") || last.ends_with("_beta") || shape.len() < 2 => Draw::Constant(0.0),
        _ => Draw::Uniform((6.0 / fans(shape)).sqrt()),
    }
}

/// The sum of the last two extents, at least 1.
pub(super) fn fans(shape: &[usize]) -> f64 {
    shape.iter().rev().take(2).sum::<usize>().max(1) as f64
}

/// The elements of a parameter, in their order, from the position `first` on.
pub(super) fn values(draw: Draw, name: &str, seed: u64, first: usize) -> impl FnMut() -> f32 {
    let mut random = Random::of_name(seed, name);
    random.skip(draw.numbers() * first as u64);
    numbers(draw, random)
}

/// Numbers of a distribution.
pub(super) fn numbers(draw: Draw, mut random: Random) -> impl FnMut() -> f32 {
    let normal = |random: &mut Random| {
        // Box-Muller transform (1958). The argument of the logarithm is above 0.
        let (radius, angle) = ((-2.0 * (1.0 - random.unit()).ln()).sqrt(), std::f64::consts::TAU * random.unit());
        radius * angle.cos()
    };
    move || match draw {
        Draw::Constant(value) => value as f32,
        Draw::Uniform(bound) => ((2.0 * random.unit() - 1.0) * bound) as f32,
        Draw::Normal(deviation) => (normal(&mut random) * deviation) as f32,
        Draw::Between(low, high) => (low + (high - low) * random.unit()) as f32,
        Draw::Around(mean, deviation) => (mean + normal(&mut random) * deviation) as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_whole_parameter() {
        for draw in [
            Draw::Constant(0.5),
            Draw::Uniform(0.1),
            Draw::Normal(0.1),
            Draw::Between(1.0, 3.0),
            Draw::Around(2.0, 0.5),
        ] {
            for shape in [vec![7, 3], vec![7], vec![7, 2, 5]] {
                let whole = drawn(draw, "table", 3, &shape, None).unwrap();
                let row = whole.bytes().len() / 7;
                for rows in [0..7, 2..5, 6..7, 4..4] {
                    let part = drawn(draw, "table", 3, &shape, Some(rows.clone())).unwrap();
                    assert_eq!(part.shape()[0], rows.len());
                    assert_eq!(part.bytes(), &whole.bytes()[rows.start * row..rows.end * row], "{draw:?}, {rows:?}");
                }
            }
        }
    }
}
