use rewire_graph::{DType, HostTensor, Scope, Tensor, TypeError};

/// The dot products of all pairs of features. Maps `x` `[R, N, D]` to the `<x_i, x_j>` with `i < j`, `[R, N (N - 1) / 2]`, in row-major
/// order of the upper triangle.
pub fn pairwise_dots(scope: &Scope, x: &Tensor) -> Tensor {
    let features = x.ty().extent(1).unwrap_or(0);
    if x.rank() != 3 || features < 2 {
        return scope.fail("pairwise_dots", TypeError::new("x", "[R, N, D] with N of at least 2", x.ty()));
    }
    let pairs: Vec<f64> =
        (0..features).flat_map(|i| (i + 1..features).map(move |j| (i * features + j) as f64)).collect();
    let index = match HostTensor::from_f64(DType::I32, vec![pairs.len()], &pairs) {
        Ok(index) => scope.constant(index),
        Err(error) => return scope.fail("pairwise_dots", TypeError::new("x", "fewer features", error)),
    };
    let dots = x.matmul(&x.transpose(1, 2)).reshape(&[x.dim(0), (features * features).into()]);
    dots.transpose(0, 1).gather(&index).transpose(0, 1)
}

/// Concatenates dense features with the dot products of all pairs of dense and sparse features (Naumov et al., Deep Learning
/// Recommendation Model, 2019). Maps `dense` `[R, D]` and `sparse` `[R, F, D]` to `[R, D + F (F + 1) / 2]`.
pub fn dlrm_interaction(scope: &Scope, dense: &Tensor, sparse: &Tensor) -> Tensor {
    let first = dense.reshape(&[dense.dim(0), 1.into(), dense.dim(1)]);
    let dots = pairwise_dots(scope, &scope.concat(&[&first, sparse], 1));
    scope.concat(&[dense, &dots], 1)
}
