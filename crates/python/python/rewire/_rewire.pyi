from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, overload

class ArrowTable(Protocol):
    """A table by Arrow's C stream interface: pyarrow, polars, pandas from 2.2 on."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class ArrowBatch(Protocol):
    """A part of a table by Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class RewireError(Exception):
    """What went wrong; `code` names the kind of error."""

    code: str

class ModelError(RewireError):
    """A model cannot be read, or there is no device as asked."""

class RequestError(RewireError):
    """Requests do not fit the model."""

class RunError(RewireError):
    """A run failed."""

class Ranker:
    """A ranking model, ready to run. Any number of threads rank with it at the same time; other threads go on meanwhile.

    `path` is a package, or a folder with `config.json` and `model.safetensors`. `kernel` says what it runs on: `auto` takes a hardware GPU
    where there is one, `wgpu` any, `cpu` none. `adapter` is a part of a GPU's name, driver or backend, or `#` and its number. `pipelines` is a folder
    that keeps compiled kernels for later starts.

    Raises `ModelError` where the model cannot be read or there is no device as asked, `ValueError` for another kernel.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        kernel: Literal["auto", "wgpu", "cpu"] = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
    ) -> None: ...
    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the order of logits."""

    @property
    def device(self) -> str:
        """Name of the GPU that it runs on, or `cpu`."""

    @property
    def schema(self) -> dict[Literal["contextual", "history", "candidates"], list[str]]:
        """The features that requests have, by group."""

    @overload
    def rank(self, requests: Mapping[str, Any] | str) -> dict[str, Any]: ...
    @overload
    def rank(self, requests: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
        """Ranks the candidates of a request, or of several, best first.

        A request is a mapping, or the same as JSON: `user`, the features of the user, and lists by feature in `history` and `candidates`.
        Its result has `user`, `candidates` with `item`, `position`, `score` and `logits` by task, and `dropped_events`. Raises `RequestError` or `RunError`.
        """

    def predict(self, table: ArrowTable | ArrowBatch, *, index: str | None = None) -> Predictions:
        """Scores all candidates of a table of requests, a row a request.

        Its columns are `user` (text or integers; rows are numbered without it), features of the user by their names, and lists `history.NAME` and
        `candidates.NAME`, or lists `NAME` in structs `history` and `candidates`. `index` names a column of the result with the row of a candidate's
        request. Raises `RequestError` or `RunError`.
        """

class Predictions:
    """Scores of candidates, a row each, in the order of the requests: `user`, `item`, `score` and `logit_TASK`.

    `pyarrow.table(predictions)` and `polars.DataFrame(predictions)` take it without a copy.
    """

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
