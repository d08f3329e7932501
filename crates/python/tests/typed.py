"""Uses of the package that mypy accepts, and some that it does not. It is not run."""

import numpy
from numpy.typing import NDArray

import rewire

ranker = rewire.Ranker("model.rewire", kernel="cpu", tables="int8", table_placement="host")
ranked = ranker.rank({"user": "u1", "country": 3, "history": {"item_id": [1]}, "candidates": {"item_id": numpy.array([2])}})
score: float = ranked["candidates"][0]["score"]
several: list[dict[str, object]] = ranker.rank([{"user": 1, "history": {}, "candidates": {}}])
predictor: rewire.Predictor = rewire.Predictor.from_bytes(b"", kernel_for={"mlp*": "cpu"})
tokens: list[int] = rewire.Decoder("qwen3").generate([[1, 2]], items=[[3]], on_token=lambda prompt, tokens: prompt > tokens[0])[0][0]["tokens"]

scope = rewire.Scope()
rows = scope.lengths("lengths", scope.size("users"))
x = scope.input("x", "f32", [rows.total, 4])
best, columns = scope.top_k_unseen(x @ scope.parameter("weight", [4, 9]), 3, scope.input("seen", "i64", [rows.total]), rows)
graph: rewire.Graph = scope.finish({"best": 2 * best.relu() + 1, "columns": columns})
y: NDArray[numpy.generic] = rewire.Model(graph, {"weight": numpy.ones((4, 9))}).session().run({"x": [[0.5] * 4]})["best"]
rewire.package("model", "model.rewire", dtype="f16")
with rewire.Predictor("model.rewire") as opened:
    device: str = opened.device
version: str = rewire.__version__

ranker = rewire.Ranker("model.rewire", kernel="npu")  # type: ignore[arg-type]
rewire.package("model", "model.rewire", tables="f8")  # type: ignore[arg-type]
scope.top_k(x, "3")  # type: ignore[arg-type]
