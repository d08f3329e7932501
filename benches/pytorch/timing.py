"""Times of PyTorch on chosen CPUs, and the comparison of results that goes before them."""

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch._inductor.config
from torch import Tensor, nn

from models import Batch

TOLERANCE = 2e-5
MAX_AUTOTUNE = torch._inductor.list_mode_options("max-autotune-no-cudagraphs")
COMPILED = {
    "default": {"freezing": False},
    "max-autotune": MAX_AUTOTUNE | {"freezing": False},
    "max-autotune, frozen weights": MAX_AUTOTUNE | {"freezing": True},
}


def largest_error(found: Tensor, expected: Tensor) -> float:
    """The larger of two relative errors: by the norm, and by the largest value."""
    found, expected = found.double(), expected.double()
    difference = found - expected
    by_norm = difference.norm() / expected.norm()
    return max(by_norm.item(), (difference.abs().max() / expected.abs().max()).item())


def separate_cores(count: int) -> set[int]:
    """CPUs of as many different cores."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text() if siblings.exists() else str(cpu), cpu)
    if len(cores) < count:
        print(f"{count} threads share {len(cores)} cores", file=sys.stderr)
        return set(sorted(os.sched_getaffinity(0))[:count])
    return set(list(cores.values())[:count])


def pin(cpus: set[int]) -> None:
    """Pins all threads of this process, and the processes that it starts later."""
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), cpus)


def median_ms(run: Callable[[], object], seconds: float) -> float:
    """The median time of runs that take so many seconds together, 5 at least."""
    times: list[float] = []
    run()
    while sum(times) < seconds or len(times) < 5:
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def compiled(module: nn.Module, batch: Batch, expected: Batch) -> dict[str, Callable[[], object]]:
    """Runs of the module in each mode of `torch.compile` that works here and gives the same results."""
    runs: dict[str, Callable[[], object]] = {}
    for name, chosen in COMPILED.items():
        try:
            function = torch.compile(module, options=chosen, dynamic=False)
            # Dynamo reads `freezing` from the global configuration, inductor from the options.
            with torch._inductor.config.patch(freezing=chosen["freezing"]):
                found = function(batch)
        except Exception as error:
            print(f"torch.compile, {name}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr)
            continue
        worst = max(largest_error(found[column], values) for column, values in expected.items())
        if worst <= TOLERANCE:
            runs[name] = partial(function, batch)
        else:
            print(f"torch.compile, {name}: left out, its error is {worst:.1e}", file=sys.stderr)
    return runs
