"""Losses (FORMAT 7)."""

import torch
import torch.nn.functional as F


def jrc(logits, label, session, alpha):
    """The JRC loss a row, from logits [N,2]."""
    ce = F.cross_entropy(logits, label, reduction="none")
    same, own = session[:, None] == session[None], torch.eye(len(label), dtype=torch.bool)
    out = torch.zeros(len(label))
    for cls in (1, 0):
        keep = same & ((label[None] != cls) | own)
        x = logits[:, cls][None] + torch.where(keep, 0.0, -1e9)
        ranked = -torch.log_softmax(x, -1).diagonal()
        out = out + torch.where(label == cls, ranked, torch.zeros(()))
    return alpha * ce + (1 - alpha) * out


def each(block, logits, label, session_ids):
    """The name of a loss and its value a row."""
    kind, config = block.only()
    if kind == "binary_cross_entropy":
        y, s = label.to(logits.dtype), config.get("label_smoothing", 0.0)
        return kind, F.binary_cross_entropy_with_logits(logits[:, 0], y * (1 - s) + s / 2, reduction="none")
    if kind == "binary_focal_loss":
        gamma, alpha = config.get("gamma", 2.0), config.get("alpha", 0.5)
        y, p = label.to(logits.dtype), logits[:, 0].sigmoid().detach()
        weight = alpha * y * (1 - p) ** gamma + (1 - alpha) * (1 - y) * p**gamma
        return kind, weight * F.binary_cross_entropy_with_logits(logits[:, 0], y, reduction="none")
    if kind == "softmax_cross_entropy":
        smoothing = config.get("label_smoothing", 0.0)
        return kind, F.cross_entropy(logits, label, label_smoothing=smoothing, reduction="none")
    if kind == "l2_loss":
        return kind, (logits[:, 0] - label.to(logits.dtype)) ** 2
    if kind == "jrc_loss":
        return kind, jrc(logits, label, session_ids(config.get("session_name")), config.get("alpha", 0.5))
    raise NotImplementedError(kind)


def task_weights(m, task):
    """The weights of a task's rows, or None for the plain mean."""
    batch, plain = m.batch, True
    weight = torch.ones(batch.rows)
    if task.has("sample_weight_name"):
        weight, plain = weight * batch.label(task.get("sample_weight_name")), False
    if task.has("task_space_indicator_label"):
        inside = batch.label(task.get("task_space_indicator_label")) > 0
        scale = (task.get("in_task_space_weight", 1.0), task.get("out_task_space_weight", 1.0))
        weight, plain = weight * torch.where(inside, torch.tensor(scale[0]), torch.tensor(scale[1])), False
    if plain and task.get("weight", 1.0) == 1.0:
        return None
    return weight / weight.mean() * task.get("weight", 1.0)


def task_label(m, task):
    name = task.get("label_name") or m.pipeline.data.list("label_fields")[0]
    label = m.batch.label(name)
    return (label & task.get("task_bitmask") != 0).long() if task.has("task_bitmask") else label


def session_ids(m):
    def ids(name):
        found = m.batch.first_ids(name)
        return found.repeat_interleave(m.candidates) if m.pipeline.is_hstu else found

    return ids


def task_logits(m, out, suffix):
    """A task's logits; those of each row's domain where a task has a tower a domain."""
    if suffix in out or m.pipeline.kind == "rocket_launching":
        return out[suffix]
    own = m.pipeline.model.get(m.pipeline.kind)
    domain = m.batch.label(own.get("domain_input_name"))
    stacked = torch.stack([out[f"{suffix}_{j}"] for j in range(own.get("task_domain_num", 1))], 1)
    return stacked[torch.arange(len(domain)), domain]


def rank_losses(m, out):
    found = {}
    rocket = m.pipeline.kind == "rocket_launching"
    for suffix, task in m.pipeline.task_messages():
        for name in out if rocket else [suffix]:
            logits, label = task_logits(m, out, name), task_label(m, task)
            for block in task.list("losses"):
                kind, values = each(block, logits, label, session_ids(m))
                found[kind + name] = reduce(m, task, values)
    return found


def reduce(m, task, values):
    if m.pipeline.is_hstu:
        return values.mean() * task.get("weight", 1.0)
    if task is m.pipeline.model:
        names = m.pipeline.data.list("sample_weight_fields")
        if not names:
            return values.mean()
        weight = m.batch.label(names[0])
        return (values * (weight / weight.mean())).mean()
    weight = task_weights(m, task)
    return values.mean() if weight is None else (values * weight).mean()


def match_loss(m, out):
    similarity = out["similarity"]
    sampled = m.pipeline.kind == "hstu_match"
    label = torch.zeros(len(similarity), dtype=torch.long) if sampled else torch.arange(len(similarity))
    values = F.cross_entropy(similarity, label, reduction="none")
    names = m.pipeline.data.list("sample_weight_fields")
    if names:
        weight = m.batch.label(names[0])
        return {"softmax_cross_entropy": (values * weight).mean() / weight.mean()}
    return {"softmax_cross_entropy": values.mean()}
