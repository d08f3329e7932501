"""Small modules (FORMAT 5) as functions of a context, a parameter name and an input."""

import re

import torch
import torch.nn.functional as F


def linear(c, name, x, out, bias=True):
    y = x @ c.get(f"{name}.weight", (out, x.shape[-1])).T
    return y + c.get(f"{name}.bias", (out,), "bias") if bias else y


def layer_norm(c, name, x, eps=1e-5, axes=1):
    shape = x.shape[-axes:]
    return F.layer_norm(x, shape, c.get(f"{name}.weight", shape, "gain"), c.get(f"{name}.bias", shape, "bias"), eps)


def batch_norm(c, name, x, affine=True, prefix=""):
    """Batch norm over all axes but the last. Training uses the batch and updates the running values."""
    n = (x.shape[-1],)
    weight = c.get(f"{name}.weight", n, "gain") if affine else None
    bias = c.get(f"{name}.bias", n, "bias") if affine else None
    mean = c.get(f"{name}.running_mean", n, "bias")
    var = c.get(f"{name}.running_var", n, "variance")
    count = f"{name}.num_batches_tracked"
    if c.params.create and count not in c.params.tensors:
        c.params.tensors[count] = torch.tensor(3)
    steps = c.get(count, ())
    flat = x.reshape(-1, x.shape[-1])
    if c.training:
        steps += 1
    return F.batch_norm(flat, mean, var, weight, bias, c.training, 0.1, 1e-5).reshape(x.shape)


def activation(c, name, x, text):
    if text == "Dice":
        p = torch.sigmoid(batch_norm(c, f"{name}.bn", x, affine=False))
        alpha = c.get(f"{name}.alpha", (x.shape[-1],), "bias")
        return alpha * (1 - p) * x + p * x
    match = re.fullmatch(r"nn\.(\w+)(?:\((.*)\))?", text)
    kwargs = eval(f"dict({match[2] or ''})")
    if match[1] == "PReLU":
        return F.prelu(x, c.get(f"{name}.weight", (1,), "prelu"))
    return getattr(torch.nn, match[1])(**kwargs)(x)


def dropout(c, x, ratio):
    if c.training and ratio > 0:
        raise NotImplementedError("dropout in training is random")
    return x


def mlp(c, name, x, config, units=None, bias=None):
    """An MLP message. `units` and `bias` replace those of the message."""
    units = config.list("hidden_units") if units is None else units
    bias = config.get("bias", True) if bias is None else bias
    ratios = config.list("dropout_ratio")
    for i, out in enumerate(units):
        layer = f"{name}.mlp.{i}.perceptron"
        bn = config.get("use_bn", False)
        x = linear(c, f"{layer}.0", x, out, bias and not bn)
        at = 1
        if bn:
            x = batch_norm(c, f"{layer}.{2 if x.dim() == 3 else 1}", x)
            at = 4 if x.dim() == 3 else 2
        elif config.get("use_ln", False):
            x = layer_norm(c, f"{layer}.1", x)
            at = 2
        text = config.get("activation", "nn.ReLU")
        if text:
            x = activation(c, f"{layer}.{at}", x, text)
        if ratios:
            x = dropout(c, x, ratios[i] if len(ratios) > 1 else ratios[0])
    return x


def optional_mlp(c, name, x, config, field):
    return mlp(c, name, x, config.get(field)) if config.has(field) else x


def task_tower(c, name, x, config):
    """An optional MLP, then a linear layer to the task's classes."""
    x = optional_mlp(c, f"{name}.tower_mlp", x, config, "mlp")
    return linear(c, f"{name}.linear", x, config.get("num_class", 1))


def mixture(gate_logits, experts):
    """Σ_e softmax(gate)_e expert_e of [B,E] and a list of [B,D]."""
    return torch.einsum("be,ebd->bd", gate_logits.softmax(-1), torch.stack(experts))


def mmoe(c, name, x, config, tasks):
    """An output per task."""
    count = config.get("num_expert", 3)
    experts = [mlp(c, f"{name}.expert_mlps.{e}", x, config.get("expert_mlp")) for e in range(count)]
    out = []
    for t in range(tasks):
        gate = optional_mlp(c, f"{name}.gate_mlps.{t}", x, config, "gate_mlp")
        out.append(mixture(linear(c, f"{name}.gate_finals.{t}", gate, count), experts))
    return out


def mask_block(c, name, u, v, config):
    ratio = config.get("reduction_ratio", 1.0)
    width = int(u.shape[-1] * ratio) if ratio else config.get("aggregation_dim", 0)
    mask = torch.relu(linear(c, f"{name}.mask_generator.0", v, width))
    mask = linear(c, f"{name}.mask_generator.2", mask, u.shape[-1])
    y = linear(c, f"{name}.ffn.0", u * mask, config.get("hidden_dim"))
    return torch.relu(layer_norm(c, f"{name}.ffn.1", y))


def mask_net_module(c, name, x, config):
    e = layer_norm(c, f"{name}.ln_emb", x)
    block = config.get("mask_block")
    blocks = range(config.get("n_mask_blocks"))
    if config.get("use_parallel", True):
        y = torch.cat([mask_block(c, f"{name}.mask_blocks.{i}", e, x, block) for i in blocks], -1)
    else:
        y = e
        for i in blocks:
            y = mask_block(c, f"{name}.mask_blocks.{i}", y, x, block)
    return optional_mlp(c, f"{name}.top_mlp", y, config, "top_mlp")


def swish_layer_norm(c, name, x):
    return x * torch.sigmoid(layer_norm(c, name, x))


def swish_mlp(c, name, x, hidden, out):
    """Linear, SwishLN, Linear, LN: the simple MLP and the item MLP of the HSTU family."""
    x = swish_layer_norm(c, f"{name}.1", linear(c, f"{name}.0", x, hidden))
    return layer_norm(c, f"{name}.3", linear(c, f"{name}.2", x, out))
