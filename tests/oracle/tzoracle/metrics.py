"""Metrics over a file (FORMAT 7): each takes all probabilities or values, labels and group keys."""

import numpy as np
import torch


def binned_auc(p, y, thresholds):
    steps = torch.linspace(0, 1, thresholds)
    on = p[None] >= steps[:, None]
    y = y.bool()
    tpr = (on & y).sum(-1).double() / max(int(y.sum()), 1)
    fpr = (on & ~y).sum(-1).double() / max(int((~y).sum()), 1)
    return float(torch.trapezoid(tpr.flip(0), fpr.flip(0)))


def exact_auc(p, y):
    order = np.argsort(p, kind="stable")
    ranks = np.empty(len(p))
    values, start = p[order], 0
    for end in range(1, len(p) + 1):
        if end == len(p) or values[end] != values[start]:
            ranks[order[start:end]] = (start + end + 1) / 2
            start = end
    positives = y.sum()
    return (ranks[y > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(y) - positives))


def one_prob(logits):
    return logits[:, 0].sigmoid() if logits.shape[-1] == 1 else logits.softmax(-1)[:, 1]


def metric(block, logits, label, keys):
    """The name and value of a metric message. `keys(name)` gives the group of each row."""
    kind, config = block.only()
    if kind == "auc":
        return kind, binned_auc(one_prob(logits), label, config.get("thresholds", 200))
    if kind == "multiclass_auc":
        probs, count = logits.softmax(-1), config.get("thresholds", 200)
        scores = [binned_auc(probs[:, k], label == k, count) for k in range(probs.shape[-1])]
        weights = [float((label == k).sum()) if config.get("average") == "weighted" else 1.0 for k in range(len(scores))]
        return kind, float(np.average(scores, weights=weights))
    if kind == "accuracy":
        if logits.shape[-1] == 1:
            return kind, float(((logits[:, 0].sigmoid() > config.get("threshold", 0.5)) == label.bool()).float().mean())
        best = logits.topk(config.get("top_k", 1), -1).indices
        return kind, float((best == label[:, None]).any(-1).float().mean())
    if kind == "grouped_auc":
        p, y, group = one_prob(logits).numpy(), label.numpy(), keys(config.get("grouping_key")).numpy()
        found = [exact_auc(p[group == g], y[group == g]) for g in np.unique(group) if 0 < y[group == g].mean() < 1]
        return kind, float(np.mean(found)) if found else 0.0
    if kind == "normalized_entropy":
        p, y = one_prob(logits).double(), label.double()
        eta = config.get("eta", 1e-12)
        p = p.clamp(eta, 1 - eta)
        bce = -(y * p.log() + (1 - y) * (1 - p).log()).sum()
        mean = y.mean()
        return kind, float(bce / len(y) / -(mean * mean.log() + (1 - mean) * (1 - mean).log()))
    gap = logits[:, 0] - label.float()
    if kind == "mean_absolute_error":
        return kind, float(gap.abs().mean())
    if kind == "mean_squared_error":
        return kind, float((gap**2).mean())
    return kind, None


def xauc(batches):
    """The share of pairs in the same order, all pairs of a batch, mean over batches of (predictions, labels)."""
    found = []
    for p, t in batches:
        i, j = torch.triu_indices(len(p), len(p), 1)
        found.append(float(((t[i] - t[j]) * (p[i] - p[j]) > 0).double().mean()))
    return float(np.mean(found))


def recall(similarities, sampled, k):
    """The share of rows whose right column is among the k largest; equal columns count before it (FORMAT does not say)."""
    hits, rows = 0, 0
    for s in similarities:
        right = s[:, :1] if sampled else s.diagonal()[:, None]
        hits += int(((s >= right).sum(-1) <= k).sum())
        rows += len(s)
    return hits / rows
