use rewire_graph::{DType, HostTensor, Scope, Tensor};

/// The exponent of masked entries: their exponential is 0.
const ABSENT: f64 = -1e9;

/// Softmax cross entropy of logits `[N, K]` with classes `[N]`, an `I64` in `0..K`: `[N]`.
///
/// With the label smoothing `s` from 0 to 1 the target distribution is `1 - s` at the class plus `s / K` everywhere.
#[track_caller]
pub fn cross_entropy(scope: &Scope, logits: impl AsRef<Tensor>, labels: impl AsRef<Tensor>, smoothing: f64) -> Tensor {
    let (logits, labels) = (logits.as_ref(), labels.as_ref());
    let op = "cross_entropy";
    logits.require_shape(op, "logits", &[labels.dim(0), logits.width().into()]);
    logits.require(op, "smoothing", (0.0..=1.0).contains(&smoothing), "from 0 to 1", smoothing);
    let (rows, count) = (labels.dim(0), logits.width());
    let classes: Vec<i64> = (0..count as i64).collect();
    let classes = scope.constant(HostTensor::vector(&classes));
    let target = labels.reshape([rows.clone(), 1.into()]).equal(&classes).cast(DType::F32);
    let target = if smoothing == 0.0 { target } else { target * (1.0 - smoothing) + smoothing / count as f64 };
    let largest = logits.max(1).detach();
    let shifted = logits - &largest;
    (shifted.exp().sum(1).log() - (target * shifted).sum(1)).reshape([rows])
}

/// Joint ranking and calibration (Sheng et al., 2023) of logits `[N, 2]` with classes `[N]`, an `I64` of 0 or 1, in sessions `[N]`,
/// integers: `[N]`.
///
/// `alpha` from 0 to 1 weights [`cross_entropy`], and `1 - alpha` the ranking loss of each example: the softmax cross
/// entropy of its logit of its class among those of the examples of the other class in its session.
#[track_caller]
pub fn joint_ranking_calibration(
    scope: &Scope,
    logits: impl AsRef<Tensor>,
    labels: impl AsRef<Tensor>,
    sessions: impl AsRef<Tensor>,
    alpha: f64,
) -> Tensor {
    let (logits, labels, sessions) = (logits.as_ref(), labels.as_ref(), sessions.as_ref());
    let op = "joint_ranking_calibration";
    let rows = labels.dim(0);
    logits.require_shape(op, "logits", &[rows.clone(), 2.into()]);
    sessions.require_shape(op, "sessions", labels.shape());
    logits.require(op, "alpha", (0.0..=1.0).contains(&alpha), "from 0 to 1", alpha);
    let calibration = cross_entropy(scope, logits, labels, 0.0);
    let (column, row) = ([rows.clone(), 1.into()], [1.into(), rows.clone()]);
    let [negative, positive] = [0, 1].map(|class| logits.slice(1, class, 1));
    let is_positive = labels.reshape(&column).equal(1);
    let own = is_positive.select(&positive, &negative);
    // Entry (i, j): the logit of j for the class of i, if j has the other class and the session of i.
    let others = is_positive.select(&positive.reshape(&row), &negative.reshape(&row));
    let competes = sessions
        .reshape(&column)
        .equal(sessions.reshape(&row))
        .and(labels.reshape(&column).not_equal(labels.reshape(&row)));
    let absent = scope.scalar(DType::F32, ABSENT);
    let largest = competes.select(&others, &absent).max(1).maximum(&own).detach();
    let exponents = competes.select(&(others - &largest), &absent);
    let sum = exponents.exp().sum(1) + (&own - &largest).exp();
    let ranking = (sum.log() + largest - own).reshape([rows]);
    calibration * alpha + ranking * (1.0 - alpha)
}
