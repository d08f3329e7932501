"""Holds the oracle to the reference: python -m tzoracle.check FOLDER..."""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

from .evaluate import evaluate
from .model import Pipeline
from .params import Params


def worst(got, want):
    """The largest error of a tensor, relative to the larger of 1 and its largest value."""
    if got.shape != want.shape:
        return float("inf")
    scale = max(1.0, float(want.abs().max())) if want.numel() else 1.0
    return float((got.float() - want.float()).abs().max()) / scale if want.numel() else 0.0


def check(folder):
    pipeline = Pipeline((folder / "pipeline.config").read_text())
    params = Params(load_file(folder / "model.safetensors"))
    negatives = folder / "negatives.parquet"
    found, batch_losses, metrics = evaluate(pipeline, params, folder / "data.parquet", negatives if negatives.exists() else None)
    errors = {name: worst(found[name], want) if name in found else float("inf")
              for name, want in load_file(folder / "expected.safetensors").items() if "REPEAT" not in name}
    expected = json.loads((folder / "expected_eval.json").read_text())
    for i, want in enumerate(expected["batch_losses"]):
        errors |= {f"{k}[{i}]": abs(batch_losses[i].get(k, 1e9) - v) for k, v in want.items()}
        errors |= {f"{k}[{i}] extra": 1.0 for k in batch_losses[i] if k not in want}
    errors |= {k: abs(metrics.get(k, 1e9) - v) for k, v in expected["metrics"].items() if v == v and "booster" not in k}
    unread = [n for n in params.tensors if n not in params.used]
    bad = {k: v for k, v in errors.items() if not v < 2e-5}
    print(folder.name, "max error", max(errors.values()), "BAD" if bad else "", dict(list(bad.items())[:6]), "unread", unread[:3])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        try:
            check(pathlib.Path(name))
        except Exception as error:
            print(name, type(error).__name__, str(error)[:300])
