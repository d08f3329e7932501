"""Predictions, losses a batch and metrics of a model over a file."""

import torch

from .losses import session_ids, task_label, task_logits
from .metrics import metric, recall, xauc
from .model import Model, predictions


def evaluate(pipeline, params, path, negatives=None):
    """Columns by name, loss values a batch, and metrics by name."""
    found, batch_losses, seen, counts = {}, [], {}, {}
    with torch.no_grad():
        for i, batch in enumerate(pipeline.batches(path, negatives)):
            m = Model(pipeline, params, batch)
            out = m.forward()
            for name, value in predictions(pipeline, out).items():
                if name == "similarity":
                    found[f"similarity.batch{i}"] = [value]
                else:
                    found.setdefault(name, []).append(value)
            if pipeline.kind == "hstu_match" and not negatives:
                continue
            losses = m.losses(out)
            batch_losses.append({k: float(v) for k, v in losses.items()})
            note_batch(m, out, losses, seen, counts)
    metrics = {} if not batch_losses else summarise(pipeline, found, seen, counts)
    return {k: torch.cat(v) for k, v in found.items()}, batch_losses, metrics


def note_batch(m, out, losses, seen, counts):
    """Keeps what metrics need of a batch."""
    size = len(out["similarity"]) if m.pipeline.is_match else 0
    if not m.pipeline.is_match:
        for suffix, task in m.pipeline.task_messages():
            name = "_light" if m.pipeline.kind == "rocket_launching" else suffix
            label = task_label(m, task)
            size = len(label)
            lookup = session_ids(m)
            keys = {b.only()[1].get("grouping_key"): None for b in task.list("metrics") if b.only()[1].has("grouping_key")}
            keys = {k: lookup(k) for k in keys}
            seen.setdefault((name, suffix), []).append((task_logits(m, out, name), label, keys))
    for name, value in losses.items():
        counts.setdefault(name, []).append((float(value), size))


def summarise(pipeline, found, seen, counts):
    metrics = {k: sum(v * n for v, n in rows) / sum(n for _, n in rows) for k, rows in counts.items()}
    tasks = dict(pipeline.task_messages())
    for (name, suffix), rows in seen.items():
        logits, label = torch.cat([r[0] for r in rows]), torch.cat([r[1] for r in rows])
        for block in tasks[suffix].list("metrics"):
            kind, value = metric(block, logits, label, lambda key: torch.cat([r[2][key] for r in rows]))
            if kind == "xauc" and block.only()[1].get("in_batch", False):
                value = xauc([(r[0][:, 0], r[1]) for r in rows])
            if value is not None:
                metrics[kind + name] = value
    if pipeline.is_match:
        similarities = [v[0] for k, v in found.items() if k.startswith("similarity")]
        for block in pipeline.model.list("metrics"):
            k = block.only()[1].get("top_k", 5)
            metrics[f"recall@{k}"] = recall(similarities, pipeline.kind == "hstu_match", k)
    return metrics
