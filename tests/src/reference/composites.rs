use super::primitives::{floats, function, rows};
use super::{Function, Sketch};
use rewire_graph::op::Window;
use rewire_graph::{DType, Tensor};

/// `[n, 6]`
fn x(scope: &Sketch) -> Tensor {
    floats(scope, "x", [scope.size("n"), 6.into()])
}

fn vector(scope: &Sketch, name: &str, width: usize) -> Tensor {
    scope.parameter(name, DType::F32, &[width.into()])
}

fn matrix(scope: &Sketch, rows: usize, columns: usize) -> Tensor {
    scope.parameter("matrix", DType::F32, &[rows.into(), columns.into()])
}

fn affine(scope: &Sketch) -> [Tensor; 2] {
    ["weight", "bias"].map(|name| vector(scope, name, 6))
}

/// Statistics and affine of a batch norm over six channels.
fn channels(scope: &Sketch) -> [Tensor; 4] {
    ["mean", "variance", "weight", "bias"].map(|name| vector(scope, name, 6))
}

/// `[n, 4, 9, 7]`
fn image(scope: &Sketch) -> Tensor {
    floats(scope, "image", [scope.size("n"), 4.into(), 9.into(), 7.into()])
}

fn kernel(scope: &Sketch, out: usize, per_group: usize) -> Tensor {
    scope.parameter("kernel", DType::F32, &[out.into(), per_group.into(), 3.into(), 2.into()])
}

fn values(scope: &Sketch) -> Tensor {
    floats(scope, "values", [rows(scope).total, 3.into()])
}

pub(super) fn all() -> Vec<Function> {
    [norms(), products(), bags()].concat()
}

fn norms() -> Vec<Function> {
    vec![
        function(
            "Tensor::layer_norm",
            |s| x(s).layer_norm(&affine(s)[0], &affine(s)[1], 1e-5),
            &[
                |s| x(s).layer_norm(&vector(s, "w", 5), &affine(s)[1], 1e-5),
                |s| x(s).layer_norm(&affine(s)[0], &vector(s, "b", 1), 1e-5),
                |s| x(s).layer_norm(&affine(s)[0], &affine(s)[1], -1e-5),
                |s| x(s).cast(DType::I32).layer_norm(&affine(s)[0], &affine(s)[1], 1e-5),
                |s| s.scalar(DType::F32, 1.5).layer_norm(&affine(s)[0], &affine(s)[1], 1e-5),
            ],
        ),
        function(
            "Tensor::rms_norm",
            |s| x(s).rms_norm(&affine(s)[0], 1e-5),
            &[|s| x(s).rms_norm(&vector(s, "w", 5), 1e-5), |s| x(s).rms_norm(&affine(s)[0], f64::NAN)],
        ),
        function(
            "Tensor::swish_layer_norm",
            |s| x(s).swish_layer_norm(&affine(s)[0], &affine(s)[1], 1e-5),
            &[
                |s| x(s).swish_layer_norm(&vector(s, "w", 5), &affine(s)[1], 1e-5),
                |s| x(s).swish_layer_norm(&affine(s)[0], &vector(s, "b", 7), 1e-5),
                |s| x(s).swish_layer_norm(&affine(s)[0], &affine(s)[1], f64::INFINITY),
            ],
        ),
        function("Tensor::normalize", |s| x(s).normalize(1e-5), &[|s| x(s).normalize(-1.0)]),
        function("Tensor::softmax", |s| x(s).softmax(1), &[|s| x(s).softmax(2)]),
        function(
            "Tensor::batch_norm",
            |s| x(s).batch_norm(1, channels(s).each_ref(), 1e-5),
            &[
                |s| x(s).batch_norm(2, channels(s).each_ref(), 1e-5),
                |s| x(s).batch_norm(0, channels(s).each_ref(), 1e-5),
                |s| x(s).batch_norm(1, channels(s).each_ref(), -1e-5),
            ],
        ),
    ]
}

fn products() -> Vec<Function> {
    vec![
        function(
            "Tensor::linear",
            |s| x(s).linear(&matrix(s, 4, 6), Some(&vector(s, "bias", 4))),
            &[
                |s| x(s).linear(&matrix(s, 4, 5), None),
                |s| x(s).linear(&matrix(s, 4, 6), Some(&vector(s, "bias", 5))),
                |s| x(s).linear(&vector(s, "w", 6), None),
            ],
        ),
        function(
            "Tensor::addmm",
            |s| vector(s, "bias", 4).addmm(&x(s), &matrix(s, 6, 4)),
            &[
                |s| vector(s, "bias", 4).addmm(&x(s), &matrix(s, 5, 4)),
                |s| vector(s, "bias", 3).addmm(&x(s), &matrix(s, 6, 4)),
            ],
        ),
        function(
            "Tensor::conv2d",
            |s| {
                image(s).conv2d(
                    &kernel(s, 6, 2),
                    Some(&vector(s, "bias", 6)),
                    &Window { groups: 2, ..Window::default() },
                )
            },
            &[
                |s| x(s).conv2d(&kernel(s, 6, 4), None, &Window::default()),
                |s| image(s).conv2d(&matrix(s, 4, 6), None, &Window::default()),
                |s| image(s).conv2d(&kernel(s, 6, 3), None, &Window::default()),
                |s| image(s).conv2d(&kernel(s, 5, 2), None, &Window { groups: 2, ..Window::default() }),
                |s| image(s).conv2d(&kernel(s, 6, 4), None, &Window { groups: 0, ..Window::default() }),
                |s| image(s).conv2d(&kernel(s, 6, 4), None, &Window { stride: [0, 1], ..Window::default() }),
                |s| image(s).conv2d(&kernel(s, 6, 4), None, &Window { dilation: [5, 1], ..Window::default() }),
                |s| image(s).conv2d(&kernel(s, 6, 4), Some(&vector(s, "bias", 5)), &Window::default()),
            ],
        ),
    ]
}

fn bags() -> Vec<Function> {
    fn ids(s: &Sketch) -> Tensor {
        s.input("ids", DType::I64, &[rows(s).total])
    }
    vec![
        function(
            "Tensor::jagged_sum",
            |s| values(s).jagged_sum(&rows(s)),
            &[|s| values(s).cast(DType::I32).jagged_sum(&rows(s))],
        ),
        function(
            "Tensor::jagged_mean",
            |s| values(s).jagged_mean(&rows(s)),
            &[|s| s.scalar(DType::F32, 0.5).jagged_mean(&rows(s))],
        ),
        function(
            "Tensor::jagged_softmax",
            |s| values(s).jagged_softmax(&rows(s)),
            &[|s| s.scalar(DType::F32, 0.5).jagged_softmax(&rows(s))],
        ),
        function(
            "Tensor::embedding_bag_sum",
            |s| matrix(s, 9, 3).embedding_bag_sum(&ids(s), &rows(s)),
            &[|s| matrix(s, 9, 3).embedding_bag_sum(&values(s), &rows(s))],
        ),
        function(
            "Tensor::embedding_bag_mean",
            |s| matrix(s, 9, 3).embedding_bag_mean(&ids(s), &rows(s)),
            &[|s| matrix(s, 9, 3).embedding_bag_mean(&values(s), &rows(s))],
        ),
    ]
}
