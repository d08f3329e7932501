"""Ranking models with one output (FORMAT 6): functions of a Model that return logits [B, num_class]."""

import torch

from . import encoders
from .modules import layer_norm, linear, mask_net_module, mlp, optional_mlp


def head(m, x):
    return linear(m.c, "model.output_mlp", x, m.classes)


def wide_and_deep(m, config):
    wide = m.group("wide").sum(-1, keepdim=True)
    deep = mlp(m.c, "model.deep_mlp", m.group("deep"), config.get("deep"))
    if config.has("final"):
        return head(m, mlp(m.c, "model.final_mlp", torch.cat([wide, deep], -1), config.get("final")))
    return wide + head(m, deep)


def deepfm(m, config):
    wide = m.group("wide").sum(-1, keepdim=True)
    fields = torch.stack(m.parts("fm" if m.has_group("fm") else "deep"), 1)
    fm = 0.5 * (fields.sum(1) ** 2 - (fields**2).sum(1))
    deep = mlp(m.c, "model.deep_mlp", m.group("deep"), config.get("deep"))
    if config.has("final"):
        return head(m, mlp(m.c, "model.final_mlp", torch.cat([wide, fm, deep], -1), config.get("final")))
    return wide + fm.sum(-1, keepdim=True) + head(m, deep)


def multi_tower(m, config):
    out = [mlp(m.c, f"model.towers.{t.get('input')}", m.group(t.get("input")), t.get("mlp")) for t in config.list("towers")]
    for i, tower in enumerate(config.list("din_towers")):
        out.append(encoders.din(m.c, f"model.din_towers.{i}", tower, *m.sequence(tower.get("input"))))
    return head(m, mlp(m.c, "model.final_mlp", torch.cat(out, -1), config.get("final")))


def dcn_v1(m, config):
    x = x0 = m.group(m.first)
    width = x.shape[-1]
    for i in range(config.get("cross").get("cross_num", 3)):
        w = m.c.get(f"model.cross.w.{i}.weight", (1, width))
        x = (x @ w.T) * x0 + m.c.get(f"model.cross.b.{i}", (width,), "bias") + x
    deep = mlp(m.c, "model.deep", x0, config.get("deep"))
    x = mlp(m.c, "model.final_dnn", torch.cat([x, deep], -1), config.get("final"))
    return linear(m.c, "model.output_linear", x, m.classes, bias=False)


def dcn_v2(m, config):
    raw = m.group(m.first)
    x = x0 = optional_mlp(m.c, "model.backbone", raw, config, "backbone")
    cross = config.get("cross")
    for i in range(cross.get("cross_num", 3)):
        u = linear(m.c, f"model.cross.u_kernels.{i}", x, cross.get("low_rank", 32), bias=False)
        x = x0 * linear(m.c, f"model.cross.v_kernels.{i}", u, x0.shape[-1]) + x
    if config.has("deep"):
        x = torch.cat([x, mlp(m.c, "model.deep", raw, config.get("deep"))], -1)
    x = mlp(m.c, "model.final", x, config.get("final"))
    return linear(m.c, "model.output_mlp", x, m.classes, bias=False)


def dense_and_sparse(m, config):
    """The dense vector (None without a dense group) and the stacked features [B,N,D]."""
    if not m.has_group("sparse"):
        return None, torch.stack(m.parts(m.first), 1)
    sparse = torch.stack(m.parts("sparse"), 1)
    if not m.has_group("dense"):
        return None, sparse
    dense = mlp(m.c, "model.dense_mlp", m.group("dense"), config.get("dense_mlp"))
    return dense, torch.cat([dense[:, None], sparse], 1)


def dlrm(m, config):
    dense, z = dense_and_sparse(m, config)
    i, j = torch.triu_indices(z.shape[1], z.shape[1], 1)
    parts = [(z @ z.transpose(1, 2))[:, i, j]]
    if dense is not None:
        parts.append(dense)
    if config.get("arch_with_sparse", True):
        parts.append((z if dense is None else z[:, 1:]).flatten(1))
    return head(m, mlp(m.c, "model.final_mlp", torch.cat(parts, -1), config.get("final")))


def mask_net(m, config):
    x = mask_net_module(m.c, "model.mask_net_layer", m.group(m.first), config.get("mask_net_module"))
    return linear(m.c, "model.output_linear", x, m.classes, bias=False)


def wukong(m, config):
    _, z = dense_and_sparse(m, config)
    for i, layer in enumerate(config.list("wukong_layers")):
        name = f"model._wukong_layers.{i}"
        n, width = z.shape[1:]
        n_l, n_f = layer.get("lcb_feature_num"), layer.get("fmb_feature_num")
        k = layer.get("compressed_feature_num", 16)
        lcb = torch.einsum("nl,bnd->bld", m.c.get(f"{name}.lcb.weight", (n, n_l), "left"), z)
        y = m.c.get(f"{name}.fmb.weight", (n, k), "left")
        fm = (z @ (z.transpose(1, 2) @ y)).flatten(1)
        fm = mlp(m.c, f"{name}.fmb.mlp", layer_norm(m.c, f"{name}.fmb.norm", fm), layer.get("feature_num_mlp"))
        fmb = linear(m.c, f"{name}.fmb.feature_out_liner", fm, n_f * width).reshape(-1, n_f, width)
        residual = z
        if n != n_l + n_f:
            r = m.c.get(f"{name}.residual_projection.weight", (n, n_l + n_f), "left")
            residual = torch.einsum("no,bnd->bod", r, z)
        z = layer_norm(m.c, f"{name}.norm", torch.cat([fmb, lcb], 1) + residual)
    return head(m, mlp(m.c, "model.final_mlp", z.flatten(1), config.get("final")))


def xdeepfm(m, config):
    x = x0 = torch.stack(m.parts("wide"), 1)
    out = []
    for i, size in enumerate(config.get("cin").list("cin_layer_size")):
        z = torch.einsum("bhe,bfe->bhfe", x, x0).flatten(1, 2)
        name = f"model.cin.cin_layers.{i}"
        w = m.c.get(f"{name}.weight", (size, z.shape[1], 1), "left")[..., 0]
        x = torch.einsum("oi,bie->boe", w, z) + m.c.get(f"{name}.bias", (size,), "bias")[:, None]
        out.append(x.sum(-1))
    deep = mlp(m.c, "model.deep", m.group("deep"), config.get("deep"))
    return head(m, mlp(m.c, "model.final", torch.cat([*out, deep], -1), config.get("final")))


def tdm(m, config):
    sequence = next(n for n, g in m.groups.items() if g.get("group_type") == "SEQUENCE")
    din = config.get("multiwindow_din")
    parts = [encoders.multi_window_din(m.c, "model.multiwindow_din", din, *m.sequence(sequence))]
    parts += [m.group(n) for n in m.groups if n != sequence]
    return head(m, mlp(m.c, "model.deep_mlp", torch.cat(parts, -1), config.get("final")))


MODELS = {
    "wide_and_deep": wide_and_deep,
    "deepfm": deepfm,
    "multi_tower": multi_tower,
    "multi_tower_din": multi_tower,
    "dcn_v1": dcn_v1,
    "dcn_v2": dcn_v2,
    "dlrm": dlrm,
    "mask_net": mask_net,
    "wukong": wukong,
    "xdeepfm": xdeepfm,
    "tdm": tdm,
}
