"""Scores of tables of pyarrow, with columns that are carried along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ._rewire import Ranker

INDEX = "__request"


def predict(ranker: Ranker, table: pa.Table, columns: Sequence[str] = ()) -> pa.Table:
    """The scores of all candidates of `table`, a row each, as `rewire predict` writes them.

    `columns` are carried along: a value a request, or a list with a value a candidate.
    """
    scores = pa.table(ranker.predict(table, index=INDEX))
    requests = scores[INDEX]
    scores = scores.drop_columns([INDEX])
    for name in columns:
        scores = scores.append_column(name, _by_candidate(_column(table, name), requests, name))
    return scores


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or a field of a struct by its dotted name."""
    struct, _, field = name.partition(".")
    if name in table.column_names or struct not in table.column_names:
        return table[name]
    return pc.struct_field(table[struct], field)


def _by_candidate(column: pa.ChunkedArray, requests: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return column.take(requests)
    parents = pc.list_parent_indices(column.combine_chunks())
    if not parents.equals(requests.combine_chunks().cast(parents.type)):
        raise ValueError(f"column `{name}`: expected a value a candidate in each list")
    return pa.chunked_array([pc.list_flatten(column.combine_chunks())])


def fields(ranker: Ranker, table: pa.Schema, columns: Sequence[str] = ()) -> pa.Schema:
    """The columns of what `predict` returns for tables with the columns of `table`."""
    position = table.get_field_index("user")
    is_number = position < 0 or pa.types.is_integer(table.field(position).type)
    result = [
        pa.field("user", pa.int64() if is_number else pa.large_string()),
        pa.field("item", pa.int64()),
        pa.field("score", pa.float64()),
        *(pa.field(f"logit_{task}", pa.float32()) for task in ranker.tasks),
    ]
    for name in columns:
        kind = _column(table.empty_table(), name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        result.append(pa.field(name, kind.value_type if is_list else kind))
    return pa.schema(result)


@lru_cache(maxsize=4)
def ranker_of(model: str, kernel: str) -> Ranker:
    """The model, loaded once a process."""
    return Ranker(model, kernel=kernel)
