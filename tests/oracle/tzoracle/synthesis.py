"""Random data and weights for a pipeline."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

from .model import Model, Pipeline
from .params import Params

STEPS = ("list", "string", "nested")


class Data:
    """Draws the columns that the features of a pipeline read."""

    def __init__(self, pipeline, rows, seed, types=None, longest=9, jagged_default=False):
        self.p, self.rows, self.types, self.longest = pipeline, rows, types or {}, longest
        self.rng = np.random.default_rng(seed)
        self.lengths = {}

    def missing(self):
        return self.rng.random() < 0.15

    def ids(self, feature, count):
        return [int(v) for v in self.rng.integers(0, feature.rows(), count)]

    def column(self, feature):
        if feature.in_sequence:
            return self.sequence(feature)
        kind = self.types.get(feature.name)
        return self.sparse(feature, kind) if feature.sparse else self.dense(feature, kind)

    def sparse(self, feature, kind):
        weighted = feature.config.get("weighted", False)
        kind = kind or (("list", "string", "map") if weighted else ("int", "string", "list"))[self.rng.integers(3)]
        out = []
        for _ in range(self.rows):
            if self.missing():
                out.append(None if kind in ("int", "map") or self.rng.random() < 0.5 else ("" if kind == "string" else []))
                continue
            ids = self.ids(feature, 1 if kind == "int" else self.rng.integers(1, 5))
            if weighted and kind != "map":
                ids = [f"{i}:{self.rng.uniform(-1, 2):.3f}" for i in ids]
            if kind == "int":
                out.append(ids[0])
            elif kind == "string":
                out.append(feature.separator.join(map(str, ids)))
            elif kind == "map":
                out.append([] if self.rng.random() < 0.1 else [(i, float(np.float32(self.rng.uniform(-1, 2)))) for i in set(ids)])
            else:
                out.append(ids)
        types = {"int": pa.int64(), "string": pa.string(), "map": pa.map_(pa.int64(), pa.float32()),
                 "list": pa.list_(pa.string() if weighted else pa.int64())}
        return pa.array(out, types[kind])

    def numbers(self, count):
        return [round(float(v), 3) for v in self.rng.normal(0.2, 1, count)]

    def dense(self, feature, kind):
        width = max(feature.value_dim, 1)
        if "time" in feature.name:
            return pa.array(self.stamps(self.rows, "query") + self.rng.integers(0, 9, self.rows) * 512, pa.float32())
        kind = kind or (("float", "string") if width == 1 else ("string", "list"))[self.rng.integers(2)]
        out = []
        for _ in range(self.rows):
            if feature.default and self.missing():
                out.append(None)
                continue
            v = self.numbers(width)
            out.append({"float": v[0], "int": int(round(v[0] * 3)), "string": feature.separator.join(map(str, v)), "list": v}[kind])
        types = {"float": pa.float32(), "int": pa.int64(), "string": pa.string(), "list": pa.list_(pa.float32())}
        return pa.array(out, types[kind])

    def steps_of(self, feature):
        key = feature.name.split("__")[0] if "__" in feature.name else feature.name
        if key not in self.lengths:
            lengths = self.rng.integers(0, self.longest + 1, self.rows)
            lengths[0], lengths[-1] = 1, 0
            if "cand" in key:
                lengths = self.rng.integers(0 if len(key) == 4 and self.rows % 2 == 0 and self.p.is_hstu else 1, 5, self.rows)
            self.lengths[key] = lengths
        return self.lengths[key]

    def sequence(self, feature):
        kind = self.types.get(feature.name) or STEPS[self.rng.integers(3 if feature.sparse else 2)]
        single = feature.value_dim == 1
        out, name = [], feature.name
        for n in self.steps_of(feature):
            if feature.sparse:
                steps = [self.ids(feature, 1 if single or kind == "list" else self.rng.integers(1, 4)) for _ in range(n)]
                if kind == "nested" and not single and n:
                    steps[0] = []
            elif "time" in name.split("__")[-1] and "watch" not in name:
                steps = [[float(t)] for t in np.sort(self.stamps(n, name))]
            elif "action" in name:
                steps = [[float(v)] for v in self.rng.integers(0, 256, n)]
            elif "watch" in name:
                steps = [[float(v)] for v in self.rng.integers(0, 200, n)]
            else:
                steps = [self.numbers(max(feature.value_dim, 1)) for _ in range(n)]
            if kind == "string":
                text = feature.step_separator.join(feature.separator.join(map(str, s)) for s in steps)
                out.append(text or (None if self.rng.random() < 0.5 else ""))
            elif kind == "nested":
                out.append(steps or (None if self.rng.random() < 0.5 else []))
            else:
                out.append([v for s in steps for v in s] or (None if self.rng.random() < 0.5 else []))
        inner = pa.int64() if feature.sparse else pa.float32()
        types = {"string": pa.string(), "nested": pa.list_(pa.list_(inner)), "list": pa.list_(inner)}
        return pa.array(out, types[kind])

    def stamps(self, n, name):
        base = 1652000000 + self.rng.integers(0, 86400 * 3)
        if "query" in name:
            return np.full(n, np.float32(base))
        return np.float32(base) - np.exp(self.rng.uniform(2, 15, n))

    def labels(self):
        """Label and weight columns: names decide the values (clk, buy, *_weight, cls<K>, dom<K>, y, jagged cand_*)."""
        out = {}
        names = self.p.data.list("label_fields") + self.p.data.list("sample_weight_fields")
        for name in names:
            if name.startswith("cand"):
                key = next((k for k in self.lengths if k.startswith("cand")), None)
                rows = self.lengths[key]
                if "watch" in name:
                    out[name] = pa.array([self.numbers(n) for n in rows], pa.list_(pa.float32()))
                else:
                    top = 3 if "rating" in name else 256
                    out[name] = pa.array([[int(v) for v in self.rng.integers(0, top, n)] for n in rows], pa.list_(pa.int64()))
            elif "weight" in name:
                out[name] = pa.array(self.rng.uniform(0.2, 2, self.rows), pa.float32())
            elif name[-1].isdigit():
                out[name] = pa.array(self.rng.integers(0, int(name[-1]), self.rows), pa.int64())
            elif name.startswith("y"):
                out[name] = pa.array(self.numbers(self.rows), pa.float32())
            else:
                out[name] = pa.array(self.rng.integers(0, 2, self.rows), pa.int64())
        return out

    def table(self):
        columns = {f.name: self.column(f) for f in self.p.features.values()}
        return pa.table(columns | self.labels())


def build(folder, text, rows=24, seed=0, types=None, negatives=0):
    """Writes a pipeline, its data and drawn weights into a folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.config").write_text(text)
    pipeline = Pipeline(text)
    data = Data(pipeline, rows, seed, types)
    pq.write_table(data.table(), folder / "data.parquet")
    path = None
    if negatives:
        path = folder / "negatives.parquet"
        batches = -(-rows // pipeline.data.get("batch_size", 1024))
        names = [f for f in pipeline.features.values() if f.name.startswith("cand")]
        pq.write_table(pa.table({f.name: pa.array([data.ids(f, negatives) for _ in range(batches)]) for f in names}), path)
    params = Params(seed=seed + 1)
    with torch.no_grad():
        Model(pipeline, params, next(iter(pipeline.batches(folder / "data.parquet")))).forward()
    save_file({k: v.contiguous() for k, v in params.tensors.items()}, folder / "model.safetensors")
    return path
