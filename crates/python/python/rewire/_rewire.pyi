from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, Self, TypeVar, overload

import numpy
from numpy.typing import ArrayLike, NDArray

Result = TypeVar("Result")
Extent = int | Size
DType = Literal["f32", "f16", "bf16", "i64", "i32", "u32", "bool", "rows8", "rows4", "rows2"] | type[numpy.generic] | numpy.dtype[Any]
Operand = Tensor | float | int
Kernel = Literal["auto", "wgpu", "cpu"]
Storage = Literal["f32", "f16", "bf16", "int8", "int4", "int2"]

__version__: str

class ArrowTable(Protocol):
    """A table with Arrow's C stream interface: pyarrow, polars, pandas from 2.2 on."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class ArrowBatch(Protocol):
    """A part of a table with Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class RewireError(Exception):
    """Base class of all errors; `code` names the kind of error."""

    code: str

class GraphError(RewireError):
    """A traced model is invalid: the message names the operator, its module and the argument."""

class ModelError(RewireError):
    """A model cannot be read, or the requested device is not available."""

class RequestError(RewireError):
    """Requests do not fit the model."""

class RunError(RewireError):
    """A run or a training failed."""

class Decoder:
    """A language model, ready to generate. Calls from several threads run one after the other.

    `path` is a folder of Hugging Face, with `config.json` and `model.safetensors` or its index, or a package of one. The other arguments are those of
    `Ranker`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> None: ...
    @staticmethod
    def from_bytes(
        data: bytes,
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> Decoder:
        """Loads a model from the bytes of a package. Raises `ModelError`."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the vocabulary."""

    @property
    def device(self) -> str:
        """Name of the GPU that it runs on, or `cpu`."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        items: Sequence[Sequence[int]] | None = None,
        num_beams: int = 10,
        max_new_tokens: int = 32,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[int] = (),
        on_token: Callable[[int, list[int]], bool | None] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """The results of each prompt, best first: `tokens`, `score`, the sum of their log-probabilities, and `items`, indices of the argument `items`.

        With `items`, token lists of any length, it searches them with `num_beams` beams. Without, it samples up to `max_new_tokens` tokens, the most
        likely ones at `temperature` 0. Prompts run together and do not change each other's results. After each token, `on_token` is called with the
        index of the prompt and the tokens of its best beam; if it returns `False`, that prompt ends without a result.
        """

    def close(self) -> None:
        """Frees the model; later calls raise `ValueError`. A `with` block closes the model at its end."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Ranker:
    """A loaded ranking model. Any number of threads may rank with it at the same time. The GIL is released during inference.

    `path` is a package, or a folder with `config.json` and `model.safetensors`. `kernel` selects the backend: `auto` uses a hardware
    GPU if one exists, `wgpu` any GPU, `cpu` none. `adapter` is a part of a GPU's name, driver or backend, or `#` and its number. `pipelines` is a
    folder that caches compiled kernels for later starts. `mapping` selects the files that are memory-mapped: `large` those of 4 MiB and more, which
    must be replaced by renaming others over them, `never` none, so that the model does not depend on its files. `kernel_for` maps patterns to
    backends: steps whose operator or module matches a pattern run there; `*` matches any text, and the last matching pattern counts. `dtype`, `tables`
    and `activations` are the storage types of weights, of embedding tables and of values between kernels; without them a model keeps its own.
    `table_placement` keeps embedding tables on the device or on the host; `auto` uses the host if they exceed the device's memory. `refining` defines
    when tilings of kernels are measured between calls: on GPUs of `unknown` families, `always` or `never`. Results do not change.

    Raises `ModelError` if the model cannot be read, the requested device is not available or a pattern matches no step, `ValueError` for an unknown
    kernel or mapping.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> None: ...
    @staticmethod
    def from_bytes(
        data: bytes,
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> Ranker:
        """Loads a model from the bytes of a package. Raises `ModelError`."""

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the order of logits."""

    @property
    def device(self) -> str:
        """Name of the GPU that it uses, or `cpu`."""

    @property
    def schema(self) -> dict[Literal["contextual", "history", "candidates"], list[str]]:
        """The features of requests, by group."""

    def describe(self) -> str:
        """A readable description of the model's inputs and outputs: features of requests with their ranges, tasks, tensors, and an example request as JSON."""

    @overload
    def rank(self, requests: Mapping[str, Any] | str) -> dict[str, Any]: ...  # type: ignore[overload-overlap]
    @overload
    def rank(self, requests: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
        """Ranks the candidates of a request, or of several, best first.

        A request is a mapping, or the same as JSON: `user`, the user features, and lists by feature in `history` and `candidates`.
        Lists may be numpy arrays, pandas or polars series, or pyarrow arrays. The result has `user`, `candidates` with `item`, `position`, `score` and `logits` by task, and `dropped_events`. Raises `RequestError` or `RunError`.
        """

    def predict(self, table: ArrowTable | ArrowBatch, *, index: str | None = None) -> Predictions:
        """Scores all candidates of a table of requests, one row per request.

        Its columns are `user` (strings or integers; without it, rows are numbered), user features by name, and lists `history.NAME` and
        `candidates.NAME`, or lists `NAME` in structs `history` and `candidates`. `index` names a result column with the row number of a candidate's
        request. Raises `RequestError` or `RunError`.
        """

    def close(self) -> None:
        """Frees the model; later calls raise `ValueError`. A `with` block closes the model at its end."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Predictor:
    """A loaded model that was imported from TorchEasyRec. Any number of threads may predict with it at the same time. The GIL is released during
    inference.

    Arguments and errors are those of `Ranker`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> None: ...
    @staticmethod
    def from_bytes(
        data: bytes,
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> Predictor:
        """Loads a model from the bytes of a package. Raises `ModelError`."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads: features by their full names."""

    @property
    def outputs(self) -> list[str]:
        """Names of the output columns, as in TorchEasyRec."""

    @property
    def list_outputs(self) -> list[str]:
        """Names of the output columns with one list per row: several classes, or vectors."""

    @property
    def item(self) -> str | None:
        """The column with the items of each row, if every item has a prediction (`dlrm_hstu`, `ultra_hstu`)."""

    @property
    def device(self) -> str:
        """Name of the GPU that it uses, or `cpu`."""

    def describe(self) -> str:
        """A readable description of the model's inputs and outputs: columns with their ranges, columns of predictions, tensors, and an example row as JSON."""

    def predict(self, table: ArrowTable | ArrowBatch | Mapping[str, Any], *, index: str | None = None) -> Predictions:
        """The predictions of the rows of a table, one row each, or one row per candidate.

        A table is an Arrow table, or a mapping with one column per feature: numpy arrays (with two axes, one list per row), pyarrow arrays, series, or
        lists of numbers, strings that are split as configured, None, lists, lists of lists, and dicts from ids to weights. Other columns are ignored.
        `index` names a result column with the table row of each prediction. Raises `RequestError` or `RunError`.
        """

    def close(self) -> None:
        """Frees the model; later calls raise `ValueError`. A `with` block closes the model at its end."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Evaluator:
    """Evaluates an imported model: the losses and metrics of its configuration, with the reference's names. `rewire.tables.evaluate` evaluates a table.

    Arguments and errors are those of `Ranker`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> None: ...
    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads: features, labels and groups."""

    @property
    def negatives(self) -> list[str]:
        """Names of the columns of sampled items that it reads; empty for models without them."""

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""

    @property
    def batch_size(self) -> int:
        """Batch size in rows: the `eval_batch_size` of the configuration, or else its `batch_size`."""

    def begin(self) -> Evaluation:
        """An evaluation without batches."""

class Evaluation:
    """An evaluation, batch by batch."""

    @property
    def device(self) -> str:
        """Name of the GPU that it uses, or `cpu`."""

    def add(
        self, batch: ArrowTable | ArrowBatch | Mapping[str, Any], *, negatives: ArrowTable | ArrowBatch | Mapping[str, Any] | None = None
    ) -> dict[str, float]:
        """Adds a batch, a table as for `Predictor.predict` in one piece, and returns its losses. `negatives` has one row with the sampled items of the
        batch. Raises `RequestError` or `RunError`."""

    def result(self) -> dict[str, Any]:
        """`metrics` and `losses` of all batches by name, None if undefined, and the number of `rows`."""

def load(
    path: str | PathLike[str],
    *,
    kernel: Kernel = "auto",
    adapter: str | None = None,
    pipelines: str | PathLike[str] | None = None,
    mapping: Literal["large", "never"] = "large",
    kernel_for: dict[str, Kernel] | None = None,
    dtype: Storage | None = None,
    tables: Storage | None = None,
    activations: Storage | None = None,
    table_placement: Literal["auto", "device", "host"] = "auto",
    refining: Literal["unknown", "always", "never"] = "unknown",
) -> Ranker | Predictor:
    """Loads the model of a folder or package, of either kind."""

class Predictions:
    """A table: scores of candidates, in the order of the requests (`user`, `item`, `score` and `logit_TASK`), or the columns of an imported model.

    `pyarrow.table(predictions)` and `polars.DataFrame(predictions)` convert it without a copy. `predictions[name]` is a numpy array, with two axes
    if rows hold lists of equal length; lists of different lengths are a list of arrays.
    """

    def __len__(self) -> int: ...
    def keys(self) -> list[str]:
        """Names of the columns."""

    def __getitem__(self, name: str) -> NDArray[Any] | list[NDArray[Any]]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class Size:
    """A dynamic extent, known only in a run. Sums, and integer multiples, are extents too."""

    def __add__(self, other: Extent) -> Size: ...
    def __radd__(self, other: Extent) -> Size: ...
    def __mul__(self, factor: int) -> Size: ...
    def __rmul__(self, factor: int) -> Size: ...

class Scope:
    """A position in the module tree of a model during tracing. With `train`, dropout is active.

    Errors are raised when the scope is finished; they name the operator, the module and the argument.

    >>> scope = rewire.Scope()
    >>> x = scope.input("x", "f32", [scope.size("rows"), 2])
    >>> weight = scope.parameter("weight", [2, 3])
    >>> model = rewire.Model(scope.finish({"y": (x @ weight).silu()}), {"weight": numpy.ones((2, 3))}, kernel="cpu")
    >>> model.session().run({"x": [[0.5, -0.5]]})["y"].shape
    (1, 3)
    """

    def __init__(self, *, train: bool = False) -> None: ...
    @property
    def path(self) -> str:
        """The module path, empty at top level."""

    def module(self, name: str, body: Callable[[Scope], Result]) -> Result:
        """Calls `body` with the scope of the module `name` within this one and returns its result. Parameter names start with the module's name."""

    def size(self, name: str) -> Size:
        """A dynamic size, known only in a run: a whole extent of an input. The same name returns the same size."""

    def input(self, name: str, dtype: DType, shape: Sequence[Extent]) -> Tensor:
        """An input tensor of a run."""

    def parameter(self, name: str, shape: Sequence[Extent], dtype: DType = "f32") -> Tensor:
        """A tensor that is set when the model is loaded. The same name returns the same tensor."""

    def state(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A tensor that the session keeps from run to run, initially zeros."""

    def set_state(self, name: str, value: Tensor) -> None:
        """Sets the value of the state after a run."""

    def lengths(self, name: str, batch: Extent) -> Ragged:
        """Lengths of sequences, `[batch]`, an input of a run; negative lengths are an error of the run."""

    def dense(self, batch: Extent, length: int) -> Ragged:
        """Samples of equal length."""

    def constant(self, values: ArrayLike, dtype: DType | None = None) -> Tensor:
        """An array that is a constant of the model."""

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor: ...
    def stack(self, parts: Sequence[Tensor], axis: int) -> Tensor: ...
    def top_k(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The `k` largest values of every row of `[rows, columns]` in descending order, and their columns."""

    def top_k_unseen(self, x: Tensor, k: int, seen: Tensor, rows: Ragged) -> tuple[Tensor, Tensor]:
        """`top_k` without the columns `seen` of each row, such as the items of a user's history, which `rows` divides among the rows of `x`."""

    def dropout(self, x: Tensor, ratio: float) -> Tensor:
        """`x`, or in training a random part of its elements, drawn from the input `seed` of a run."""

    def finish(self, outputs: Mapping[str, Tensor]) -> Graph:
        """The model with these outputs. Raises `GraphError` for the first error. The scope cannot be used afterwards."""

class Tensor:
    """A symbolic value. Python operators and the methods below return new ones; unless noted, they are elementwise and broadcast as in numpy.

    `&`, `|` and `~` are logical on bools and bitwise on integers; `==` compares the objects, `equal` the elements. A shape error is raised by the call
    that causes it.
    """

    __array_ufunc__: None

    @property
    def shape(self) -> tuple[Extent, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __add__(self, other: Operand) -> Tensor: ...
    def __radd__(self, other: float) -> Tensor: ...
    def __sub__(self, other: Operand) -> Tensor: ...
    def __rsub__(self, other: float) -> Tensor: ...
    def __mul__(self, other: Operand) -> Tensor: ...
    def __rmul__(self, other: float) -> Tensor: ...
    def __truediv__(self, other: Operand) -> Tensor: ...
    def __rtruediv__(self, other: float) -> Tensor: ...
    def __mod__(self, other: Operand) -> Tensor:
        """`a - b * floor(a / b)`"""

    def __pow__(self, other: Operand, modulo: None = None) -> Tensor: ...
    def __matmul__(self, other: Tensor) -> Tensor: ...
    def __and__(self, other: Operand) -> Tensor: ...
    def __or__(self, other: Operand) -> Tensor: ...
    def __lt__(self, other: Operand) -> Tensor: ...
    def __le__(self, other: Operand) -> Tensor: ...
    def __gt__(self, other: Operand) -> Tensor: ...
    def __ge__(self, other: Operand) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def equal(self, other: Operand) -> Tensor: ...
    def not_equal(self, other: Operand) -> Tensor: ...
    def minimum(self, other: Operand) -> Tensor: ...
    def maximum(self, other: Operand) -> Tensor: ...
    def exp(self) -> Tensor: ...
    def log(self) -> Tensor: ...
    def sqrt(self) -> Tensor: ...
    def rsqrt(self) -> Tensor: ...
    def sigmoid(self) -> Tensor: ...
    def silu(self) -> Tensor: ...
    def softplus(self) -> Tensor: ...
    def relu(self) -> Tensor: ...
    def tanh(self) -> Tensor: ...
    def erf(self) -> Tensor: ...
    def sin(self) -> Tensor: ...
    def cos(self) -> Tensor: ...
    def floor(self) -> Tensor: ...
    def ceil(self) -> Tensor: ...
    def square(self) -> Tensor: ...
    def gelu(self) -> Tensor:
        """`0.5 x (1 + erf(x / sqrt 2))`"""

    def detach(self) -> Tensor:
        """The same values, but without a gradient."""

    def cast(self, dtype: DType) -> Tensor: ...
    def select(self, a: Tensor, b: Tensor) -> Tensor:
        """`a` where this is true, else `b`."""

    def sum(self, axis: int) -> Tensor:
        """The sum along an axis, which is kept with extent 1, as for `mean`, `max` and `min`."""

    def mean(self, axis: int) -> Tensor: ...
    def max(self, axis: int) -> Tensor: ...
    def min(self, axis: int) -> Tensor: ...
    def softmax(self, axis: int) -> Tensor: ...
    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x weight^T + bias`, with a weight `[out, in]`."""

    def layer_norm(self, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor: ...
    def rms_norm(self, weight: Tensor, eps: float = 1e-6) -> Tensor: ...
    def reshape(self, shape: Sequence[Extent]) -> Tensor: ...
    def broadcast(self, shape: Sequence[Extent]) -> Tensor: ...
    def permute(self, axes: Sequence[int]) -> Tensor: ...
    def transpose(self, a: int, b: int) -> Tensor: ...
    def slice(self, axis: int, start: int, len: int) -> Tensor: ...
    def gather(self, index: Tensor) -> Tensor:
        """Gathers rows by number."""

    def jagged_concat(self, rows: Ragged, other: Tensor, other_rows: Ragged) -> tuple[Tensor, Ragged]:
        """For every sample the rows of this, followed by those of `other`; also returns the division into samples."""

    def jagged_head(self, rows: Ragged, kept: Ragged) -> Tensor:
        """The first `kept` rows of every sample. A run in which a sample has fewer is an error, as for `jagged_tail`."""

    def jagged_tail(self, rows: Ragged, kept: Ragged) -> Tensor: ...
    def jagged_broadcast(self, rows: Ragged) -> Tensor:
        """Repeats one row per sample for each row of the sample."""

    def jagged_sum(self, rows: Ragged) -> Tensor:
        """The sum of every sample's rows."""

    def scores(self, k: Tensor, rows: Ragged, keys: Ragged) -> Tensor:
        """Products of queries `[total, heads, width]` and keys of the same sample: one element per pair. Functions of pairs are elementwise;
        `softmax_scores` and `weighted_sum` reduce them, in one kernel with everything in between."""

    def softmax_scores(self, rows: Ragged, keys: Ragged, keep: Tensor | None = None) -> Tensor:
        """Softmax over the keys of every query for which `keep` is true."""

    def weighted_sum(self, v: Tensor, rows: Ragged, keys: Ragged) -> Tensor:
        """For every query the sum of values `[total, heads, width]`, each weighted with the element of its pair."""

class Ragged:
    """The division of rows into samples."""

    @property
    def batch(self) -> Extent:
        """Number of samples."""

    @property
    def total(self) -> Extent:
        """Number of rows of all samples."""

    @property
    def position(self) -> Tensor:
        """The position of every row in its sample, `i32`."""

    def plus(self, other: Ragged) -> Ragged:
        """The sum of both lengths in every sample."""

    def row_index(self, keys: Ragged, heads: int) -> Tensor:
        """For every pair the position of its query in the sample; `key_index` is that of its key."""

    def key_index(self, keys: Ragged, heads: int) -> Tensor: ...
    def per_row(self, keys: Ragged, heads: int, values: Tensor) -> Tensor:
        """For every pair the value of its query; `per_key` is that of its key."""

    def per_key(self, keys: Ragged, heads: int, values: Tensor) -> Tensor: ...

class Graph:
    """A traced model; `str` lists its operators."""

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""

    def differentiate(self, output: str, *, of: Sequence[str]) -> Graph:
        """The same model with the gradient of a scalar output for each of these parameters and inputs, as outputs `grad.NAME`.

        Raises `GraphError`.
        """

    def __len__(self) -> int: ...

class Model:
    """A loaded model, from a traced graph or a file: a package, a model folder, an archive of `torch.export.save` (.pt2) or an ONNX file. Any number
    of threads may share it, each with a session.

    `parameters` are arrays by name, or the path of a safetensors file. Arrays are converted to the types of the parameters if only the precision of floats
    is lost. The other options are those of `Ranker`. Raises `ModelError`, and `GraphError` if the graph cannot be lowered.
    """

    def __init__(
        self,
        graph: Graph | str | PathLike[str],
        parameters: Mapping[str, ArrayLike] | str | PathLike[str] | None = None,
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> None: ...
    @property
    def device(self) -> str:
        """Name of the GPU that it uses, or `cpu`."""

    @property
    def kernels(self) -> list[str]:
        """Names of its kernels in order: the first operator of each, and the operators fused into it."""

    @property
    def parameters(self) -> dict[str, str]:
        """Types of its parameters by name."""

    @property
    def inputs(self) -> dict[str, str]:
        """Types of its inputs by name."""

    @staticmethod
    def from_bytes(
        data: bytes,
        *,
        kernel: Kernel = "auto",
        adapter: str | None = None,
        pipelines: str | PathLike[str] | None = None,
        mapping: Literal["large", "never"] = "large",
        kernel_for: dict[str, Kernel] | None = None,
        dtype: Storage | None = None,
        tables: Storage | None = None,
        activations: Storage | None = None,
        table_placement: Literal["auto", "device", "host"] = "auto",
        refining: Literal["unknown", "always", "never"] = "unknown",
    ) -> Model:
        """Loads a model from the bytes of a package, an archive of `torch.export.save` or an ONNX file. Raises `ModelError`."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a model from a file on numpy arrays, PyTorch tensors, or others that export DLPack, by name. Results are PyTorch tensors if an input is
        one, and numpy arrays otherwise. They include buffers and inputs that the model changes; buffers keep their values for the next run. Raises
        `RunError`."""

    def session(self) -> Session:
        """Creates a session, which runs the model for one caller at a time."""

    def update(self, parameters: Mapping[str, ArrayLike]) -> None:
        """Replaces parameters atomically for all later runs. Raises `ModelError`."""

    def close(self) -> None:
        """Frees the model; later calls raise `ValueError`. Its sessions keep it. A `with` block closes the model at its end."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

class Session:
    """Runs a model and reuses its memory from run to run. Threads that share one wait for each other."""

    def run(self, inputs: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Returns the outputs by name. `bf16` is passed as `float32`. Raises `RunError`, and `TypeError` or `ValueError` for an array that does not fit its input."""

    def state(self, name: str) -> NDArray[Any]:
        """The value of a state. Raises `RunError`."""

    def set_state(self, name: str, value: ArrayLike) -> None:
        """Sets a state for the next run. Raises `RunError`."""

def package(
    model: str | PathLike[str],
    out: str | PathLike[str],
    *,
    mapping: Literal["large", "never"] = "large",
    dtype: Storage | None = None,
    tables: Storage | None = None,
    activations: Storage | None = None,
) -> None:
    """Writes a model as a package: one file with its compiled plan and its weights, stored as these types; without them a model keeps its own.

    `model` is a folder, another package, an archive of `torch.export.save` or an ONNX file. Raises `ModelError` and `OSError`.
    """

def train(options: dict[str, Any]) -> dict[str, Any]:
    """Trains with the options of `rewire.train`."""
