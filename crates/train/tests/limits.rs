//! Gradient clipping, and loss scaling.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, Dim, Graph, HostTensor, Scope, Tensor, interpret};
use rewire_train::config::{ClippingType, GradClipping, GradScaler};
use rewire_train::{LossScale, global_norm};
use std::collections::HashMap;

const SHAPES: [&[usize]; 5] = [&[25, 3], &[], &[7], &[2, 5, 1], &[1, 50]];

/// Gradients of similar magnitude and both signs.
fn gradients(scale: f64) -> Vec<Vec<f64>> {
    let of = |at: usize, len: usize| (0..len).map(move |i| ((i * 7 + at * 5) % 11) as f64 * 0.25 - 1.0);
    let all = SHAPES.iter().enumerate();
    all.map(|(at, shape)| of(at, shape.iter().product()).map(|x| f64::from((x * scale) as f32)).collect()).collect()
}

fn clipped(clipping: GradClipping, gradients: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let scope = Scope::new();
    let inputs: Vec<Tensor> = (0..)
        .zip(SHAPES)
        .map(|(at, shape)| {
            let shape: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
            scope.input(&format!("g{at}"), DType::F32, shape)
        })
        .collect();
    let names: Vec<String> = (0..SHAPES.len()).map(|at| format!("g{at}'")).collect();
    let outputs: Vec<_> = names.iter().map(String::as_str).zip(clipping.apply(&inputs)).collect();
    let graph = scope.finish(&outputs).unwrap();
    let of = |at: usize| HostTensor::from_f64(DType::F32, SHAPES[at].to_vec(), &gradients[at]).unwrap();
    let given = (0..SHAPES.len()).map(|at| (format!("g{at}"), of(at))).collect();
    let outputs = interpret(&graph, &given, &HashMap::new()).unwrap();
    assert!(names.iter().zip(SHAPES).all(|(name, shape)| outputs[name].shape() == shape));
    names.iter().map(|name| outputs[name].to_f64()).collect()
}

fn assert_near(actual: &[Vec<f64>], expected: &[Vec<f64>]) {
    for (actual, expected) in actual.concat().iter().zip(expected.concat()) {
        assert!((actual - expected).abs() <= 1e-6 * expected.abs(), "expected {expected}, got {actual}");
    }
}

#[test]
fn all_gradients_are_one_vector() {
    for scale in [1e-3, 0.1, 1.0, 300.0] {
        let gradients = gradients(scale);
        let norm = gradients.concat().iter().map(|x| x * x).sum::<f64>().sqrt();
        let clipping = GradClipping { clipping_type: ClippingType::Norm, max_gradient: 2.0, ..GradClipping::default() };
        let factor = (2.0 / (norm + 1e-6)).min(1.0);
        assert_eq!(factor < 1.0, scale >= 1.0, "norm {norm}");
        let expected: Vec<Vec<f64>> = gradients.iter().map(|g| g.iter().map(|x| x * factor).collect()).collect();
        assert_near(&clipped(clipping, &gradients), &expected);
    }
}

#[test]
fn gradients_of_zero_stay() {
    let zeros: Vec<Vec<f64>> = gradients(0.0);
    let clipping = GradClipping { clipping_type: ClippingType::Norm, max_gradient: 1.0, ..GradClipping::default() };
    assert!(clipped(clipping, &zeros).concat().iter().all(|&x| x == 0.0));
    assert!(clipping.apply(&[]).is_empty() && global_norm(&[], 2.0).is_none());
}

#[test]
fn norms_of_other_powers() {
    let gradients = gradients(1.0);
    let elements = || gradients.iter().flatten().map(|x| x.abs());
    let norms = [
        (1.0, elements().sum()),
        (3.0, elements().map(|x| x.powi(3)).sum::<f64>().cbrt()),
        (f64::INFINITY, elements().fold(0.0, f64::max)),
    ];
    for (norm_type, norm) in norms {
        let clipping = GradClipping { clipping_type: ClippingType::Norm, max_gradient: 0.5, norm_type };
        let factor = (0.5 / (norm + 1e-6)).min(1.0);
        let expected: Vec<Vec<f64>> = gradients.iter().map(|g| g.iter().map(|x| x * factor).collect()).collect();
        assert_near(&clipped(clipping, &gradients), &expected);
    }
}

#[test]
fn elements_are_limited_or_nothing_is() {
    let gradients = gradients(1.0);
    let value = GradClipping { clipping_type: ClippingType::Value, max_gradient: 0.5, ..GradClipping::default() };
    let expected: Vec<Vec<f64>> = gradients.iter().map(|g| g.iter().map(|x| x.clamp(-0.5, 0.5)).collect()).collect();
    assert_ne!(gradients, expected);
    assert_eq!(clipped(value, &gradients), expected);
    assert_eq!(clipped(GradClipping { max_gradient: 0.1, ..GradClipping::default() }, &gradients), gradients);
}

/// The scale and step count after each step.
fn scales(scaler: GradScaler, finite: &[bool]) -> Vec<(f64, f64)> {
    let graph: Graph = {
        let scope = Scope::new();
        let [is_finite, scale, growth] =
            ["is_finite", "scale", "growth"].map(|name| scope.input(name, DType::F32, [1]));
        let next = scaler.advance(&is_finite, &LossScale { scale, growth });
        scope.finish(&[("scale", next.scale), ("growth", next.growth)]).unwrap()
    };
    let held = scaler.moments().map(|own| (own.name.to_owned(), HostTensor::vector(&[own.initial])));
    let mut held = HashMap::from(held);
    let mut states = vec![];
    for &is_finite in finite {
        held.insert("is_finite".to_owned(), HostTensor::vector(&[f32::from(u8::from(is_finite))]));
        held.extend(interpret(&graph, &held, &HashMap::new()).unwrap());
        states.push((held["scale"].to_f64()[0], held["growth"].to_f64()[0]));
    }
    states
}

/// `torch.amp.GradScaler.update` on a separate tracker.
fn torch(scaler: GradScaler, finite: &[bool]) -> Vec<(f64, f64)> {
    let (mut scale, mut tracker) = (scaler.init_scale as f32, 0u64);
    finite
        .iter()
        .map(|&is_finite| {
            if is_finite {
                tracker += 1;
                if tracker == scaler.growth_interval.get() {
                    let grown = scale * scaler.growth_factor as f32;
                    scale = if grown.is_finite() { grown } else { scale };
                    tracker = 0;
                }
            } else {
                scale *= scaler.backoff_factor as f32;
                tracker = 0;
            }
            (f64::from(scale), tracker as f64)
        })
        .collect()
}

#[test]
fn the_scale_follows_overflows() {
    let finite: Vec<bool> = (0..60u32).map(|step| step * step % 17 != 4 || step > 40).collect();
    for (interval, init_scale, growth_factor, backoff_factor) in
        [(3, 65536.0, 2.0, 0.5), (1, 1.0, 3.0, 0.25), (4, 1e38, 2.0, 0.75), (2000, 512.0, 2.0, 0.5)]
    {
        let growth_interval = interval.try_into().unwrap();
        let scaler = GradScaler { init_scale, growth_factor, backoff_factor, growth_interval };
        let expected = torch(scaler, &finite);
        assert_eq!(scales(scaler, &finite), expected);
        assert!(expected.iter().all(|(scale, _)| scale.is_finite()));
    }
}

#[test]
fn steps_without_an_overflow_are_counted_anew_after_one() {
    let scaler = GradScaler { growth_interval: 2.try_into().unwrap(), init_scale: 8.0, ..GradScaler::default() };
    let finite = [true, true, true, false, true, true, false];
    let expected = [(8.0, 1.0), (16.0, 0.0), (16.0, 1.0), (8.0, 0.0), (8.0, 1.0), (16.0, 0.0), (8.0, 0.0)];
    assert_eq!(scales(scaler, &finite), expected);
}
