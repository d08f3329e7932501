"""Times training steps of four TorchEasyRec families on the CPU, in rewire and in PyTorch, once their losses agree.

    python training.py make FOLDER
    python training.py time FOLDER --rewire PROGRAM [--threads 2] [--families deepfm,din]

Tables have sparse gradients and Adagrad, all other parameters Adam. `deepfm`, `mmoe`, `dlrm` and `din`; `hstu.py` has `dlrm_hstu`. Needs numpy, torch, safetensors and, for `make`, pyarrow.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import malloc

if __name__ == "__main__":
    malloc.keep_memory()

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import families
from models import FAMILIES, TASKS, Batch
from pipelines import pipeline
from timing import pin, separate_cores

ROWS = families.ROWS
COMPARED = 8
LONG, SHORT = 120, 20
# No epoch ends while steps are timed: it would write the model.
BATCHES = LONG
# Of losses from those in double precision. Where a gradient is a sum that cancels out, rounding decides the direction of Adam's first
# steps: there the errors of PyTorch itself, times so much.
LOSS_TOLERANCE = 1e-5
MOST_ERRORS = 2
EPS = {"sparse": 1e-8, "dense": 1e-8}
RATE = {"sparse": 0.01, "dense": 0.001}
# Of 0 the first update of an element is its rate whatever the gradient, so that rounding decides its sign.
ACCUMULATOR = 0.1


def draw_all(seed: int) -> list[dict[str, np.ndarray]]:
    """Batches with random labels."""
    noise = np.random.default_rng(seed)
    batches = [families.draw(seed + index) for index in range(BATCHES)]
    for batch in batches:
        batch["labels"] = noise.integers(0, 2, (len(TASKS), ROWS))
    return batches


def make(folder: Path, names: list[str]) -> None:
    """Writes pipelines, weights, and the batches as one table and for PyTorch."""
    families.make(folder, names)
    batches = draw_all(100)
    table: dict[str, list] = {}
    for batch in batches:
        columns = families.columns(batch)
        columns |= {label: batch["labels"][index].tolist() for index, label in enumerate(TASKS.values())}
        for name, values in columns.items():
            table.setdefault(name, []).extend(values)
    families.write_table(folder / "train.parquet", table)
    for steps in (COMPARED, SHORT, LONG):
        for name in names:
            text = pipeline(FAMILIES[name]).replace("num_steps: 1\n", f"num_steps: {steps}\n")
            (folder / name / f"train_{steps}.config").write_text(text)
    np.savez(folder / "train.npz", **{key: np.stack([batch[key] for batch in batches]) for key in batches[0]})


def load(folder: Path, name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, list[Batch]]:
    """The module of a family with its weights and sparse gradients, and the batches, with floats of a type."""
    module, _ = families.load(folder, name)
    for part in module.modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
            part.sparse = True
    with np.load(folder / "train.npz") as arrays:
        stacked = {key: torch.from_numpy(array) for key, array in arrays.items()}
    stacked = {key: array.to(dtype) if array.is_floating_point() else array for key, array in stacked.items()}
    batches = [{key: array[index] for key, array in stacked.items()} for index in range(BATCHES)]
    return module.train().to(dtype), batches


class Step:
    """Training steps in PyTorch."""

    def __init__(self, module: nn.Module, forward: Callable[[Batch], Batch]) -> None:
        parts = [part for part in module.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]
        tables = [part.weight for part in parts]
        known = {id(table) for table in tables}
        dense = [weight for weight in module.parameters() if id(weight) not in known]
        self.forward = forward
        self.optimizers = [
            torch.optim.Adagrad(
                tables, lr=RATE["sparse"], eps=EPS["sparse"], initial_accumulator_value=ACCUMULATOR
            ),
            torch.optim.Adam(dense, lr=RATE["dense"], eps=EPS["dense"]),
        ]

    def __call__(self, batch: Batch) -> float:
        """The sum of the losses before the update."""
        found = self.forward(batch)
        suffixes = [f"_{task}" for task in TASKS] if len(found) > 2 else [""]
        loss = torch.zeros(())
        for suffix, label in zip(suffixes, batch["labels"]):
            logits = found[f"logits{suffix}"]
            loss = loss + functional.binary_cross_entropy_with_logits(logits, label.to(logits.dtype))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def exact(folder: Path, name: str) -> list[float]:
    """The first losses in double precision."""
    module, batches = load(folder, name, torch.float64)
    step = Step(module, module)
    return [step(batch) for batch in batches[:COMPARED]]


def error(losses: list[float], expected: list[float]) -> float:
    """The largest relative error of losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def pytorch(folder: Path, name: str, is_compiled: bool) -> tuple[list[float], float]:
    """The first losses, and the median time of a step in ms."""
    module, batches = load(folder, name)
    step = Step(module, torch.compile(module, dynamic=False) if is_compiled else module)
    losses = [step(batch) for batch in batches[:COMPARED]]
    times = []
    for index in range(LONG - COMPARED):
        begun = time.perf_counter()
        step(batches[(COMPARED + index) % BATCHES])
        times.append(time.perf_counter() - begun)
    return losses, 1e3 * statistics.median(times)


def rewire(folder: Path, name: str, program: Path, steps: int, threads: int) -> tuple[list[float], float]:
    """The losses of a training of so many steps, and its seconds."""
    place = folder / name
    config = place / f"train_{steps}.config"
    data, out = folder / "train.parquet", place / f"trained_{steps}"
    weights = place / "model.safetensors"
    printed = families.rewire(
        program, "train", "--pipeline", config, "--checkpoint", weights, "--data", data, "--out", out, threads=threads
    )
    lines = [json.loads(line) for line in printed.splitlines()]
    return [line["loss"] for line in lines if "step" in line], lines[-1]["summary"]["seconds"]


def measure(folder: Path, name: str, program: Path, threads: int) -> dict[str, object]:
    """Times of a step, in turns on the same cores."""
    cpus = separate_cores(threads)
    pin(cpus)
    own, _ = rewire(folder, name, program, COMPARED, threads)
    expected = exact(folder, name)
    times: dict[str, list[float]] = {}
    for _ in range(families.ROUNDS):
        for label, is_compiled in {"eager": False, "compile": True}.items():
            try:
                losses, ms = pytorch(folder, name, is_compiled)
            except Exception as failure:
                print(f"{name}, {label}: {type(failure).__name__}: {str(failure)[:500]}", file=sys.stderr)
                continue
            worst, theirs = error(own, expected), error(losses, expected)
            if worst > max(LOSS_TOLERANCE, MOST_ERRORS * theirs):
                sys.exit(f"{name}: losses differ by {worst:.1e} from doubles, those of PyTorch ({label}) by {theirs:.1e}")
            times.setdefault(label, []).append(ms)
        (_, short), (_, long) = (rewire(folder, name, program, steps, threads) for steps in (SHORT, LONG))
        times.setdefault("rewire", []).append(1e3 * (long - short) / (LONG - SHORT))
    medians = {label: statistics.median(values) for label, values in times.items()}
    return {"family": name, "rows": ROWS, "threads": threads, "torch": torch.__version__} | {
        f"{label}_ms": value for label, value in medians.items()
    } | {f"{label}_ratio": value / medians["rewire"] for label, value in medians.items()} | {"rounds_ms": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rewire", type=Path, metavar="PROGRAM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.command == "make":
        make(options.folder, options.families)
    elif not options.rewire:
        parser.error("time needs --rewire")
    else:
        for name in options.families:
            record = measure(options.folder, name, options.rewire.absolute(), options.threads)
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
