"""Embedding tables and feature groups (FORMAT 3 and 4)."""

import torch
import torch.nn.functional as F

from . import encoders



def segment_sum(x, lengths):
    """Sums of consecutive rows of x, one a length."""
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return torch.zeros(len(lengths), x.shape[-1]).index_add(0, rows, x)


def pool(x, lengths, pooling, weights=None):
    total = segment_sum(x if weights is None else x * weights[:, None], lengths)
    return total / lengths.clamp(min=1)[:, None] if pooling == "mean" else total


def pad(x, lengths, steps):
    """Rows [N,D] cut or padded with zeros to [B,steps,D]."""
    out = []
    for row in torch.split(x, lengths.tolist()):
        row = row[:steps]
        out.append(F.pad(row, (0, 0, 0, steps - len(row))))
    return torch.stack(out)


def key_number(value):
    return f"{value:.6f}".replace(".", "_")


class EmbeddingGroup:
    """The groups that one embedding group module computes for a batch of read columns."""

    def __init__(self, c, prefix, groups, features, batch, wide_dim=None):
        self.c, self.prefix, self.features, self.batch = c, prefix, features, batch
        self.groups = {g.get("group_name"): g for g in groups}
        self.wide_dim = wide_dim or 4
        self.cache = {}

    # Tables

    def suffix(self, group, parent=None):
        suffix = group.get("embedding_name_suffix") or (parent.get("embedding_name_suffix") if parent else None)
        return f"_{suffix}" if suffix else ""

    def pooled(self, feature, group):
        wide = group.get("group_type") == "WIDE"
        dim = self.wide_dim if wide else feature.config.get("embedding_dim")
        table = feature.table + ("_wide" if wide else "") + self.suffix(group)
        name = f"{self.prefix}.emb_impls.__BASE__.ebc.embedding_bags.{table}.weight"
        weight = self.c.params.table(name, feature.rows(), dim, feature.half, True)
        ids = self.batch[feature.name]
        self.c.params.touch(name, ids.values)
        return pool(weight[ids.values].to(torch.get_default_dtype()), ids.lengths, feature.pooling, ids.weights)

    def unpooled(self, feature, group, parent):
        dim = feature.config.get("embedding_dim")
        table = feature.table + self.suffix(group, parent)
        name = f"{self.prefix}.seq_emb_impls.__BASE__.ec_dict.{dim}.embeddings.{table}.weight"
        weight = self.c.params.table(name, feature.rows(), dim, feature.half, False)
        values = self.batch[feature.name].values
        self.c.params.touch(name, values)
        return weight[values].to(torch.get_default_dtype())

    def dense_embedding(self, feature):
        c, x, config = self.c, self.batch[feature.name], feature.config
        dim, base = config.get("embedding_dim"), f"{self.prefix}.emb_impls.__BASE__.dense_ec.dense_embs."
        if feature.dense_embedding == "mlp":
            if feature.value_dim <= 1:
                return x * c.get(f"{base}mlp#{dim}.proj_w_{feature.name}.weight", (dim,), "bias")
            key = f"mlp#{dim}#vdim#{feature.value_dim}#feature_name#{' ' * 12}{feature.name}"
            return x @ c.get(f"{base}{key}.proj_w_{feature.name}.weight", (feature.value_dim, dim), "left")
        auto = config.get("autodis")
        channels = auto.get("num_channels")
        keep, temperature = auto.get("keep_prob", 0.8), auto.get("temperature", 0.1)
        key = f"{base}autodis#{dim}#{channels}#{key_number(keep)}#{key_number(temperature)}"
        h = F.leaky_relu(x * c.get(f"{key}.proj_w_{feature.name}.weight", (channels,), "bias"))
        z = h @ c.get(f"{key}.proj_m_{feature.name}.weight", (channels, channels)).T + keep * h
        return (z / temperature).softmax(-1) @ c.get(f"{key}.meta_emb_{feature.name}.weight", (channels, dim), "left")

    # Groups

    def column(self, feature, group):
        """A non-sequence feature's [B, width] in a DEEP or WIDE group."""
        if feature.sparse:
            return self.pooled(feature, group)
        return self.dense_embedding(feature) if feature.dense_embedding else self.batch[feature.name]

    def parts(self, name):
        """The outputs of a DEEP or WIDE group by feature, then by sequence encoder."""
        if name in self.cache:
            return self.cache[name]
        group = self.groups[name]
        out = [self.column(self.features[f], group) for f in group.list("feature_names")]
        nested = {s.get("group_name", name): s for s in group.list("sequence_groups")}
        for i, block in enumerate(group.list("sequence_encoders")):
            kind, config = block.only()
            source = config.get("input") or next(iter(nested))
            query, sequence, lengths = self.sequence(nested[source], group)
            path = f"{self.prefix}._group_name_to_seq_encoders.{name}.{i}"
            out.append(encoders.ENCODERS[kind](self.c, path, config, query, sequence, lengths))
        self.cache[name] = out
        return out

    def deep(self, name):
        return torch.cat(self.parts(name), -1)

    def query(self, feature, group, parent):
        if not feature.sparse:
            return self.batch[feature.name]
        ids, rows = self.batch[feature.name], self.unpooled(feature, group, parent)
        if feature.value_dim == 1:
            starts = ids.lengths.cumsum(0) - ids.lengths
            first = F.pad(rows, (0, 0, 0, 1))[starts.clamp(max=len(rows))]
            return first * (ids.lengths > 0)[:, None]
        return pool(rows, ids.lengths, feature.pooling)

    def steps(self, feature, group, parent):
        """A sequence feature's [N,D] flat steps."""
        if not feature.sparse:
            return self.batch[feature.name].values
        rows, steps = self.unpooled(feature, group, parent), self.batch[feature.name]
        return rows if feature.value_dim == 1 else pool(rows, steps.keys, feature.pooling)

    def split(self, group, parent=None):
        """The query parts and the (flat steps, lengths) parts of a sequence group."""
        found = [self.features[f] for f in group.list("feature_names")]
        query = [self.query(f, group, parent) for f in found if not f.in_sequence]
        parts = [(self.steps(f, group, parent), self.batch[f.name].lengths) for f in found if f.in_sequence]
        return query, parts

    def sequence(self, group, parent=None):
        """Query [B,Q], sequence [B,T,C] padded with zeros, and lengths [B] of a SEQUENCE group."""
        query, parts = self.split(group, parent)
        lengths = parts[0][1]
        longest = int(lengths.max()) if len(lengths) else 0
        sequence = torch.cat([pad(x, n, longest) for x, n in parts], -1)
        batch = len(lengths)
        return torch.cat(query, -1) if query else torch.zeros(batch, 0), sequence, lengths

    def jagged(self, name):
        """Flat steps [N,C] and lengths [B] of a JAGGED_SEQUENCE group."""
        _, parts = self.split(self.groups[name])
        return torch.cat([x for x, _ in parts], -1), parts[0][1]

    def contextual(self, name):
        """[B, Σ widths] of a DEEP group, or the query of a SEQUENCE group."""
        group = self.groups[name]
        if group.get("group_type") == "SEQUENCE":
            return torch.cat(self.split(group)[0], -1)
        return self.deep(name)


def variational_dropout(c, name, parts, batch, config):
    """Scales the parts of a group by their learned keep probability and adds its loss."""
    path = f"model.group_variational_dropouts.{name}"
    p = torch.sigmoid(c.get(f"{path}.feature_p", (len(parts),), "bias"))
    widths = torch.tensor([x.shape[-1] for x in parts], dtype=torch.int32)
    c.get(f"{path}.feature_dim_repeat", (len(parts),), value=widths)
    if c.training:
        raise NotImplementedError("variational dropout in training is random")
    scale = config.get("regularization_lambda", 0.01)
    c.losses[f"{name}_feature_p_loss"] = scale / batch * (1 - p).sum()
    return [x * (1 - p[i]) for i, x in enumerate(parts)]


