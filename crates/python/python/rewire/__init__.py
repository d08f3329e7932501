"""Generative recommenders on any GPU, or on the CPU.

>>> import rewire
>>> ranker = rewire.Ranker("model.rewire")                       # doctest: +SKIP
>>> ranker.rank({"user": "u1", "history": {...}, "candidates": {...}})  # doctest: +SKIP
>>> pyarrow.table(ranker.predict(pyarrow.parquet.read_table("users.parquet")))  # doctest: +SKIP

`rewire.tables` carries columns along, `rewire.spark` and `rewire.ray` score tables of any size.
"""

from ._rewire import ModelError, Predictions, Ranker, RequestError, RewireError, RunError

__all__ = ["ModelError", "Predictions", "Ranker", "RequestError", "RewireError", "RunError"]
