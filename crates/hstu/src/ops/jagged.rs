use rewire_graph::{DType, Ragged, Scope, Tensor};

/// For every sample the rows of `left`, followed by the rows of `right`.
pub fn concat_2d_jagged(left: &Tensor, left_rows: &Ragged, right: &Tensor, right_rows: &Ragged) -> (Tensor, Ragged) {
    right_rows.require_batch("concat_2d_jagged", "right_rows", &left_rows.batch);
    left.jagged_concat(left_rows, right, right_rows)
}

/// The inverse of [`concat_2d_jagged`].
pub fn split_2d_jagged(values: &Tensor, left: &Ragged, right: &Ragged) -> (Tensor, Tensor) {
    right.require_batch("split_2d_jagged", "right", &left.batch);
    let rows = left.plus(right);
    (values.jagged_head(&rows, left), values.jagged_tail(&rows, right))
}

/// `jagged_i dense_b + bias_b` for every row `i` of sample `b`, with `dense` `[B, K, N]` and `bias` `[B, N]`.
pub fn jagged_dense_bmm_broadcast_add(jagged: &Tensor, rows: &Ragged, dense: &Tensor, bias: &Tensor) -> Tensor {
    let op = "jagged_dense_bmm_broadcast_add";
    jagged.require(op, "jagged", jagged.rank() == 2, "[L, K]", jagged.ty());
    let expected = format!("[{}, {}, N]", rows.batch, jagged.dim(1));
    let fits = dense.rank() == 3 && dense.dim(0) == rows.batch && dense.dim(1) == jagged.dim(1);
    dense.require(op, "dense", fits, expected, dense.ty());
    bias.require_shape(op, "bias", &[rows.batch.clone(), dense.dim(2)]);
    &jagged.jagged_matmul(dense, rows) + bias.jagged_broadcast(rows)
}

/// The last row of every sample, `[B, ..]`; zeros for an empty sample.
pub fn last_rows(scope: &Scope, values: &Tensor, rows: &Ragged) -> Tensor {
    let one = Ragged::dense(scope, rows.batch.clone(), &scope.host_size(1));
    let present = Ragged::from_lengths(&rows.lengths.minimum(&one.lengths));
    let missing = Ragged::from_lengths(&(&one.lengths - &present.lengths));
    let mut shape = values.shape().to_vec();
    if let Some(first) = shape.first_mut() {
        *first = missing.total.clone();
    }
    let dtype = if values.dtype().is_float() { DType::F32 } else { values.dtype() };
    let last = values.jagged_tail(rows, &present);
    let (padded, padded_rows) = scope.scalar(dtype, 0.0).broadcast(&shape).jagged_concat(&missing, &last, &present);
    // Keeps all rows: every padded sample has exactly one.
    padded.jagged_head(&padded_rows, &one)
}
