"""The HSTU transducer (FORMAT 6, HSTU family, steps 1 to 7)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .modules import dropout, layer_norm, linear, mlp, swish_layer_norm, swish_mlp


@dataclass
class Jagged:
    """Flat rows [N,D] and a length a row [B]."""

    values: torch.Tensor
    lengths: torch.Tensor

    def rows(self):
        return torch.repeat_interleave(torch.arange(len(self.lengths)), self.lengths)

    def split(self):
        return torch.split(self.values, self.lengths.tolist())

    def flip(self):
        return Jagged(self.values.flip(0), self.lengths.flip(0))


@dataclass
class Inputs:
    """Jagged inputs of one channel; those that a pipeline lacks are None. `contextual` is [B,W] of features with `widths`."""

    contextual: torch.Tensor
    widths: list
    history: Jagged
    candidates: Jagged
    actions: Jagged
    watch: Jagged
    history_time: Jagged
    candidate_time: Jagged
    query_time: torch.Tensor


class Transducer:
    def __init__(self, c, name, config, max_seq_len, inputs, concat=False):
        self.c, self.name, self.config, self.x = c, name, config, inputs
        self.stu = config.get("stu")
        self.width = self.stu.get("embedding_dim")
        self.max_seq_len = max_seq_len
        kind, self.pre = config.get("input_preprocessor").only()
        self.interleaved = kind == "contextual_interleave_preprocessor" and self.pre.get("enable_interleaving", True)
        self.path = f"{name}._input_preprocessor"
        self.tokens = self.contextual_tokens(concat)
        self.prefix = 0 if self.tokens is None else self.tokens.shape[1]

    # Tokens

    def contextual_tokens(self, concat):
        x = self.x.contextual
        if x is None:
            return None
        count = 1 if concat else len(self.x.widths)
        x = x.reshape(len(x), count, -1)
        w = self.c.get(f"{self.path}._batched_contextual_linear_weights", (count, x.shape[-1], self.width), "left")
        b = self.c.get(f"{self.path}._batched_contextual_linear_bias", (count, 1, self.width), "bias")
        return torch.einsum("bcd,cde->bce", x, w) + b[:, 0]

    def contextual_mlp(self, name, config, x, rows):
        kind, config = config.only()
        hidden = config.get("hidden_dim")
        if kind == "simple_mlp":
            return swish_mlp(self.c, f"{name}._mlp", x, hidden, self.width)
        c = self.c
        if c.training and config.get("contextual_dropout_ratio", 0.3) > 0:
            raise NotImplementedError("dropout in training is random")
        z = linear(c, f"{name}._dense_features_compress", self.x.contextual, hidden)
        m = linear(c, f"{name}._attn_raw_weights.0", z, x.shape[-1] * self.width).reshape(len(z), x.shape[-1], self.width)
        m = layer_norm(c, f"{name}._attn_weights_norm", m, axes=2)
        r = swish_layer_norm(c, f"{name}._res_weights.1", linear(c, f"{name}._res_weights.0", z, hidden))
        r = linear(c, f"{name}._res_weights.2", r, self.width)
        return torch.einsum("ni,nio->no", x, m[rows]) + r[rows]

    def content(self):
        """Content rows of the history and of the candidates (None without candidates)."""
        history, candidates = self.x.history.values, self.x.candidates
        if candidates is None:
            return linear(self.c, f"{self.path}._input_projection", history, self.width), None
        name, targets = f"{self.path}._content_encoder", candidates.values
        kind, config = self.pre.get("content_encoder").only()
        if kind == "slice_content_encoder":
            targets = targets[:, : history.shape[-1]]
        elif kind == "pad_content_encoder":
            gap = targets.shape[-1] - history.shape[-1]
            dummy = self.c.get(f"{name}._target_enrich_dummy_embeddings", (1, gap), "bias")
            history = torch.cat([history, dummy.expand(len(history), -1)], -1)
        else:
            history = mlp(self.c, f"{name}.uih_mlp", history, config.get("uih_mlp"))
            targets = mlp(self.c, f"{name}.target_mlp", targets, config.get("target_mlp"))
        if self.pre.has("content_mlp"):
            name, config = f"{self.path}._content_embedding_mlp", self.pre.get("content_mlp")
            history = self.contextual_mlp(name, config, history, self.x.history.rows())
            targets = self.contextual_mlp(name, config, targets, candidates.rows())
        return history, targets

    def action_rows(self):
        """Action rows of the history and of the candidates."""
        _, config = self.pre.get("action_encoder").only()
        name, dim = f"{self.path}._action_encoder", config.get("action_embedding_dim")
        extra = config.list("watchtime_to_action_weights")
        bits = torch.tensor(config.list("action_weights") + extra)
        self.c.get(f"{name}._combined_action_weights", bits.shape, value=bits)
        table = self.c.get(f"{name}._action_embedding_table", (len(bits), dim), "table")
        target = self.c.get(f"{name}._target_action_embedding_table", (1, len(bits) * dim), "table")
        actions = self.x.actions.values[:, 0].long()
        for threshold, weight in zip(config.list("watchtime_to_action_thresholds"), extra):
            actions = torch.where(self.x.watch.values[:, 0] >= threshold, actions | weight, actions)
        on = (actions[:, None] & bits) != 0
        history = (on[..., None] * table).flatten(1)
        rows, targets, target_rows = self.x.history.rows(), None, None
        if self.x.candidates is not None:
            target_rows = self.x.candidates.rows()
            targets = target.expand(len(target_rows), -1)
        if self.pre.has("action_mlp"):
            name, config = f"{self.path}._action_embedding_mlp", self.pre.get("action_mlp")
            history = self.contextual_mlp(name, config, history, rows)
            targets = None if targets is None else self.contextual_mlp(name, config, targets, target_rows)
        return history, targets

    def sequence(self):
        """History and candidate tokens, each with its timestamps, and the tokens a candidate has."""
        history, targets = self.content()
        repeat = 1
        if self.pre.has("action_encoder"):
            actions, target_actions = self.action_rows()
            if not self.interleaved:
                history = history + actions
                targets = None if targets is None else targets + target_actions
            else:
                history = torch.stack([history, actions], 1).flatten(0, 1)
                if self.c.training:
                    repeat = 2
                    targets = torch.stack([targets, target_actions], 1).flatten(0, 1)
        each = 2 if self.interleaved else 1
        return self.jagged(history, self.x.history, self.x.history_time, each), (
            None if targets is None else self.jagged(targets, self.x.candidates, self.x.candidate_time, repeat)), repeat

    def jagged(self, values, like, time, each):
        lengths = like.lengths * each
        stamps = torch.zeros(len(values), 1) if time is None else time.values.repeat_interleave(each, 0)
        return list(zip(torch.split(values, lengths.tolist()), torch.split(stamps[:, 0], lengths.tolist())))

    # Positions

    def positions(self, x, stamps, targets, query):
        config = self.config.get("positional_encoder")
        n, path = len(x), f"{self.name}._positional_encoder"
        buckets = config.get("num_position_buckets", 8192)
        i, last = torch.arange(n), n - targets
        timed = config.get("use_time_encoding", False)
        if timed:
            index = torch.where(i < self.prefix, i, ((last - i).clamp(min=0) + self.prefix).clamp(max=buckets - 1))
        else:
            index = i.clamp(max=min(last, buckets - 1))
        p = self.c.get(f"{path}._position_embeddings_weight", (buckets, self.width), "table")[index]
        if timed:
            count = config.get("num_time_buckets", 2048)
            increments = config.get("time_bucket_increments", 60.0)
            age = (query - stamps).clamp(min=1e-6) / increments
            age = age.log() if config.get("time_bucket_fn", "sqrt") == "log" else age.sqrt()
            k = ((age / count).clamp(0, 1) * count).long()
            p = p + self.c.get(f"{path}._timestamp_embeddings_weight", (count + 1, self.width), "table")[k]
        return x * math.sqrt(self.width) + p

    # Layers

    def mask(self, n, targets, c):
        i = torch.arange(n)
        k1, k2 = self.stu.get("sla_k1", 0), self.stu.get("sla_k2", 0)
        if k1 > 0 or k2 > 0:
            first, row, col = max(k2, c), i[:, None], i[None]
            history = (col < (row + 1).clamp(max=first)) | ((col >= (row - k1 + 1).clamp(min=first)) & (col <= row))
            return torch.where(row < n - targets, history, (col < n - targets).expand(n, n))
        if c > 0:
            most = n - c + 1 - targets
            g = (i - c + 1).clamp(min=0).clamp(max=most)
        else:
            most = n - targets
            g = i.clamp(max=most)
        row, col = g[:, None], g[None]
        sees = row > col
        if self.stu.get("max_attn_len", 0) > 0:
            sees = sees & (row - col <= self.stu.get("max_attn_len"))
        sees = sees | torch.eye(n, dtype=torch.bool)
        return sees | ((row == 0) & (col < most)) if c > 0 else sees

    def layer(self, index, x, targets, c):
        path, stu = f"{self.name}._stu_module._stu_layers.{index}", self.stu
        heads, hidden, attention = stu.get("num_heads"), stu.get("hidden_dim"), stu.get("attention_dim")
        get, n, width = self.c.get, len(x), self.width
        gain, bias = get(f"{path}._input_norm_weight", (width,), "gain"), get(f"{path}._input_norm_bias", (width,), "bias")
        y = F.layer_norm(x, (width,), gain, bias, 1e-6)
        total = 2 * (hidden + attention) * heads
        y = y @ get(f"{path}._uvqk_weight", (width, total), "left") + get(f"{path}._uvqk_beta", (total,), "bias")
        u, v, q, k = torch.split(y, [hidden * heads] * 2 + [attention * heads] * 2, -1)
        u = F.silu(u)
        v, q, k = (a.reshape(n, heads, -1).transpose(0, 1) for a in (v, q, k))
        alpha = stu.get("attn_alpha", 0) or attention**-0.5
        scale = stu.get("scaling_seqlen", -1)
        scale = self.max_seq_len if scale < 0 else scale
        a = F.silu(alpha * (q @ k.transpose(1, 2))) / scale * self.mask(n, targets, c)
        o = (a @ v).transpose(0, 1)
        if stu.get("use_group_norm", False):
            gain, bias = (get(f"{path}._output_norm_{s}", (heads,), t) for s, t in (("weight", "gain"), ("bias", "bias")))
            normed = F.layer_norm(o, (hidden,), eps=1e-6) * gain[:, None] + bias[:, None]
            o, normed = o.flatten(1), normed.flatten(1)
        else:
            o, size = o.flatten(1), (heads * hidden,)
            gain, bias = (get(f"{path}._output_norm_{s}", size, t) for s, t in (("weight", "gain"), ("bias", "bias")))
            normed = F.layer_norm(o, size, gain, bias, 1e-6)
        z = torch.cat([u, o, u * normed], -1)
        z = dropout(self.c, z, stu.get("output_dropout_ratio", 0.3))
        return x + z @ get(f"{path}._output_weight", (3 * hidden * heads, width), "left")

    def encode(self, x, targets):
        """A row through all layers, with its history truncated as in the pipeline."""
        c = self.stu.get("contextual_seq_len", -1)
        c = self.prefix if c < 0 else c
        kept = torch.arange(len(x))
        for index in range(self.config.get("attn_num_layers")):
            if index and index == self.config.get("attn_truncation_split_layer", 0):
                tail = self.config.get("attn_truncation_tail_len", 0)
                start = max(len(x) - targets - tail, c)
                keep = torch.cat([torch.arange(c), torch.arange(start, len(x))])
                x, kept = x[keep], kept[keep]
            x = self.layer(index, x, targets, c)
        return x, kept

    def post(self, x, stamps):
        kind, config = self.config.get("output_postprocessor").only()
        path = f"{self.name}._output_postprocessor"
        if kind == "l2norm_postprocessor":
            return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        if kind == "timestamp_layernorm_postprocessor":
            periods, units = (torch.tensor([config.list(f"time_duration_{n}")], dtype=torch.get_default_dtype())
                              for n in ("period_units", "units_per_period"))
            self.c.get(f"{path}._period_units", periods.shape, value=periods)
            self.c.get(f"{path}._units_per_period", units.shape, value=units)
            phase = torch.remainder(torch.div(stamps[:, None], periods, rounding_mode="floor"), units) / units * 2 * 3.14
            x = torch.cat([x, torch.stack([phase.cos(), phase.sin()], -1).flatten(1)], -1)
            x = linear(self.c, f"{path}._time_feature_combiner", x, self.width)
        return layer_norm(self.c, f"{path}._layer_norm", x)

    def run(self):
        """The candidates' tokens [N,E]; without candidates the last token of each row [B,E]."""
        history, targets, repeat = self.sequence()
        out, stamps_out, empty = [], [], []
        for b in range(len(self.x.history.lengths)):
            parts = [] if self.tokens is None else [(self.tokens[b], torch.zeros(self.prefix))]
            parts.append(history[b])
            count = 0
            if targets is not None:
                parts.append(targets[b])
                count = len(targets[b][0])
            x, stamps = torch.cat([p for p, _ in parts]), torch.cat([s for _, s in parts])
            empty.append(len(x) == 0)
            if empty[-1] or (targets is not None and count == 0):
                if targets is None:
                    out.append(torch.zeros(1, self.width))
                    stamps_out.append(torch.zeros(1))
                continue
            query = stamps[-1] if self.x.query_time is None else self.x.query_time[b]
            x = dropout(self.c, self.positions(x, stamps, count, query), self.config.get("input_dropout_ratio", 0.2))
            x, kept = self.encode(x, count)
            last = len(x) - (count if targets is not None else 1)
            step = repeat if targets is not None else 1
            out.append(x[last::step])
            stamps_out.append(stamps[kept][last::step])
        y = self.post(torch.cat(out), torch.cat(stamps_out))
        return y if targets is not None else y * ~torch.tensor(empty)[:, None]
