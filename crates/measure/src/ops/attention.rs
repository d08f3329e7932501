use crate::draft::{Draft, DraftError};
use rewire_graph::{Dim, Tensor};
use rewire_hstu::ops::{Attention, StandardMask, delta_hstu_mha, hstu_mha};

fn options(draft: &Draft<'_>) -> Attention {
    Attention::new(1.0 / (draft.shape.attn_dim as f64).sqrt(), draft.shape.max_len.max(1))
}

fn mask(draft: &Draft<'_>, num_targets: Option<Tensor>) -> StandardMask {
    let (max_attn_len, contextual_seq_len) = (draft.shape.window, draft.shape.context);
    StandardMask { num_targets, max_attn_len, contextual_seq_len, ..StandardMask::default() }
}

pub(super) fn attention(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let lengths = draft.lengths()?;
    let rows = draft.samples("lengths", lengths);
    let (heads, qk, hidden) = (draft.shape.heads, draft.shape.attn_dim, draft.shape.hidden_dim);
    let q = draft.rows_of("q", &rows, &[heads, qk])?;
    let k = draft.rows_of("k", &rows, &[heads, qk])?;
    let v = draft.rows_of("v", &rows, &[heads, hidden])?;
    let num_targets = draft.num_targets(&rows);
    let mask = mask(draft, num_targets);
    let out = hstu_mha(&draft.scope, [&q, &k, &v], &rows.ragged, &options(draft), |pairs| mask.trace(pairs));
    Ok(vec![("out", draft.stored(&out))])
}

/// Causal softmax attention.
pub(super) fn softmax(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let lengths = draft.lengths()?;
    let rows = draft.samples("lengths", lengths);
    let (heads, qk, hidden) = (draft.shape.heads, draft.shape.attn_dim, draft.shape.hidden_dim);
    let q = draft.rows_of("q", &rows, &[heads, qk])?;
    let k = draft.rows_of("k", &rows, &[heads, qk])?;
    let v = draft.rows_of("v", &rows, &[heads, hidden])?;
    let ragged = &rows.ragged;
    let causal = ragged.row_index(ragged, heads).ge(&ragged.key_index(ragged, heads));
    let scores = &q.scores(&k, ragged, ragged) * (1.0 / (qk.max(1) as f64).sqrt());
    let out = scores.softmax_scores(Some(&causal), ragged, ragged).weighted_sum(&v, ragged, ragged);
    Ok(vec![("out", draft.stored(&out))])
}

/// Attention of new rows, which are targets, to cached and new rows.
pub(super) fn delta(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let lengths = draft.lengths()?;
    let new = draft.targets(&lengths, 1);
    let cached = lengths.iter().zip(&new).map(|(length, new)| length - new).collect();
    let new = draft.samples("new", new);
    let cached = draft.more_samples("cached", &new.ragged.batch, cached);
    let (heads, qk, hidden) = (draft.shape.heads, draft.shape.attn_dim, draft.shape.hidden_dim);
    let q = draft.rows_of("q", &new, &[heads, qk])?;
    let keys = cached.ragged.plus(&new.ragged);
    let mut joined = |name: &str, width: usize| {
        let old = draft.rows_of(&format!("cached_{name}"), &cached, &[heads * width])?;
        let added = draft.rows_of(name, &new, &[heads * width])?;
        let (rows, _) = old.jagged_concat(&cached.ragged, &added, &new.ragged);
        Ok::<Tensor, DraftError>(rows.reshape(&[keys.total.clone(), heads.into(), Dim::from(width)]))
    };
    let (k, v) = (joined("k", qk)?, joined("v", hidden)?);
    let mask = mask(draft, Some(new.ragged.lengths.clone()));
    let attention = options(draft);
    let out = delta_hstu_mha(&draft.scope, [&q, &k, &v], &new.ragged, &keys, &attention, |pairs| mask.trace(pairs));
    Ok(vec![("out", draft.stored(&out))])
}
