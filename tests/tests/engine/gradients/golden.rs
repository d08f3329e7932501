//! Gradients written out as primitives match difference quotients.

use rewire_graph::{DType, HostTensor, Scope, Tensor};
use rewire_tests::backend::{Tensors, oracle};
use rewire_tests::compare::{Tolerance, difference};
use rewire_tests::gradients::{Shape, Traced, Weights};

/// The step of quotients, a power of two, so that it is exact.
const STEP: f64 = 1.0 / 4096.0;

/// The interpreter computes in f64: the remaining error is the third derivative, times `STEP^2 / 6 = 1e-8`, and the
/// rounding of results to f32.
const TOLERANCE: Tolerance = Tolerance { relative: 1e-6, floor: 0.1 };

/// `(f(x + STEP e) - f(x - STEP e)) / (2 STEP)` for the loss `f(x) = sum(out(x) dout)`, with `e` an input a tensor of `at`.
fn quotient(scope: &Scope, at: [&Tensor; 3], dout: &Tensor, out: impl Fn([&Tensor; 3]) -> Tensor) -> Tensor {
    let names = ["eq", "ek", "ev"];
    let steps: Vec<Tensor> =
        names.iter().zip(at).map(|(name, x)| &scope.input(name, DType::F32, x.shape()) * STEP).collect();
    let moved = |sign: f64| -> Vec<Tensor> { at.iter().zip(&steps).map(|(&x, step)| x + &(step * sign)).collect() };
    let loss = |sign: f64| {
        let at = moved(sign);
        (&out([&at[0], &at[1], &at[2]]) * dout).sum(2).sum(1).sum(0).reshape(&[])
    };
    &(&loss(1.0) - &loss(-1.0)) * (0.5 / STEP)
}

/// The gradients by quotients, an element of an input at a time.
fn quotients(shape: &Shape, weights: Weights, inputs: &Tensors) -> [HostTensor; 3] {
    let Traced { scope, attention, qkv, dout } = shape.trace(weights);
    let y = quotient(&scope, qkv.each_ref(), &dout, |qkv| attention.forward(&scope, qkv));
    let graph = scope.finish(&[("y", y)]).unwrap();
    let still = ["q", "k", "v"].map(|name| (format!("e{name}"), &inputs[name]));
    ["q", "k", "v"].map(|name| {
        let extents = inputs[name].shape().to_vec();
        let of = |element: usize| {
            let mut inputs = inputs.clone();
            for (direction, like) in &still {
                let mut values = vec![0.0; like.len()];
                if *direction == format!("e{name}") {
                    values[element] = 1.0;
                }
                let tensor = HostTensor::from_f64(DType::F32, like.shape().to_vec(), &values).unwrap();
                inputs.insert(direction.clone(), tensor);
            }
            oracle(&graph, &inputs, &Tensors::new()).unwrap()["y"].to_f64()[0]
        };
        let values: Vec<f64> = (0..inputs[name].len()).map(of).collect();
        HostTensor::from_f64(DType::F32, extents, &values).unwrap()
    })
}

fn hold(weights: Weights) {
    let shape = |lengths: &[(usize, usize)], heads, [width, value_width]: [usize; 2], causal| Shape {
        lengths: lengths.to_vec(),
        heads,
        width,
        value_width,
        causal,
    };
    let shapes = [
        shape(&[(2, 4), (0, 3), (3, 1), (2, 0)], 2, [3, 2], false),
        shape(&[(3, 3), (1, 1), (0, 0), (4, 4)], 1, [2, 3], true),
        shape(&[(3, 5)], 2, [1, 1], true),
        shape(&[(5, 2), (1, 4)], 1, [3, 2], true),
        shape(&[(0, 0), (0, 0)], 2, [3, 2], false),
        shape(&[], 1, [2, 2], true),
    ];
    for (n, shape) in shapes.into_iter().enumerate() {
        let case = shape.gradients(weights, n as u64);
        let actual = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
        let expected = quotients(&shape, weights, &case.inputs);
        for (name, expected) in ["dq", "dk", "dv"].into_iter().zip(&expected) {
            let found = difference(&actual[name], expected, TOLERANCE);
            assert_eq!(found, None, "{name} of {shape:?}");
        }
    }
}

#[test]
fn the_gradients_of_hstu_attention_are_difference_quotients() {
    hold(Weights::Silu { divisor: 7.0 });
}

#[test]
fn the_gradients_of_softmax_attention_are_difference_quotients() {
    hold(Weights::Softmax);
}
