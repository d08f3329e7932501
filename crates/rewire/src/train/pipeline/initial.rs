//! Initial parameters of a pipeline without a checkpoint.

use crate::predict::growing_of;
use crate::train::Random;
use crate::train::initial::{Draw, draw, drawn, fans, numbers, values};
use rewire_features::{DefaultRow, Features};
use rewire_graph::ParameterSpec;
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::BTreeMap;
use std::ops::Range;

/// Modules that are initialized like [`crate::train::initial`].
const HSTU: [&str; 4] = ["_hstu_transducer.", "_hstu_encoder.", "_item_embedding_mlp.", "_multitask_module."];

/// The initial value of a parameter or running statistic, or some rows of it, for the shapes of all: tables by their `init_fn`, else uniform in
/// +-1/sqrt(rows); linear layers, convolutions and their biases uniform in +-1/sqrt(fan in); attention's packed projection Xavier
/// uniform; norms 1 and 0; PReLU 0.25, Dice 0; HSTU modules as [`crate::train::initial`]. The same seed gives the same values.
pub(super) fn initial(
    features: &Features,
    wide_init_fn: Option<&str>,
    tensors: &BTreeMap<String, ParameterSpec>,
    (name, seed): (&str, u64),
    rows: Option<Range<usize>>,
) -> Result<Option<HostTensor>, TensorSizeError> {
    let Some(ParameterSpec { shape, .. }) = tensors.get(name) else { return Ok(None) };
    let shapes = || tensors.values().map(|known| (known.name.clone(), known.shape.clone())).collect();
    let tensor = match name.rsplit_once(".parametrizations.weight.") {
        Some((_, "original")) => HostTensor::f32(shape.clone(), &identity(shape)),
        Some((_, "0.base")) => HostTensor::f32(shape.clone(), &orthonormal(shape, name, seed)),
        _ => {
            let draw = of_parameter(features, wide_init_fn, name, shape, &shapes());
            match growing_of(features, name).map(|(_, growing)| growing.default) {
                Some(DefaultRow::Trained) => of_rows((draw, draw), (name, seed), shape, rows),
                Some(DefaultRow::Constant(value)) => {
                    of_rows((draw, Draw::Constant(value.into())), (name, seed), shape, rows)
                }
                None => drawn(draw, name, seed, shape, rows),
            }
        }
    };
    tensor.map(Some)
}

/// The initial values of a row of a growing table, used each time an id is assigned to it.
pub(super) fn of_row(draw: Draw, name: &str, seed: u64, row: u32, width: usize) -> Vec<f32> {
    let mut next = numbers(draw, Random::of_row(seed, name, row));
    (0..width).map(|_| next()).collect()
}

/// The initial values of a growing table, whose last row has another distribution, or of some of its rows.
fn of_rows(
    (draw, default): (Draw, Draw),
    (name, seed): (&str, u64),
    shape: &[usize],
    rows: Option<Range<usize>>,
) -> Result<HostTensor, TensorSizeError> {
    let (height, width) = (shape.first().copied().unwrap_or(0), shape.iter().skip(1).product::<usize>().max(1));
    let rows = rows.unwrap_or(0..height);
    let mut shape = shape.to_vec();
    shape.iter_mut().take(1).for_each(|extent| *extent = rows.len());
    let (mut place, mut row) = (rows.start * width, vec![]);
    HostTensor::generate(shape, || {
        if place % width == 0 {
            let draw = if place / width + 1 == height { default } else { draw };
            row = of_row(draw, name, seed, (place / width) as u32, width);
        }
        place += 1;
        row.get((place - 1) % width).copied().unwrap_or(0.0)
    })
}

pub(super) fn of_parameter(
    features: &Features,
    wide_init_fn: Option<&str>,
    name: &str,
    shape: &[usize],
    shapes: &BTreeMap<String, Vec<usize>>,
) -> Draw {
    if let Some((feature, is_wide)) = features.feature_of_table(name) {
        let given = if is_wide { wide_init_fn.unwrap_or_default() } else { &feature.init_fn };
        let rows = shape.first().copied().unwrap_or(1).max(1) as f64;
        return of_function(given, shape).unwrap_or(Draw::Uniform(rows.recip().sqrt()));
    }
    if HSTU.iter().any(|module| name.contains(module)) {
        return draw(name, shape, shapes);
    }
    let (module, last) = name.rsplit_once('.').unwrap_or(("", name));
    let weight = shapes.get(&format!("{module}.weight"));
    // The inputs of an output.
    let fan_in = |shape: &[usize]| shape.iter().skip(1).product::<usize>().max(1) as f64;
    match last {
        "running_var" => Draw::Constant(1.0),
        "running_mean" | "alpha" | "feature_p" | "in_proj_bias" => Draw::Constant(0.0),
        "bias" if module.ends_with("_multihead_attn.out_proj") => Draw::Constant(0.0),
        "bias" => match weight {
            Some(weight) if weight.len() > 1 => Draw::Uniform(fan_in(weight).sqrt().recip()),
            _ => Draw::Constant(0.0),
        },
        "weight" if shape.len() > 1 => Draw::Uniform(fan_in(shape).sqrt().recip()),
        "weight" if module.rsplit('.').next().is_some_and(|module| module.starts_with("proj_w_")) => {
            Draw::Uniform((shape.first().copied().unwrap_or(1).max(1) as f64).sqrt().recip())
        }
        // A norm also has a bias, PReLU has none.
        "weight" if shapes.contains_key(&format!("{module}.bias")) => Draw::Constant(1.0),
        "weight" => Draw::Constant(0.25),
        _ if shape.len() > 1 => Draw::Uniform((6.0 / fans(shape)).sqrt()),
        _ => Draw::Constant(0.0),
    }
}

/// The distribution of an `init_fn` of the reference, `nn.init.<name>_,<key>=<value>,..`; `None` for an empty or unknown
/// one.
fn of_function(text: &str, shape: &[usize]) -> Option<Draw> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next()?.trim_start_matches("torch.").trim_start_matches("nn.init.");
    let arguments: BTreeMap<&str, f64> = parts
        .filter_map(|part| part.split_once('='))
        .filter_map(|(key, value)| Some((key.trim(), value.trim().parse().ok()?)))
        .collect();
    let argument = |key: &str, default: f64| arguments.get(key).copied().unwrap_or(default);
    let columns = shape.last().copied().unwrap_or(1).max(1) as f64;
    let gain = argument("gain", 1.0);
    // The gain of a leaky ReLU with the default slope of 0.
    let leaky = (2.0 / (1.0 + argument("a", 0.0).powi(2))).sqrt();
    Some(match name {
        "uniform_" => Draw::Between(argument("a", 0.0), argument("b", 1.0)),
        "normal_" | "trunc_normal_" => Draw::Around(argument("mean", 0.0), argument("std", 1.0)),
        "zeros_" => Draw::Constant(0.0),
        "ones_" => Draw::Constant(1.0),
        "constant_" => Draw::Constant(argument("val", 0.0)),
        "xavier_uniform_" => Draw::Uniform(gain * (6.0 / fans(shape)).sqrt()),
        "xavier_normal_" => Draw::Normal(gain * (2.0 / fans(shape)).sqrt()),
        "kaiming_uniform_" => Draw::Uniform(leaky * (3.0 / columns).sqrt()),
        "kaiming_normal_" => Draw::Normal(leaky / columns.sqrt()),
        _ => return None,
    })
}

/// The identity matrix.
fn identity(shape: &[usize]) -> Vec<f32> {
    let columns = shape.last().copied().unwrap_or(1).max(1);
    (0..shape.iter().product()).map(|at| if at / columns == at % columns { 1.0 } else { 0.0 }).collect()
}

/// A square orthonormal matrix, by Gram-Schmidt on random rows.
fn orthonormal(shape: &[usize], name: &str, seed: u64) -> Vec<f32> {
    let width = shape.last().copied().unwrap_or(1).max(1);
    let mut next = values(Draw::Normal(1.0), name, seed, 0);
    let drawn: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    let mut rows: Vec<Vec<f64>> = vec![];
    for row in drawn.chunks(width) {
        let mut row: Vec<f64> = row.iter().map(|&value| value.into()).collect();
        for known in &rows {
            let dot: f64 = row.iter().zip(known).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(known).for_each(|(value, known)| *value -= dot * known);
        }
        let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        rows.push(row.into_iter().map(|value| value / length).collect());
    }
    rows.into_iter().flatten().map(|value| value as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::{Draw, of_function, orthonormal};

    #[test]
    fn functions_of_torch() {
        let shape = [100, 8];
        assert_eq!(of_function("nn.init.uniform_,a=-0.01,b=0.02", &shape), Some(Draw::Between(-0.01, 0.02)));
        assert_eq!(of_function("nn.init.normal_, mean=1.0, std=0.05", &shape), Some(Draw::Around(1.0, 0.05)));
        assert_eq!(of_function("nn.init.constant_,val=0.5", &shape), Some(Draw::Constant(0.5)));
        assert_eq!(of_function("", &shape), None);
    }

    #[test]
    fn rows_are_orthonormal() {
        let rows = orthonormal(&[5, 5], "base", 3);
        for (first, second) in (0..5).flat_map(|first| (0..5).map(move |second| (first, second))) {
            let dot: f32 = (0..5).map(|at| rows[5 * first + at] * rows[5 * second + at]).sum();
            let expected = if first == second { 1.0 } else { 0.0 };
            assert!((dot - expected).abs() < 1e-6, "{first}, {second}: {dot}");
        }
    }
}
