"""Two-tower matching models (FORMAT 6): user embeddings, item embeddings and the similarity of a batch."""

import math

import torch
import torch.nn.functional as F

from .groups import EmbeddingGroup
from .modules import linear, mlp


def normalise(x, config, default="INNER_PRODUCT", eps=1e-12):
    return F.normalize(x, dim=-1, eps=eps) if config.get("similarity", default) == "COSINE" else x


def tower_group(m, side, names):
    groups = [m.groups[n] for n in names]
    return EmbeddingGroup(m.c, f"model.{side}_tower.embedding_group", groups, m.features, m.batch)


def tower(m, config, side, x, default="INNER_PRODUCT"):
    x = mlp(m.c, f"model.{side}_tower.mlp", x, config.get(f"{side}_tower").get("mlp"))
    if config.get("output_dim", 0) > 0:
        x = linear(m.c, f"model.{side}_tower.output", x, config.get("output_dim"))
    return normalise(x, config, default)


def in_batch(config, user, item):
    return {"user_tower_emb": user, "item_tower_emb": item, "similarity": user @ item.T / config.get("temperature", 1.0)}


def dssm(m, config):
    out = []
    for side in ("user", "item"):
        name = config.get(f"{side}_tower").get("input")
        out.append(tower(m, config, side, tower_group(m, side, [name]).deep(name)))
    return in_batch(config, *out)


def dssm_v2(m, config):
    return in_batch(config, *(tower(m, config, s, m.group(config.get(f"{s}_tower").get("input"))) for s in ("user", "item")))


def dat(m, config):
    out, augment = [], []
    for side in ("user", "item"):
        message = config.get(f"{side}_tower")
        names = [message.get("input"), message.get("augment_input")]
        group = tower_group(m, side, names)
        augment.append(group.deep(names[1]))
        out.append(tower(m, config, side, torch.cat([group.deep(names[0]), augment[-1]], -1)))
    if m.c.training:
        for key, aug, other in (("u", augment[0], out[1]), ("i", augment[1], out[0])):
            gap = F.normalize(aug, dim=-1) - other.detach()
            m.c.losses[f"amm_loss_{key}"] = config.get(f"amm_{key}_weight", 0.5) * (gap**2).sum()
    return in_batch(config, *out)


def capsules(c, x, lengths, config):
    """Capsules [B,K,high_dim] and which of them are on [B,K]."""
    name = "model.user_tower._capsule_layer.bilinear_matrix"
    most, longest = config.get("max_k", 5), config.get("max_seq_len")
    x = x[:, :longest]
    x = F.pad(x, (0, 0, 0, longest - x.shape[1]))
    lengths = lengths.clamp(max=longest)
    x = x @ c.get(name, (x.shape[-1], config.get("high_dim")), "left")
    if config.get("const_caps_num", False):
        count = torch.full((len(x),), float(most))
    else:
        count = lengths.float().log2().clamp(max=most).clamp(min=1)
    on = torch.arange(most)[None] < count[:, None]
    steps = torch.arange(longest)[None] < lengths[:, None]
    if config.get("routing_init_method", "normal") != "zeros":
        raise NotImplementedError("normal routing is random")
    r = torch.zeros(len(x), longest, most)
    unit = F.normalize(x, dim=-1)
    for i in range(config.get("num_iters", 3)):
        r = r.masked_fill(~on[:, None], -math.inf)
        r = (r * config.get("routing_logits_scale", 20.0)).softmax(-1) * steps[..., None]
        h = torch.einsum("bsk,bsd->bkd", r, x)
        if i + 1 < config.get("num_iters", 3):
            r = r + torch.einsum("bkd,bsd->bsk", h, unit)
    norm = h.norm(dim=-1, keepdim=True).clamp(min=1e-7)
    return h * (norm**2 / (1 + norm**2)) ** config.get("squash_pow", 1.0) / norm, on


def mind_user(m, config):
    message, name = config.get("user_tower"), "model.user_tower"
    names = [message.get("input"), message.get("history_input")]
    group = tower_group(m, "user", names)
    units = message.get("user_mlp").list("hidden_units")
    user = mlp(m.c, f"{name}.user_mlp", group.deep(names[0]), message.get("user_mlp"), units[:-1])
    user = linear(m.c, f"{name}.user_mlp_out", user, units[-1])
    _, history, lengths = group.sequence(group.groups[names[1]])
    if message.has("hist_seq_mlp"):
        config_h = message.get("hist_seq_mlp")
        units = config_h.list("hidden_units")
        if len(units) > 1:
            history = mlp(m.c, f"{name}._hist_seq_mlp", history, config_h, units[:-1], bias=False)
            history = linear(m.c, f"{name}._hist_seq_mlp_out", history, units[-1], bias=False)
        else:
            history = linear(m.c, f"{name}._hist_seq_mlp_out", history, units[0], bias=False)
    caps, on = capsules(m.c, history, lengths, message.get("capsule_config"))
    on_f = on[..., None].to(caps.dtype)
    x = torch.cat([user[:, None].expand(-1, caps.shape[1], -1), caps], -1) * on_f
    x = mlp(m.c, f"{name}._concat_mlp", x, message.get("concat_mlp")) * on_f
    if config.get("output_dim", 0) > 0:
        x = linear(m.c, f"{name}.output", x, config.get("output_dim"), bias=False)
    return normalise(x, config, "COSINE"), on


def mind(m, config):
    interests, on = mind_user(m, config)
    name = config.get("item_tower").get("input")
    item = tower(m, config, "item", tower_group(m, "item", [name]).deep(name), "COSINE")
    weights = torch.einsum("bkd,bd->bk", interests, item) * config.get("simi_pow", 10)
    weights = weights.masked_fill(~on, -math.inf).softmax(-1)
    user = torch.einsum("bk,bkd->bd", weights, interests)
    out = in_batch(config, user, item)
    return out | {"user_tower_emb": interests, "interest_mask": on.int()}


MODELS = {"dssm": dssm, "dssm_v2": dssm_v2, "dat": dat, "mind": mind}

