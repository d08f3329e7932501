"""Scores tables of any size with Ray.

    scores = rewire.ray.predict(ray.data.read_parquet("users.parquet"), "model.rewire", columns=["country"], workers=8)
    scores.write_parquet("scores")
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from ray.data import Dataset

from ._rewire import load
from .tables import predict as predict_table


class Scorer:
    """A worker with a loaded model."""

    def __init__(self, model: str, columns: Sequence[str], kernel: str) -> None:
        self.model = load(model, kernel=kernel)
        self.columns = columns

    def __call__(self, table: pa.Table) -> pa.Table:
        return predict_table(self.model, table, self.columns)


def predict(
    dataset: Dataset,
    model: str,
    *,
    columns: Sequence[str] = (),
    kernel: str = "auto",
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
