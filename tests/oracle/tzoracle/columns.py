"""Features of a pipeline and their columns in FG_NONE (FORMAT 1 and 2)."""

from dataclasses import dataclass

import pyarrow.types as patypes
import torch

TABLE_FIELDS = ("zch", "dynamicemb", "hash_bucket_size", "num_buckets", "vocab_list", "vocab_dict", "vocab_file", "boundaries")


@dataclass
class Ids:
    """Sparse values [N], a length a row [B], and weights [N] or None."""

    values: torch.Tensor
    lengths: torch.Tensor
    weights: torch.Tensor


@dataclass
class Steps:
    """A sequence: values [N] of ids, or [steps, width] of numbers; `keys` ids a step (None if dense); steps a row."""

    values: torch.Tensor
    keys: torch.Tensor
    lengths: torch.Tensor


def number(text, sparse):
    return int(text) if sparse else float(text)


class Feature:
    def __init__(self, kind, config, sequence=None, separator="\x03"):
        self.in_sequence = sequence is not None
        self.kind = kind.removesuffix("_feature")
        if self.kind.startswith("sequence_"):
            self.kind, self.in_sequence, sequence = self.kind.removeprefix("sequence_"), True, config
        self.config, self.separator = config, separator
        prefix = sequence.get("sequence_name") if sequence is not None and sequence is not config else None
        self.name = f"{prefix}__{config.get('feature_name')}" if prefix else config.get("feature_name")
        self.step_separator = sequence.get("sequence_delim", ";") if sequence is not None else None
        named = any(config.has(field) for field in TABLE_FIELDS)
        self.sparse = {"id": True, "combo": True, "raw": config.has("boundaries"), "expr": config.has("boundaries"),
                       "overlap": config.has("boundaries")}.get(self.kind, named)
        self.dense_embedding = next((n for n in ("autodis", "mlp") if config.has(n) and not self.in_sequence), None)
        value_dim = {"id": 1 if self.in_sequence else 0, "combo": 0}.get(self.kind, 1)
        self.value_dim = config.get("value_dim", value_dim)
        self.table = config.get("embedding_name") or f"{self.name}_emb"
        self.half = config.get("data_type", "FP32") == "FP16"
        self.pooling = config.get("pooling", "sum")
        default = config.get("fg_encoded_default_value", "")
        self.default = [number(v, self.sparse) for v in default.split(separator)] if default else None

    def rows(self):
        """Rows of the table."""
        c = self.config
        if c.has("zch"):
            return c.get("zch").get("zch_size")
        if c.has("dynamicemb"):
            return c.get("dynamicemb").get("max_capacity")
        for field in ("hash_bucket_size", "num_buckets"):
            if c.get(field, 0):
                return c.get(field)
        if c.has("vocab_list"):
            rows = len(c.list("vocab_list")) + (0 if c.has("default_bucketize_value") else 2)
            return rows + (1 if self.kind == "match" else 0)
        if c.has("vocab_dict"):
            return max(entry.get("value") for entry in c.list("vocab_dict")) + 1
        return len(c.list("boundaries")) + 1

    def width(self):
        """Columns in a DEEP group."""
        if self.sparse or self.dense_embedding:
            return self.config.get("embedding_dim")
        return 1 if self.kind in ("match", "overlap") else max(self.value_dim, 1)

    def read(self, column):
        """The values of a column's rows (a pyarrow column)."""
        values = column.to_pylist()
        if self.in_sequence:
            return self.read_sequence(values)
        return self.read_ids(values, column.type) if self.sparse else self.read_dense(values)

    def read_ids(self, values, type):
        ids, weights, lengths = [], [], []
        integer, text, weighted = patypes.is_integer(type), patypes.is_string(type) or patypes.is_large_string(type) or patypes.is_dictionary(type), patypes.is_map(type)
        for value in values:
            if weighted:
                row = value
            elif integer:
                row = None if value is None else [(value, 1.0)]
            else:
                row = value.split(self.separator) if text and value else value
                row = [self.pair(v) for v in row] if row else None
            if row is None:
                row = [(v, 1.0) for v in (self.default or [])[: 1 if integer else None]]
            ids += [a for a, _ in row]
            weights += [b for _, b in row]
            lengths.append(len(row))
        weights = torch.tensor(weights) if weighted or self.config.get("weighted", False) else None
        return Ids(torch.tensor(ids, dtype=torch.long), torch.tensor(lengths), weights)

    def pair(self, value):
        if self.config.get("weighted", False):
            key, weight = value.split(":")
            return int(key), float(weight)
        return int(value), 1.0

    def read_dense(self, values):
        rows = []
        for value in values:
            if isinstance(value, (int, float)):
                value = [value]
            elif isinstance(value, str) and value:
                value = [float(v) for v in value.split(self.separator)]
            rows.append([float(v) for v in value or self.default][: max(self.value_dim, 1)])
        return torch.tensor(rows, dtype=torch.get_default_dtype())

    def read_sequence(self, values):
        steps = []
        default = self.default
        for value in values:
            if isinstance(value, str) and value:
                row = [[number(v, self.sparse) for v in step.split(self.separator) if v != ""]
                       for step in value.split(self.step_separator)]
            elif isinstance(value, str):
                row = []
            else:
                row = [v if isinstance(v, list) else [v] for v in value or []]
            nested = any(isinstance(v, str) or (isinstance(v, list) and v and isinstance(v[0], list)) for v in values)
            if not row and default:
                row = [default] if nested else [[v] for v in default]
            steps.append(row)
        flat = [v for row in steps for step in row for v in step]
        if not self.sparse:
            width = max(self.value_dim, 1)
            lengths = [sum(len(step) for step in row) // width for row in steps]
            return Steps(torch.tensor(flat, dtype=torch.get_default_dtype()).reshape(-1, width), None, torch.tensor(lengths))
        keys = [len(step) for row in steps for step in row]
        return Steps(torch.tensor(flat, dtype=torch.long), torch.tensor(keys, dtype=torch.long),
                     torch.tensor([len(row) for row in steps]))


def features_of(pipeline):
    """All features of a pipeline by full name."""
    separator = pipeline.get("data_config").get("fg_encoded_multival_sep", "\x03")
    out = {}
    for block in pipeline.list("feature_configs"):
        kind, config = block.only()
        if kind == "sequence_feature":
            found = [Feature(*sub.only(), sequence=config, separator=separator) for sub in config.list("features")]
        else:
            found = [Feature(kind, config, separator=separator)]
        out.update((f.name, f) for f in found)
    return out
