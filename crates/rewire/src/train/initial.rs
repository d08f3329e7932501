use super::Random;
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::BTreeMap;

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

/// The initial values of a ranking model's parameters, by name, for their shapes: tables normal with standard deviation 0.1; linear layers
/// and their biases uniform in +-1/sqrt(fan in), those of the transducer's encoders Xavier uniform with biases of 0; STU weights Xavier
/// uniform, those of contextual tokens Xavier normal; position tables uniform in +-sqrt(1/rows); norms 1 and 0. The same seed gives the
/// same values, whatever other parameters exist.
///
/// ```
/// use std::collections::BTreeMap;
/// let shapes = BTreeMap::from([("embedding.item.weight".to_owned(), vec![100, 8])]);
/// let values = rewire::train::initial(&shapes, 1)?;
/// assert_eq!(values["embedding.item.weight"].shape(), [100, 8]);
/// assert_eq!(values, rewire::train::initial(&shapes, 1)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`TensorSizeError`] if there is not enough memory for the values.
pub fn initial(
    shapes: &BTreeMap<String, Vec<usize>>,
    seed: u64,
) -> Result<BTreeMap<String, HostTensor>, TensorSizeError> {
    let values = shapes.iter().map(|(name, shape)| {
        Ok((name.clone(), HostTensor::generate(shape.clone(), values(draw(name, shape, shapes), name, seed))?))
    });
    values.collect()
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

/// The elements of a parameter, in their order.
pub(super) fn values(draw: Draw, name: &str, seed: u64) -> impl FnMut() -> f32 {
    numbers(draw, Random::of_name(seed, name))
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
