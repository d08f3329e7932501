"""Comparison of a program's predictions, evaluation and training with the oracle's, for one folder."""

import json
import pathlib
import subprocess

import torch
from safetensors.torch import load_file

from .check import worst
from .evaluate import evaluate
from .model import Pipeline
from .params import Params
from .train import train


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: {done.stderr.strip()[-700:]}")
    return done.stdout


def imported(program, folder):
    run(program, "import", folder / "pipeline.config", "--checkpoint", folder / "model.safetensors", "--out", folder / "M")


def load(folder):
    """The pipeline, its parameters and the path of its negatives."""
    negatives = folder / "negatives.parquet"
    params = Params(load_file(folder / "model.safetensors"))
    return Pipeline((folder / "pipeline.config").read_text()), params, negatives if negatives.exists() else None


def predict(program, folder):
    """Errors by output of a program's predictions, relative to the larger of 1 and the largest value."""
    folder = pathlib.Path(folder)
    pipeline, params, _ = load(folder)
    want, _, _ = evaluate(pipeline, params, folder / "data.parquet")
    imported(program, folder)
    run(program, "predict", "--model", folder / "M", "--data", folder / "data.parquet", "--out", folder / "out.jsonl", "--kernel", "cpu")
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    errors = {}
    for name, tensor in want.items():
        if name.startswith("similarity") or name == "interest_mask":
            continue
        if name not in rows[0]:
            errors[name] = float("inf")
            continue
        values = [r[name] for r in rows]
        if name == "item_tower_emb" and pipeline.kind == "hstu_match":
            values = [v for row in values for v in row]
        got = torch.tensor(values)
        errors[name] = worst(got.reshape(tensor.shape) if got.numel() == tensor.numel() else got, tensor)
    errors |= {f"{k} (not expected)": float("inf") for k in rows[0] if k not in want}
    return errors


def evaluation(program, folder):
    """Errors of a program's losses and metrics over the file, relative to the larger of 1 and the value."""
    folder = pathlib.Path(folder)
    pipeline, params, negatives = load(folder)
    _, _, want = evaluate(pipeline, params, folder / "data.parquet", negatives)
    imported(program, folder)
    more = ["--negatives", negatives] if negatives else []
    text = run(program, "eval", "--model", folder / "M", "--data", folder / "data.parquet", "--json", "--kernel", "cpu", *more)
    found = json.loads(text.strip().splitlines()[-1])
    got = found["metrics"] | found["losses"]
    errors = {k: abs(got[k] - v) / max(1, abs(v)) if k in got else float("inf") for k, v in want.items()}
    return errors | {f"{k} (not expected)": float("inf") for k in got if k not in want and "booster" not in k}


def training(program, folder):
    """Errors of a program's losses a step, and of the way of each parameter where its gradient is more than noise."""
    folder = pathlib.Path(folder)
    pipeline, params, negatives = load(folder)
    start = {k: v.clone() for k, v in params.tensors.items()}
    moved = {}
    want = [losses for losses, _ in train(pipeline, params, folder / "data.parquet", negatives, gradients=moved)]
    exact, ends = trained_in_float64(folder)
    more = ["--negatives", negatives] if negatives else []
    text = run(program, "train", "--pipeline", folder / "pipeline.config", "--checkpoint", folder / "model.safetensors",
               "--data", folder / "data.parquet", "--out", folder / "T", "--json", "--kernel", "cpu", *more)
    steps = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    steps = [s["losses"] for s in steps if "losses" in s]
    errors = {"steps": 0.0 if len(steps) == len(want) else float("inf")}
    for i, (got, losses) in enumerate(zip(steps, want)):
        noise = {k: 4 * abs(v - exact[i][k]) for k, v in losses.items()}
        errors |= {f"{k}[{i}]": max(abs(got[k] - v) - noise[k], 0) / max(1, abs(v)) if k in got else float("inf") for k, v in losses.items()}
        errors |= {f"{k}[{i}] (not expected)": float("inf") for k in got if k not in losses}
    final = {"model." + k.removeprefix("model."): v for k, v in load_file(folder / "T" / "model.safetensors").items()}
    for name, tensor in params.tensors.items():
        known = (start[name].float(), tensor.detach().float())
        noise = way_error(name, *known, ends, moved)
        errors[name] = max(way_error(name, *known, final, moved) - 4 * noise, 0.0) / 1000
    return errors


def trained_in_float64(folder):
    """The losses and final parameters of the same training in float64, which show how far rounding carries."""
    torch.set_default_dtype(torch.float64)
    try:
        pipeline, params, negatives = load(folder)
        params.tensors = {k: v.double() if v.is_floating_point() else v for k, v in params.tensors.items()}
        losses = [losses for losses, _ in train(pipeline, params, folder / "data.parquet", negatives)]
        return losses, {k: v.detach().float() for k, v in params.tensors.items()}
    finally:
        torch.set_default_dtype(torch.float32)


def way_error(name, start, want, final, moved):
    if name not in final:
        return float("inf")
    mask = torch.ones_like(start) if name not in moved else (moved[name] > 1e-6).float()
    got = final[name].float().reshape(want.shape)
    way = float(((want - start) * mask).norm())
    gap = float(((got - want) * mask).norm())
    return gap / way if way > 1e-7 else gap
