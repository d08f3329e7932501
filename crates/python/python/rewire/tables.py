"""Scores pyarrow tables and copies columns to the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ._rewire import Evaluator, Predictor, Ranker, load

if TYPE_CHECKING:
    from ._rewire import Kernel

INDEX = "__request"


def predict(model: Ranker | Predictor, table: pa.Table, columns: Sequence[str] = ()) -> pa.Table:
    """The scores of all candidates of `table`, one row each, or the predictions of its rows, in the format of `rewire predict`.

    `columns` are copied to the result: one value per request, or, if candidates have rows, a list with one value per candidate.
    """
    scores = pa.table(model.predict(table, index=INDEX))
    requests = scores[INDEX]
    scores = scores.drop_columns([INDEX])
    for name in columns:
        column = _column(table, name)
        is_of_candidates = _has_candidates(model) and _is_list(column.type)
        scores = scores.append_column(name, _by_candidate(column, requests, name) if is_of_candidates else column.take(requests))
    return scores


def _has_candidates(model: Ranker | Predictor) -> bool:
    return isinstance(model, Ranker) or model.item is not None


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or a field of a struct by its dotted name."""
    struct, _, field = name.partition(".")
    if name in table.column_names or struct not in table.column_names:
        return table[name]
    return pc.struct_field(table[struct], field)


def _by_candidate(column: pa.ChunkedArray, requests: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    parents = pc.list_parent_indices(column.combine_chunks())
    if not parents.equals(requests.combine_chunks().cast(parents.type)):
        raise ValueError(f"column `{name}`: expected one value per candidate in each list")
    return pa.chunked_array([pc.list_flatten(column.combine_chunks())])


def evaluate(
    evaluator: Evaluator, table: pa.Table, negatives: pa.Table | None = None, batch_size: int | None = None
) -> dict[str, Any]:
    """The losses and metrics of a model on `table`, like `rewire eval`: `metrics` and `losses` by name, and the number of `rows`.

    `negatives` has one row of sampled items per batch. The default of `batch_size` is the batch size of the configuration.
    """
    evaluation = evaluator.begin()
    size = batch_size or evaluator.batch_size
    for number, start in enumerate(range(0, table.num_rows, size)):
        sampled = None if negatives is None else negatives.slice(number, 1).combine_chunks()
        evaluation.add(table.slice(start, size).combine_chunks(), negatives=sampled)
    return evaluation.result()


def fields(model: Ranker | Predictor, table: pa.Schema, columns: Sequence[str] = ()) -> pa.Schema:
    """The columns of the result of `predict` for tables with the columns of `table`."""
    if isinstance(model, Ranker):
        position = table.get_field_index("user")
        is_number = position < 0 or pa.types.is_integer(table.field(position).type)
        result = [
            pa.field("user", pa.int64() if is_number else pa.large_string()),
            pa.field("item", pa.int64()),
            pa.field("score", pa.float64()),
            *(pa.field(f"logit_{task}", pa.float32()) for task in model.tasks),
        ]
    else:
        lists = set(model.list_outputs)
        result = [pa.field(name, pa.large_list(pa.float32()) if name in lists else pa.float32()) for name in model.outputs]
    for name in columns:
        kind = _column(table.empty_table(), name).type
        result.append(pa.field(name, kind.value_type if _has_candidates(model) and _is_list(kind) else kind))
    return pa.schema(result)


@lru_cache(maxsize=4)
def model_of(path: str, kernel: Kernel) -> Ranker | Predictor:
    """The model, loaded once per process."""
    return load(path, kernel=kernel)
