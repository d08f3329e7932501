"""dlrm_hstu, ultra_hstu and hstu_match (FORMAT 6): what surrounds the transducer."""

import torch

from .hstu import Inputs, Jagged, Transducer
from .match import normalise
from .modules import linear, mlp, optional_mlp, swish_mlp


def jagged(m, name, flip):
    if not m.has_group(name):
        return None
    out = Jagged(*m.embedding.jagged(name))
    return out.flip() if flip else out


def channel_inputs(m, channel, flip, candidates=True):
    contextual, widths, query = None, [], None
    if m.has_group("contextual"):
        contextual = m.embedding.contextual("contextual")
        contextual = contextual.flip(0) if flip else contextual
        widths = m.groups["contextual"].list("feature_names")
    if m.has_group("query_time"):
        query = m.group("query_time")[:, 0]
        query = query.flip(0) if flip else query
    return Inputs(
        contextual, widths, jagged(m, channel, flip),
        jagged(m, "candidate", flip) if candidates else None,
        jagged(m, f"{channel}_action", flip), jagged(m, f"{channel}_watchtime", flip),
        jagged(m, f"{channel}_timestamp", flip),
        jagged(m, "candidate_timestamp", flip) if candidates else None, query,
    )


def ranker(m, config):
    """Logits by task, flat over the candidates, and the candidates a row."""
    flip = not config.get("sequence_timestamp_is_ascending", True)
    channels = config.list("hstu")
    users = []
    for i, channel in enumerate(channels):
        name = "model._hstu_transducer" + (f"._transducers.{i}" if len(channels) > 1 else "")
        inputs = channel_inputs(m, channel.get("name", "uih"), flip)
        concat = config.get("concat_contextual_features", False)
        users.append(Transducer(m.c, name, channel, config.get("max_seq_len"), inputs, concat).run())
    user = torch.cat(users, -1)
    candidates = jagged(m, "candidate", flip)
    hidden = config.get("item_embedding_hidden_dim", 512)
    item = swish_mlp(m.c, "model._item_embedding_mlp", candidates.values, hidden, user.shape[-1])
    tower = config.get("fusion_mtl_tower")
    tasks = tower.list("task_configs")
    sizes = [t.get("num_class", 1) for t in tasks]
    x = optional_mlp(m.c, "model._multitask_module.tower_mlp", user * item, tower, "mlp")
    logits = linear(m.c, "model._multitask_module.linear", x, sum(sizes))
    logits = logits.flip(0) if flip else logits
    m.candidates = candidates.flip().lengths if flip else candidates.lengths
    return {f"_{t.get('task_name')}": part for t, part in zip(tasks, torch.split(logits, sizes, -1))}


def hstu_match(m, config):
    tower = config.get("user_tower")
    flip = not config.get("sequence_timestamp_is_ascending", tower.get("sequence_timestamp_is_ascending", True))
    inputs = channel_inputs(m, tower.get("input"), flip, candidates=False)
    concat = tower.get("concat_contextual_features", False)
    user = Transducer(m.c, "model.user_tower._hstu_encoder", tower.get("hstu"), tower.get("max_seq_len"), inputs, concat).run()
    user = user.flip(0) if flip else user
    items = jagged(m, config.get("item_tower").get("input"), False)
    item = items.values
    if config.get("item_tower").has("mlp"):
        item = mlp(m.c, "model.item_tower.mlp", item, config.get("item_tower").get("mlp"))
    if config.get("output_dim", 0) > 0:
        user = linear(m.c, "model.user_tower.output", user, config.get("output_dim"))
        item = linear(m.c, "model.item_tower.output", item, config.get("output_dim"))
    user, item = normalise(user, config, eps=1e-6), normalise(item, config, eps=1e-6)
    out = {"user_tower_emb": user, "item_tower_emb": item}
    if m.negatives:
        positives = items.lengths.clone()
        positives[-1] -= m.negatives
        count = int(positives.sum())
        query = user.repeat_interleave(positives, 0)
        every = query @ item.T
        positive = every[:, :count].diagonal()[:, None]
        out["similarity"] = torch.cat([positive, every[:, count:]], -1) / config.get("temperature", 1.0)
    return out


RANKERS = {"dlrm_hstu": ranker, "ultra_hstu": ranker}
