"""Training of a pipeline: python -m tzoracle.train FOLDER holds it to a folder's train/ where the reference recorded it."""

import itertools
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

from .check import worst
from .model import Model, Pipeline
from .optim import Tables, dense_optimizer, schedule
from .params import Params

BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "windows_len", "base", "feature_dim_repeat", "_period_units",
           "_units_per_period", "_combined_action_weights")


def train(pipeline, params, path, negatives=None, plan=None, gradients=None):
    """Moves the parameters by one step a batch; yields the losses by name and the learning rates before each step.
    `gradients` gets the largest absolute gradient of each element."""
    config = pipeline.config.get("train_config")
    sparse, dense = config.get("sparse_optimizer"), config.get("dense_optimizer")
    parallel = data_parallel(plan)
    trainable = {n: t.requires_grad_(True) for n, t in params.tensors.items()
                 if n.rsplit(".", 1)[-1] not in BUFFERS and t.is_floating_point()}
    tables, optimizer, frozen = Tables(sparse), None, frozen_tables(pipeline)
    base = None
    for k, batch in enumerate(steps(pipeline, path, negatives)):
        params.looked_up = {}
        m = Model(pipeline, params, batch, training=True)
        losses = m.losses(m.forward())
        if optimizer is None:
            fused = {n for n in params.tables if n.rsplit(".", 2)[-2] not in parallel}
            optimizer = dense_optimizer(dense, [t for n, t in trainable.items() if n not in fused])
            base = optimizer.param_groups[0]["lr"]
        sparse_lr, dense_lr = schedule(sparse, tables.lr, k), schedule(dense, base, k)
        yield {n: float(v.detach()) for n, v in losses.items()}, (sparse_lr, dense_lr)
        sum(losses.values()).backward()
        note_gradients(gradients, trainable)
        with torch.no_grad():
            for name in fused:
                t = trainable[name]
                if t.grad is not None and name.rsplit(".", 2)[-2] not in frozen:
                    rows = torch.tensor(sorted(params.looked_up.get(name, ())), dtype=torch.long)
                    tables.update(name, t, t.grad, rows, sparse_lr, k + 1)
                t.grad = None
        optimizer.param_groups[0]["lr"] = dense_lr
        optimizer.step()
        optimizer.zero_grad()


def steps(pipeline, path, negatives):
    """The batches of num_epochs passes over the file, or of as many passes as num_steps needs."""
    config = pipeline.config.get("train_config")
    epochs, count = config.get("num_epochs", 0), config.get("num_steps", 0)
    passes = range(epochs) if epochs else itertools.count()
    data = pipeline.data
    least = data.get("batch_size", 1024) if data.get("drop_remainder", False) else 1
    batches = (batch for _ in passes for batch in pipeline.batches(path, negatives) if batch.rows >= least)
    return itertools.islice(batches, count or None)


def note_gradients(gradients, trainable):
    for name, t in trainable.items() if gradients is not None else ():
        size = torch.zeros_like(t) if t.grad is None else t.grad.abs()
        gradients[name] = torch.maximum(gradients.get(name, size), size).detach()


def data_parallel(plan):
    """The tables that the plan of a checkpoint gives to the dense optimizer."""
    if plan is None or not plan.exists():
        return set()
    modules = json.loads(plan.read_text()).values()
    return {table for tables in modules for table, how in tables.items() if how["sharding_type"] == "data_parallel"}


def frozen_tables(pipeline):
    return {f.table for f in pipeline.features.values() if not f.config.get("trainable", True)}


def check(folder):
    pipeline = Pipeline((folder / "pipeline.config").read_text())
    params = Params(load_file(folder / "model.safetensors"))
    negatives = folder / "negatives.parquet"
    plan = next(folder.glob("checkpoint/*/plan"), None)
    steps = [json.loads(line) for line in (folder / "train/losses.jsonl").read_text().splitlines()]
    error = 0.0
    run = train(pipeline, params, folder / "data.parquet", negatives if negatives.exists() else None, plan)
    for (losses, _), want in zip(run, steps):
        error = max([error] + [abs(losses[n] - v) for n, v in want["losses"].items()])
    final = load_file(folder / "train/final.safetensors")
    errors = {n: worst(params.tensors[n].detach(), t) for n, t in final.items()}
    print(folder.name, "losses", error, "parameters", max(errors.values()), max(errors, key=errors.get))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        check(pathlib.Path(name))
