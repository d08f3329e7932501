use crate::draft::{Draft, DraftError};
use rewire_graph::{HostTensor, Mode, Tensor};
use rewire_hstu::ops::{self, NormMulDropout};

const EPS: f64 = 1e-6;
const DROPOUT: f32 = 0.3;

pub(super) fn addmm(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (m, k, n) = (draft.shape.m, draft.shape.k, draft.shape.n);
    let rows = draft.scope.size("rows");
    let x = draft.floats("x", &rows, m, &[k])?;
    let product = draft.weight("bias", &[n]).addmm(&x, &draft.weight("weight", &[k, n]));
    let y = match draft.shape.epilogue {
        true => &product.silu() + &draft.floats("residual", &rows, m, &[n])?,
        false => product,
    };
    Ok(vec![("y", draft.stored(&y))])
}

pub(super) fn layer_norm(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let width = draft.shape.width;
    let rows = draft.scope.size("rows");
    let x = draft.floats("x", &rows, draft.shape.rows, &[width])?;
    let y = x.layer_norm(&draft.weight("weight", &[width]), &draft.weight("bias", &[width]), EPS);
    Ok(vec![("y", draft.stored(&y))])
}

pub(super) fn norm_mul_dropout(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (rows, width) = (draft.scope.size("rows"), draft.shape.width);
    let x = draft.floats("x", &rows, draft.shape.rows, &[width])?;
    let u = draft.floats("u", &rows, draft.shape.rows, &[width])?;
    let mode = if draft.shape.train { Mode::Train } else { Mode::Eval };
    if mode == Mode::Train {
        let seed = HostTensor::i64(vec![], &[draft.shape.seed as i64])?;
        draft.input("seed", &[], seed);
    }
    let scope = draft.scope.with_mode(mode);
    let options = NormMulDropout {
        eps: EPS,
        group_norm: None,
        concat_ux: draft.shape.concat,
        dropout_ratio: DROPOUT,
        recompute_y: false,
    };
    let affine = [&draft.weight("weight", &[width]), &draft.weight("bias", &[width])];
    let y = ops::norm_mul_dropout(&scope, &x, &u, affine, &options);
    Ok(vec![("y", draft.stored(&y))])
}

pub(super) fn pointwise(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let rows = draft.scope.size("rows");
    let x = draft.floats("x", &rows, draft.shape.rows, &[draft.shape.width])?;
    let y = (&(&x * 1.5) + 0.25).silu();
    let y = (&(&y * &x) - 0.5).tanh();
    let y = &y.relu() + &x;
    Ok(vec![("y", draft.stored(&y))])
}

pub(super) fn embedding(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (rows, count, table) = (draft.scope.size("rows"), draft.shape.rows, draft.shape.table);
    let ids = draft.ids("ids", &[rows], count, table)?;
    let y = draft.table().gather(&ids);
    Ok(vec![("y", draft.stored(&y))])
}

pub(super) fn bag(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let lengths = draft.lengths()?;
    let bags = draft.samples("lengths", lengths);
    let (count, table) = (bags.total(), draft.shape.table);
    let ids = draft.ids("ids", std::slice::from_ref(&bags.ragged.total), count, table)?;
    let y = draft.table().embedding_bag_sum(&ids, &bags.ragged);
    Ok(vec![("y", draft.stored(&y))])
}
