use rewire_graph::Tensor;

/// `-(y log p + (1 - y) log(1 - p))` with `p = sigmoid(x)`, for logits `x` and labels `y` from 0 to 1 of one shape, which is
/// that of the result.
///
/// It is computed as `y log(1 + e^-x) + (1 - y) log(1 + e^x)`, which is stable for large logits and precise for small
/// losses.
#[track_caller]
pub fn binary_cross_entropy(logits: impl AsRef<Tensor>, labels: impl AsRef<Tensor>) -> Tensor {
    let (logits, labels) = (logits.as_ref(), labels.as_ref());
    logits.require_shape("binary_cross_entropy", "logits", labels.shape());
    labels * (-logits).softplus() + (1.0 - labels) * logits.softplus()
}

/// [`binary_cross_entropy`] times `alpha y (1 - p)^gamma + (1 - alpha) (1 - y) p^gamma` with `p = sigmoid(x)`; this weight gets
/// no gradient (Lin et al., 2017, with a fixed weight).
///
/// `gamma` is at least 0, `alpha` between 0 and 1.
#[track_caller]
pub fn binary_focal(logits: impl AsRef<Tensor>, labels: impl AsRef<Tensor>, gamma: f64, alpha: f64) -> Tensor {
    let (logits, labels) = (logits.as_ref(), labels.as_ref());
    logits.require("binary_focal", "gamma", gamma >= 0.0, "at least 0", gamma);
    logits.require("binary_focal", "alpha", alpha > 0.0 && alpha < 1.0, "above 0 and below 1", alpha);
    let [of_positives, of_negatives] = [-logits, logits.clone()].map(|x| x.sigmoid().pow(gamma));
    let weight = labels * of_positives * alpha + (1.0 - labels) * of_negatives * (1.0 - alpha);
    weight.detach() * binary_cross_entropy(logits, labels)
}

/// Smooths labels `y` with `s` from 0 to 1: `(1 - s) y + s / 2`.
#[track_caller]
pub fn smooth_labels(labels: impl AsRef<Tensor>, smoothing: f64) -> Tensor {
    let labels = labels.as_ref();
    labels.require("smooth_labels", "smoothing", (0.0..=1.0).contains(&smoothing), "from 0 to 1", smoothing);
    if smoothing == 0.0 { labels.clone() } else { labels * (1.0 - smoothing) + smoothing / 2.0 }
}

/// `(x - y)^2` for predictions `x` and labels `y` of one shape; its mean is the `l2_loss`.
#[track_caller]
pub fn squared_error(predictions: impl AsRef<Tensor>, labels: impl AsRef<Tensor>) -> Tensor {
    let (predictions, labels) = (predictions.as_ref(), labels.as_ref());
    predictions.require_shape("squared_error", "predictions", labels.shape());
    (predictions - labels).square()
}
