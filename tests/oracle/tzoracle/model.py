"""A pipeline's model over the batches of a file: predictions and losses."""

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from . import hstu_models, match, multitask, prototext, ranking
from .columns import features_of
from .groups import EmbeddingGroup, variational_dropout
from .losses import match_loss, rank_losses
from .params import Context


class Pipeline:
    """A pipeline config: its features, groups and model message."""

    def __init__(self, text):
        self.config = prototext.parse(text)
        self.features = features_of(self.config)
        self.data = self.config.get("data_config")
        self.model = self.config.get("model_config")
        known = set(ranking.MODELS) | set(multitask.MODELS) | set(match.MODELS) | {"dlrm_hstu", "ultra_hstu", "hstu_match"}
        self.kind = next(k for k in self.model.fields if k in known)
        self.is_match = self.kind in match.MODELS or self.kind == "hstu_match"
        self.is_hstu = self.kind in hstu_models.RANKERS

    def task_messages(self):
        """The tasks with the suffix of their outputs; one without a suffix for models of one output."""
        own = self.model.get(self.kind)
        if self.is_hstu:
            return [(f"_{t.get('task_name')}", t) for t in own.get("fusion_mtl_tower").list("task_configs")]
        if own.has("task_towers"):
            return [(f"_{t.get('tower_name')}", t) for t in own.list("task_towers")]
        return [("", self.model)]

    def batches(self, path, negatives=None):
        table = pq.read_table(path)
        size = self.data.get("batch_size", 1024)
        lists = pq.read_table(negatives) if negatives else None
        for i, start in enumerate(range(0, table.num_rows, size)):
            yield Batch(self, table.slice(start, size), lists.slice(i, 1) if lists else None)


class Batch:
    """The rows of one batch, read column by column on demand; negatives join the last row's candidates."""

    def __init__(self, pipeline, table, negatives=None):
        self.pipeline, self.table = pipeline, table
        self.rows = table.num_rows
        self.negatives = 0
        self.read = {}
        if negatives is not None:
            self.add_negatives(negatives)

    def add_negatives(self, negatives):
        for name in negatives.column_names:
            extra = negatives[name].to_pylist()[0]
            values = self.table[name].to_pylist()
            values[-1] = list(values[-1] or []) + list(extra)
            self.negatives = len(extra)
            index = self.table.column_names.index(name)
            self.table = self.table.set_column(index, name, pa.array(values, self.table[name].type))

    def __getitem__(self, feature):
        if feature not in self.read:
            self.read[feature] = self.pipeline.features[feature].read(self.table[feature].combine_chunks())
        return self.read[feature]

    def label(self, name):
        """A label flat over rows, or over candidates where it is a list; int64 or float32."""
        column = self.table[name]
        values = column.to_pylist()
        if values and isinstance(values[0], list):
            values = [v for row in values for v in row]
        whole = not str(column.type).replace("list<element: ", "").startswith(("float", "double"))
        return torch.tensor(values, dtype=torch.int64 if whole else torch.get_default_dtype())

    def first_ids(self, name):
        """The first id of a feature a row."""
        ids = self[name]
        return torch.tensor([int(row[0]) if len(row) else 0 for row in torch.split(ids.values, ids.lengths.tolist())])


class Model:
    """One forward pass of a batch. `c.losses` gets the losses that modules add."""

    def __init__(self, pipeline, params, batch, training=False):
        self.pipeline, self.batch = pipeline, batch
        self.c = Context(params, training)
        self.features, self.negatives = pipeline.features, batch.negatives
        self.classes = pipeline.model.get("num_class", 1)
        groups = pipeline.model.list("feature_groups")
        self.groups = {g.get("group_name"): g for g in groups}
        self.first = next(iter(self.groups))
        own = pipeline.model.get(pipeline.kind)
        wide = own.get("wide_embedding_dim", 16 if pipeline.kind == "xdeepfm" else 4)
        self.embedding = EmbeddingGroup(self.c, "model.embedding_group", groups, self.features, batch, wide)
        self.dropped = {}

    def has_group(self, name):
        return name in self.groups

    def parts(self, name):
        parts = self.embedding.parts(name)
        config = self.pipeline.model
        if len(parts) < 2 or not config.has("variational_dropout"):
            return parts
        if name not in self.dropped:
            self.dropped[name] = variational_dropout(self.c, name, parts, self.batch.rows, config.get("variational_dropout"))
        return self.dropped[name]

    def group(self, name):
        return torch.cat(self.parts(name), -1)

    def sequence(self, name):
        return self.embedding.sequence(self.groups[name])

    def forward(self):
        """Logits by output suffix; for matching models embeddings by name."""
        kind, own = self.pipeline.kind, self.pipeline.model.get(self.pipeline.kind)
        if kind == "hstu_match":
            return hstu_models.hstu_match(self, own)
        for family in (multitask.MODELS, match.MODELS, hstu_models.RANKERS):
            if kind in family:
                return family[kind](self, own)
        return {"": ranking.MODELS[kind](self, own)}

    def losses(self, out):
        """Losses by name for the outputs of `forward`, those of modules included."""
        found = match_loss(self, out) if self.pipeline.is_match else rank_losses(self, out)
        return found | self.c.losses


def predictions(pipeline, out):
    """The columns of expected.safetensors for the outputs of a forward pass."""
    if pipeline.is_match:
        return out
    found = {}
    for suffix, logits in out.items():
        task = next((t for s, t in pipeline.task_messages() if s == suffix or suffix.startswith(f"{s}_")), pipeline.model)
        kinds = [loss.only()[0] for loss in task.list("losses")]
        if "l2_loss" in kinds:
            found[f"y{suffix}"] = logits[:, 0]
        if kinds != ["l2_loss"]:
            one = logits.shape[-1] == 1
            found[f"logits{suffix}"] = logits[:, 0] if one else logits
            found[f"probs{suffix}"] = logits[:, 0].sigmoid() if one else logits.softmax(-1)
            if logits.shape[-1] == 2:
                found[f"probs1{suffix}"] = logits.softmax(-1)[:, 1]
    return found
