"""Generative recommenders on any GPU, or on the CPU.

>>> import rewire
>>> ranker = rewire.Ranker("model.rewire")                       # doctest: +SKIP
>>> ranker.rank({"user": "u1", "history": {...}, "candidates": {...}})  # doctest: +SKIP
>>> pyarrow.table(ranker.predict(pyarrow.parquet.read_table("users.parquet")))  # doctest: +SKIP

`Predictor` runs models that were imported from TorchEasyRec on tables, numpy arrays and lists:

>>> predictor = rewire.Predictor("model.rewire")                 # doctest: +SKIP
>>> predictor.predict(pyarrow.parquet.read_table("data.parquet"))["probs"]  # doctest: +SKIP

`Evaluator` computes the losses and metrics of their configurations:

>>> rewire.tables.evaluate(rewire.Evaluator("model.rewire"), pyarrow.parquet.read_table("data.parquet"))  # doctest: +SKIP

`from_export` loads a program of `torch.export`, and `Model` loads a package or the file of a program; they run on numpy arrays or PyTorch tensors by name:

>>> model = rewire.from_export(torch.export.export(module, (x,)))  # doctest: +SKIP
>>> model.run({"x": x})                                          # doctest: +SKIP

`from_onnx` loads an ONNX file, or an `onnx.ModelProto`:

>>> model = rewire.from_onnx("model.onnx", kernel="cpu")         # doctest: +SKIP

`Decoder` generates items, or tokens, by a Hugging Face language model:

>>> rewire.Decoder("qwen3").generate([[87, 173]], items=[[319, 360], [319, 338]])  # doctest: +SKIP

`package` writes a model as one file with its compiled plan and its weights, optionally quantised:

>>> rewire.package("model", "model.rewire", dtype="f16", tables="int8")  # doctest: +SKIP

`train` trains rankers and pipelines on files, alone or as ranks of `torchrun`, Ray or this process:

>>> rewire.train("dlrm.config", "data.parquet", "trained", progress=print)  # doctest: +SKIP

`Scope` traces your own model, `Model` and `Session` run it on numpy arrays. A `with` block frees a model at its end:

>>> with rewire.Ranker("model.rewire") as ranker:                # doctest: +SKIP
...     ranker.rank(request)

`rewire.tables` scores tables and copies columns to the result, `rewire.spark` and `rewire.ray` score tables of any size. `rewire.distributed` connects
the ranks of a training.
"""

from typing import Any

from ._rewire import (
    Decoder,
    Evaluation,
    Evaluator,
    Graph,
    GraphError,
    Model,
    ModelError,
    Predictions,
    Predictor,
    Ragged,
    Ranker,
    RequestError,
    RewireError,
    RunError,
    Scope,
    Session,
    Size,
    Tensor,
    __version__,
    load,
    package,
)
from .training import train


def from_export(program: Any, **options: Any) -> Model:
    """Loads a `torch.export.ExportedProgram`; options are those of `Model`. No code of the program is executed."""
    import io

    import torch

    archive = io.BytesIO()
    torch.export.save(program, archive)
    return Model.from_bytes(archive.getvalue(), **options)


def from_onnx(model: Any, **options: Any) -> Model:
    """Loads an ONNX file by its path, or an `onnx.ModelProto` with all its data; options are those of `Model`."""
    if hasattr(model, "SerializeToString"):
        return Model.from_bytes(model.SerializeToString(), **options)
    return Model(model, **options)


__all__ = [
    "Decoder",
    "Evaluation",
    "Evaluator",
    "Graph",
    "GraphError",
    "Model",
    "ModelError",
    "Predictions",
    "Predictor",
    "Ragged",
    "Ranker",
    "RequestError",
    "RewireError",
    "RunError",
    "Scope",
    "Session",
    "Size",
    "Tensor",
    "__version__",
    "from_export",
    "from_onnx",
    "load",
    "package",
    "train",
]
