"""Scores tables of any size with Spark.

    scores = rewire.spark.predict(spark.read.parquet("users.parquet"), "model.rewire", columns=["country"])
    scores.write.parquet("scores.parquet")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from .tables import fields, predict as predict_table, model_of

if TYPE_CHECKING:
    from ._rewire import Kernel


def predict(frame: DataFrame, model: str, *, columns: Sequence[str] = (), kernel: Kernel = "auto") -> DataFrame:
    """The scores of all candidates of `frame`, one row each, or the predictions of an imported model, in the format of `rewire predict`.

    `model` is a package or a folder that every worker reads once. `columns` are copied to the result. Spark reruns a failed task elsewhere, with the
    same result.
    """
    schema = fields(model_of(model, "cpu"), to_arrow_schema(frame.schema), columns)
    # Spark only supports strings and lists with 32-bit offsets.
    short = {pa.large_string(): pa.string(), pa.large_list(pa.float32()): pa.list_(pa.float32())}
    schema = pa.schema([field.with_type(short.get(field.type, field.type)) for field in schema])
    columns, names = list(columns), frame.columns

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = model_of(model, kernel)
        for batch in batches:
            table = pa.Table.from_batches([batch]).rename_columns(names)
            yield from predict_table(loaded, table, columns).cast(schema).to_batches()

    # Spark interprets a name with a dot as a struct field.
    numbered = frame.toDF(*(f"column{at}" for at in range(len(names))))
    return numbered.mapInArrow(score, from_arrow_schema(schema))
