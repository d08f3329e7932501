"""Training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from ._rewire import train as _train
from .distributed import Collectives

if TYPE_CHECKING:
    from ._rewire import Kernel

Path = str | PathLike[str]


def train(
    config: Path | None,
    data: Path | Sequence[Path],
    out: Path,
    *,
    model: Path | None = None,
    checkpoint: Path | None = None,
    fresh: bool = False,
    negatives: Path | None = None,
    eval: Path | None = None,
    eval_negatives: Path | None = None,
    eval_every: int | None = None,
    metric: str | None = None,
    stop_after: int | None = None,
    tensorboard: Path | None = None,
    profile: Path | None = None,
    resume: bool = False,
    allow_changes: bool = False,
    save_every: int = 1000,
    seed: int | None = None,
    export_dcp: Path | None = None,
    memory_limit: int | None = None,
    tables_folder: Path | None = None,
    delta_every: int | None = None,
    ranks: int | None = None,
    rank_timeout: float = 600.0,
    collectives: Collectives | None = None,
    progress: Callable[[dict[str, Any]], object] | None = None,
    kernel: Kernel = "auto",
    adapter: str | None = None,
    mapping: Literal["large", "never"] = "large",
    kernel_for: dict[str, Kernel] | None = None,
) -> dict[str, Any]:
    """Trains a model on files and writes the folder `out`, exactly as `rewire train` does.

    `config` is a TorchEasyRec pipeline, a file that ends in `.config`, or the training configuration of `model` as JSON. With neither, the built-in
    configuration and model are used; an imported pipeline as `model` has its own. Options and results are those of the program.

    `ranks` trains as this number of ranks in this process. `collectives`, such as `rewire.distributed.torch()`, trains as one rank of several processes;
    the first rank writes `out`. `progress` is called in the first rank after each step, with `step`, `loss`, `losses` and `lr`; an exception ends the
    training. Evaluations are logged to the logger `rewire`. The GIL is released, and an interrupt ends the training before its next batch.

    Returns the summary of the training: `steps`, `seconds`, `users_per_second`, `device`, `loss`, `metrics` on `eval`, `auc`, and `best` with `metric`.
    Raises `RunError`.
    """
    options = locals()
    is_pipeline = config is not None and fspath(config).endswith(".config")
    options["pipeline"], options["config"] = (config, None) if is_pipeline else (None, config)
    options["data"] = [data] if isinstance(data, (str, PathLike)) else list(data)
    return _train(options)
