"""Times forward passes of four TorchEasyRec families on the CPU, in rewire and in PyTorch, once their results agree.

    python families.py make FOLDER
    python families.py check FOLDER [--rewire PROGRAM]
    python families.py time FOLDER --rewire PROGRAM [--threads 2] [--families deepfm,din]

Needs numpy, torch and safetensors. Where pyarrow is missing, tables are JSON Lines instead of Parquet.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import malloc

if __name__ == "__main__":
    malloc.keep_memory()

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from models import FAMILIES, IDS, MOST_STEPS, NUMBERS, STEP_IDS, TABLE_ROWS, TASKS, Batch, Family
from pipelines import pipeline
from timing import TOLERANCE, compiled, largest_error, median_ms, pin, separate_cores

ROWS = 512
ROUNDS = 3
WRAPPER = "model."
HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
TABLE = "parquet" if HAS_PARQUET else "jsonl"


def draw(seed: int) -> dict[str, np.ndarray]:
    """A batch: an id a row and feature, and 1 to 50 steps a row."""
    noise = np.random.default_rng(seed)
    lengths = noise.integers(1, MOST_STEPS + 1, ROWS)
    steps = noise.integers(0, TABLE_ROWS, (len(STEP_IDS), ROWS, MOST_STEPS))
    return {
        "ids": noise.integers(0, TABLE_ROWS, (len(IDS), ROWS)),
        "offsets": np.arange(ROWS + 1),
        "numbers": noise.standard_normal((ROWS, len(NUMBERS)), dtype=np.float32),
        "steps": np.where(np.arange(MOST_STEPS) < lengths[:, None], steps, 0),
        "lengths": lengths,
    }


def columns(batch: dict[str, np.ndarray]) -> dict[str, list]:
    """The columns of a table that the reference reads, by name."""
    table = {name: batch["ids"][index].tolist() for index, name in enumerate(IDS)}
    table |= {name: batch["numbers"][:, index].tolist() for index, name in enumerate(NUMBERS)}
    for index, name in enumerate(STEP_IDS):
        rows = zip(batch["steps"][index], batch["lengths"])
        table[f"click__{name}"] = [row[:length].tolist() for row, length in rows]
    return table | {label: [row % 2 for row in range(ROWS)] for label in TASKS.values()}


def write_table(path: Path, table: dict[str, list]) -> None:
    """Writes `path`, by its ending."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(table), path)
    else:
        lines = (json.dumps(dict(zip(table, row))) + "\n" for row in zip(*table.values()))
        path.write_text("".join(lines))


def read_table(path: Path) -> dict[str, list]:
    """The columns of a file that `write_table` or `rewire predict` wrote."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pydict()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {name: [row[name] for row in rows] for name in rows[0]}


def randomized(family: type[Family], seed: int) -> nn.Module:
    """A module whose activations keep their size from layer to layer."""
    torch.manual_seed(seed)
    module = family()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "embedding" in name or weight.dim() == 1:
                weight.normal_(std=0.3 if weight.dim() == 2 else 0.1)
            else:
                weight.normal_(std=(2 / weight.shape[1]) ** 0.5)
    return module


def make(folder: Path, families: Iterable[str]) -> None:
    """Writes pipelines, weights under the reference's names, and the batch as a table and for PyTorch."""
    for seed, name in enumerate(families):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "pipeline.config").write_text(pipeline(FAMILIES[name]))
        weights = randomized(FAMILIES[name], seed).state_dict()
        save_file({WRAPPER + key: value for key, value in weights.items()}, place / "model.safetensors")
    batch = draw(len(FAMILIES))
    np.savez(folder / "data.npz", **batch)
    for ending in {"jsonl", TABLE}:
        write_table(folder / f"data.{ending}", columns(batch))


def load(folder: Path, name: str) -> tuple[nn.Module, Batch]:
    """The module of a family with its weights, and the batch."""
    module = FAMILIES[name]()
    weights = load_file(folder / name / "model.safetensors")
    module.load_state_dict({key.removeprefix(WRAPPER): value for key, value in weights.items()})
    with np.load(folder / "data.npz") as arrays:
        batch = {key: torch.from_numpy(array) for key, array in arrays.items()}
    return module.eval(), batch


def rewire(program: Path, *arguments: str | Path, threads: int | None = None) -> str:
    """What the program prints. It runs with glibc's default malloc."""
    environment = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    if threads:
        environment["REWIRE_THREADS"] = str(threads)
    done = subprocess.run(
        [program, *arguments, "--kernel", "cpu", "--json"], env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{program} {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def import_model(folder: Path, name: str, program: Path) -> Path:
    """The model folder of a family, made of its pipeline."""
    place = folder / name
    model = place / "model"
    rewire(program, "import", place / "pipeline.config", "--checkpoint", place / "model.safetensors", "--out", model)
    return model


def compare(folder: Path, name: str, program: Path | None) -> dict[str, float]:
    """The error of each column of the family's scores, which `rewire predict` writes first if the program is given."""
    scores = folder / name / f"scores.{TABLE}"
    if program:
        model = import_model(folder, name, program)
        rewire(program, "predict", "--model", model, "--data", folder / f"data.{TABLE}", "--out", scores)
    module, batch = load(folder, name)
    with torch.inference_mode():
        expected = module(batch)
    found = read_table(scores)
    if found.keys() != expected.keys():
        sys.exit(f"{scores}: expected the columns {sorted(expected)}, got {sorted(found)}")
    return {column: largest_error(torch.tensor(found[column]), values) for column, values in expected.items()}


def check(folder: Path, families: Iterable[str], program: Path | None) -> bool:
    """Prints the errors of all families; true if none is too large."""
    passed = True
    for name in families:
        errors = compare(folder, name, program)
        passed &= max(errors.values()) <= TOLERANCE
        print(json.dumps({"family": name, "largest_error": max(errors.values()), "errors": errors}), flush=True)
    return passed


def measure(folder: Path, name: str, program: Path, threads: int, seconds: float) -> dict[str, object]:
    """Times of a family, measured in turns on the same cores, once its results are known to be equal."""
    error = max(compare(folder, name, program).values())
    if error > TOLERANCE:
        sys.exit(f"{name}: PyTorch and rewire differ by {error:.1e}, more than {TOLERANCE}")
    every_cpu = os.sched_getaffinity(0)
    module, batch = load(folder, name)
    steps = ["--max-len", str(MOST_STEPS), "--len-dist", f"uniform:1:{MOST_STEPS}"]
    bench: list[str | Path] = [
        "bench",
        folder / name / "model",
        "--batch",
        str(ROWS),
        *steps,
        "--seconds",
        str(seconds),
    ]
    times: dict[str, list[float]] = {}
    with torch.inference_mode():
        runs = {"eager": partial(module, batch)} | compiled(module, batch, module(batch))
        cpus = separate_cores(threads)
        pin(cpus)
        for _ in range(ROUNDS):
            for label, run in runs.items():
                times.setdefault(label, []).append(median_ms(run, seconds))
            record = json.loads(rewire(program, *bench, threads=threads).splitlines()[0])
            times.setdefault("rewire", []).append(record["wall_ms"])
        pin(every_cpu)
    medians = {label: statistics.median(values) for label, values in times.items()}
    own = medians.pop("rewire")
    modes = {label: value for label, value in medians.items() if label != "eager"}
    best = min(modes, key=modes.__getitem__, default="")
    return {
        "family": name,
        "rows": ROWS,
        "threads": threads,
        "cpus": sorted(cpus),
        "host": record.get("host"),
        "torch": torch.__version__,
        "largest_error": error,
        "rewire_ms": own,
        "eager_ms": medians["eager"],
        "compile_ms": modes.get(best),
        "compile_mode": best or None,
        "eager_ratio": medians["eager"] / own,
        "compile_ratio": modes[best] / own if best else None,
        "rounds_ms": times,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "check", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rewire", type=Path, metavar="PROGRAM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if unknown := set(options.families) - FAMILIES.keys():
        parser.error(f"--families: expected some of {', '.join(FAMILIES)}, got {', '.join(sorted(unknown))}")
    program = options.rewire and options.rewire.absolute()
    match options.command:
        case "make":
            make(options.folder, options.families)
        case "check":
            sys.exit(0 if check(options.folder, options.families, program) else 1)
        case "time":
            if not program:
                parser.error("time needs --rewire")
            for name in options.families:
                print(json.dumps(measure(options.folder, name, program, options.threads, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
