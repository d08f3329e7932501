"""The parameters of a model by name: read from a state dict, or drawn when a model first asks for them."""

import math

import torch


class Params:
    """With `tensors` every name must be there with the shape that the model asks for; without, names are drawn on demand."""

    def __init__(self, tensors=None, seed=0):
        self.tensors = dict(tensors or {})
        self.create = tensors is None
        self.generator = torch.Generator().manual_seed(seed)
        self.used = set()
        self.looked_up = {}
        self.tables = {}

    def get(self, name, shape, kind="weight", value=None):
        """The tensor of a name. `kind` chooses the distribution of a drawn one; `value` is the value of a fixed buffer."""
        shape = tuple(shape)
        if name not in self.tensors:
            if not self.create:
                raise KeyError(f"no tensor {name} {shape}")
            self.tensors[name] = self.draw(shape, kind) if value is None else value.clone()
        tensor = self.tensors[name]
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the model asks for {shape}")
        if value is not None and not torch.equal(tensor, value):
            raise ValueError(f"{name} is {tensor}, the model asks for {value}")
        self.used.add(name)
        return tensor

    def draw(self, shape, kind):
        normal = torch.randn(shape, generator=self.generator)
        uniform = torch.rand(shape, generator=self.generator)
        if kind == "weight":
            return normal * 1.2 / math.sqrt(max(shape[-1] if shape else 1, 1))
        if kind == "left":
            return normal * 1.2 / math.sqrt(shape[-2])
        if kind == "bias":
            return normal * 0.3
        if kind == "table":
            return normal * 0.7
        if kind == "half_table":
            return (normal * 0.7).half()
        if kind in ("gain", "variance"):
            return uniform + 0.5
        if kind == "prelu":
            return uniform * 0.4
        raise ValueError(kind)

    def table(self, name, rows, dim, half, pooled):
        """An embedding table, and a note that it is one."""
        self.tables[name] = pooled
        return self.get(name, (rows, dim), "half_table" if half else "table")

    def touch(self, name, ids):
        """Notes the rows that a step looks up."""
        self.looked_up.setdefault(name, set()).update(ids.tolist())


class Context:
    """One run of a model: parameters, mode and the outputs that modules add to the losses."""

    def __init__(self, params, training=False):
        self.params = params
        self.training = training
        self.losses = {}

    def get(self, *args, **kwargs):
        return self.params.get(*args, **kwargs)
