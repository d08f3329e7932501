"""Sequence encoders (FORMAT 4): functions of a query [B,Q], a padded sequence [B,T,C] and lengths [B]."""

import torch
import torch.nn.functional as F

from .modules import linear, mlp

MASKED = float(-(2**31) + 1)


def cut(config, sequence, lengths):
    longest = config.get("max_seq_length", 0)
    if longest > 0:
        return sequence[:, :longest], lengths.clamp(max=longest)
    return sequence, lengths


def valid(sequence, lengths):
    return torch.arange(sequence.shape[1])[None] < lengths[:, None]


def attend(scores, sequence, lengths):
    scores = torch.where(valid(sequence, lengths), scores, torch.tensor(MASKED))
    return torch.einsum("bt,btc->bc", scores.softmax(-1), sequence)


def widen(query, width):
    return F.pad(query, (0, width - query.shape[-1]))


def din(c, name, config, query, sequence, lengths):
    sequence, lengths = cut(config, sequence, lengths)
    q = widen(query, sequence.shape[-1])[:, None].expand_as(sequence)
    a = torch.cat([q, sequence, q - sequence, q * sequence], -1)
    scores = linear(c, f"{name}.linear", mlp(c, f"{name}.mlp", a, config.get("attn_mlp")), 1)[..., 0]
    return attend(scores, sequence, lengths)


def simple_attention(c, name, config, query, sequence, lengths):
    sequence, lengths = cut(config, sequence, lengths)
    return attend(torch.einsum("btc,bc->bt", sequence, query), sequence, lengths)


def pooling(c, name, config, query, sequence, lengths):
    sequence, lengths = cut(config, sequence, lengths)
    total = sequence.sum(1)
    return total / lengths.clamp(min=1)[:, None] if config.get("pooling_type", "mean") == "mean" else total


def self_attention(c, name, config, query, sequence, lengths):
    width, heads = config.get("multihead_attn_dim", 512), config.get("num_heads", 8)
    whole = lengths
    sequence, lengths = cut(config, sequence, lengths)
    batch, steps, _ = sequence.shape
    weight = c.get(f"{name}._multihead_attn.in_proj_weight", (3 * width, width))
    bias = c.get(f"{name}._multihead_attn.in_proj_bias", (3 * width,), "bias")
    inputs = [linear(c, f"{name}.{n}", sequence, width) for n in ("_query", "_key", "_value")]
    q, k, v = (
        (x @ w.T + b).reshape(batch, steps, heads, width // heads).transpose(1, 2)
        for x, w, b in zip(inputs, weight.chunk(3), bias.chunk(3))
    )
    ok = valid(sequence, lengths)
    pairs = (ok[:, :, None] & ok[:, None])[:, None]
    scores = (q @ k.transpose(-1, -2) / (width // heads) ** 0.5).masked_fill(~pairs, -1e30)
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, steps, width)
    y = linear(c, f"{name}._multihead_attn.out_proj", y, width)
    return (y * ok[..., None]).sum(1) / whole.clamp(min=1)[:, None]


def multi_window_din(c, name, config, query, sequence, lengths):
    sequence, lengths = cut(config, sequence, lengths)
    windows = torch.tensor(config.list("windows_len"))
    c.get(f"{name}.windows_len", windows.shape, value=windows)
    c.get(f"{name}.cumsum_windows_len", windows.shape, value=windows.cumsum(0) - windows)
    q = widen(query, sequence.shape[-1])
    each = q[:, None].expand_as(sequence)
    a = torch.cat([sequence, each * sequence, each], -1)
    gate = linear(c, f"{name}.linear", mlp(c, f"{name}.mlp", a, config.get("attn_mlp")), 1)
    gate = F.prelu(gate, c.get(f"{name}.active.weight", (1,), "prelu"))
    x = gate * valid(sequence, lengths)[..., None] * sequence
    x = F.pad(x, (0, 0, 0, int(windows.sum()) - x.shape[1]))
    out, start = [], 0
    for w in windows.tolist():
        count = torch.minimum(lengths - start, torch.tensor(w)).clamp(min=1)
        out.append(x[:, start : start + w].sum(1) / count[:, None])
        start += w
    return torch.cat([*out, q], -1)


ENCODERS = {
    "din_encoder": din,
    "simple_attention": simple_attention,
    "pooling_encoder": pooling,
    "self_attention_encoder": self_attention,
    "multi_window_din_encoder": multi_window_din,
}
