"""Generative recommenders on any GPU, or on the CPU.

>>> import rewire
>>> ranker = rewire.Ranker("model.rewire")                       # doctest: +SKIP
>>> ranker.rank({"user": "u1", "history": {...}, "candidates": {...}})  # doctest: +SKIP
>>> pyarrow.table(ranker.predict(pyarrow.parquet.read_table("users.parquet")))  # doctest: +SKIP

`Scope` traces a model of one's own, `Model` and `Session` run it on arrays of numpy.

`rewire.tables` carries columns along, `rewire.spark` and `rewire.ray` score tables of any size.
"""

from ._rewire import (
    Graph,
    GraphError,
    Model,
    ModelError,
    Predictions,
    Ragged,
    Ranker,
    RequestError,
    RewireError,
    RunError,
    Scope,
    Session,
    Size,
    Tensor,
)

__all__ = [
    "Graph",
    "GraphError",
    "Model",
    "ModelError",
    "Predictions",
    "Ragged",
    "Ranker",
    "RequestError",
    "RewireError",
    "RunError",
    "Scope",
    "Session",
    "Size",
    "Tensor",
]
