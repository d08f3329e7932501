"""Scores tables of any size with Ray, and trains as ranks on its workers.

    scores = rewire.ray.predict(ray.data.read_parquet("users.parquet"), "model.rewire", columns=["country"], workers=8)
    scores.write_parquet("scores")

    rewire.ray.train("dlrm.config", "/shared/data.parquet", "/shared/trained", workers=4, gpus=1)
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
from ray.data import Dataset

from ._rewire import load
from .distributed import torch as torch_collectives
from .tables import predict as predict_table
from .training import train as train_rank

if TYPE_CHECKING:
    from ._rewire import Kernel


class Scorer:
    """A worker with a loaded model."""

    def __init__(self, model: str, columns: Sequence[str], kernel: Kernel) -> None:
        self.model = load(model, kernel=kernel)
        self.columns = columns

    def __call__(self, table: pa.Table) -> pa.Table:
        return predict_table(self.model, table, self.columns)


def predict(
    dataset: Dataset,
    model: str,
    *,
    columns: Sequence[str] = (),
    kernel: Kernel = "auto",
    workers: int = 1,
    gpus: float = 0,
    batch_size: int = 256,
) -> Dataset:
    """The scores of all candidates of `dataset`, one row each, or the predictions of an imported model, in the format of `rewire predict`.

    `model` is a package or a folder that every worker reads once. Each of `workers` uses `gpus` GPUs of the cluster, or only cores, and scores
    `batch_size` requests at a time. Other workers repeat the work of one that fails, with the same result.
    """
    # A worker processes one block, and Ray joins many small files into one.
    shared = dataset.repartition(target_num_rows_per_block=batch_size)
    return shared.map_batches(
        Scorer,
        fn_constructor_args=(model, list(columns), kernel),
        batch_format="pyarrow",
        batch_size=batch_size,
        concurrency=workers,
        num_gpus=gpus,
    )


@ray.remote
class Rank:
    """A worker that is a rank of a training."""

    def address(self) -> str:
        """The address at which the ranks find each other, if this is the first one."""
        host = ray.util.get_node_ip_address()
        with socket.socket() as free:
            free.bind((host, 0))
            return f"tcp://{host}:{free.getsockname()[1]}"

    def train(self, address: str, rank: int, ranks: int, timeout: float, options: dict[str, Any]) -> dict[str, Any]:
        import torch.distributed as distributed

        distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
        try:
            return train_rank(**options, collectives=torch_collectives(timeout))
        finally:
            distributed.destroy_process_group()


def train(
    config: str | PathLike[str] | None,
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    workers: int,
    cpus: float = 1,
    gpus: float = 0,
    rank_timeout: float = 600.0,
    **options: Any,
) -> dict[str, Any]:
    """Trains as `workers` ranks, each on its own worker with `cpus` cores and `gpus` GPUs, which communicate by `torch.distributed`.

    All workers read the same paths, and the first one writes `out`: use storage that the nodes share. Other options, and the returned summary, are those of
    `rewire.train`. If a worker fails, all of them end.
    """
    options |= {"config": config, "data": data, "out": out}
    ranks = [Rank.options(num_cpus=cpus, num_gpus=gpus).remote() for _ in range(workers)]  # type: ignore[attr-defined]
    try:
        address = ray.get(ranks[0].address.remote())
        trained = [worker.train.remote(address, rank, workers, rank_timeout, options) for rank, worker in enumerate(ranks)]
        return ray.get(trained)[0]
    finally:
        for worker in ranks:
            ray.kill(worker)
