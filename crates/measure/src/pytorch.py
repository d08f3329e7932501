"""Times operators in PyTorch: the counterpart of `rewire bench --python`.

Reads a workload a line from stdin as JSON, with the sizes that `rewire bench` prints. Writes a line for each:
the median time of a run in milliseconds, null for what has no counterpart here, or a text with what went wrong.

Attention is the PyTorch version of TorchEasyRec's HSTU attention: queries, keys and values are padded to the longest
sequence. Lengths, indices and masks are there before a run begins.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-6
DROPOUT = 0.3
LEAST_RUNS = 3
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

Run = Callable[[], Tensor]


class Samples:
    """Where the rows of sequences are in tensors padded to the longest, and which pairs of rows a causal mask keeps."""

    def __init__(self, work: dict, device: str) -> None:
        lengths = torch.tensor(work["lengths"])
        self.total, self.count, self.longest = int(lengths.sum()), len(lengths), int(lengths.max())
        steps = torch.arange(self.longest)
        inside = steps[None, :] < lengths[:, None]
        self.places = inside.flatten().nonzero().flatten().to(device)
        self.mask = (inside[:, None, :] & (steps[None, :] <= steps[:, None])).unsqueeze(1).to(device)

    def padded(self, rows: Tensor) -> Tensor:
        """[total, heads, width] to [samples, heads, longest, width]."""
        padded = rows.new_zeros(self.count * self.longest, *rows.shape[1:]).index_copy(0, self.places, rows)
        return padded.view(self.count, self.longest, *rows.shape[1:]).transpose(1, 2)

    def jagged(self, padded: Tensor) -> Tensor:
        """[samples, heads, longest, width] to [total, heads, width]."""
        return padded.transpose(1, 2).flatten(0, 1).index_select(0, self.places)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, max_len: int) -> Tensor:
        """silu(q k^T / sqrt(d)) v / max_len."""
        q, k, v = map(self.padded, (q, k, v))
        weights = functional.silu(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])) / max_len
        return self.jagged((weights * self.mask.to(weights.dtype)) @ v)


class Drawn:
    """Random tensors with gradients, if a workload has a backward pass."""

    def __init__(self, work: dict, device: str) -> None:
        self.kind = {"dtype": DTYPES[work["dtype"]], "device": device, "requires_grad": work.get("backward", False)}
        self.all: list[Tensor] = []

    def __call__(self, *shape: int) -> Tensor:
        self.all.append(torch.randn(*shape, **self.kind))
        return self.all[-1]


def attention(work: dict, drawn: Drawn, device: str) -> Run:
    samples = Samples(work, device)
    heads, own, hidden = work["heads"], work["attn_dim"], work["hidden_dim"]
    q, k, v = (drawn(samples.total, heads, width) for width in (own, own, hidden))
    return lambda: samples.attention(q, k, v, work["max_len"])


def softmax_attention(work: dict, drawn: Drawn, device: str) -> Run:
    samples = Samples(work, device)
    heads, own, hidden = work["heads"], work["attn_dim"], work["hidden_dim"]
    q, k, v = (drawn(samples.total, heads, width) for width in (own, own, hidden))
    attend = functional.scaled_dot_product_attention
    return lambda: samples.jagged(attend(*map(samples.padded, (q, k, v)), is_causal=True))


def addmm(work: dict, drawn: Drawn, device: str) -> Run:
    m, k, n = work["m"], work["k"], work["n"]
    x, weight, bias = drawn(m, k), drawn(k, n), drawn(n)
    if not work.get("epilogue"):
        return lambda: torch.addmm(bias, x, weight)
    residual = drawn(m, n)
    return lambda: functional.silu(torch.addmm(bias, x, weight)) + residual


def layer_norm(work: dict, drawn: Drawn, device: str) -> Run:
    width = work["width"]
    x, weight, bias = drawn(work["rows"], width), drawn(width), drawn(width)
    return lambda: functional.layer_norm(x, (width,), weight, bias, EPS)


def gated(x: Tensor, u: Tensor, norm: tuple[Tensor, Tensor], concat: bool, train: bool) -> Tensor:
    y = u * functional.layer_norm(x, x.shape[-1:], *norm, EPS)
    y = torch.cat([u, x, y], dim=1) if concat else y
    return functional.dropout(y, DROPOUT, training=train)


def norm_mul_dropout(work: dict, drawn: Drawn, device: str) -> Run:
    rows, width = work["rows"], work["width"]
    x, u, norm = drawn(rows, width), drawn(rows, width), (drawn(width), drawn(width))
    return lambda: gated(x, u, norm, work.get("concat", False), work.get("train", False))


def pointwise(work: dict, drawn: Drawn, device: str) -> Run:
    x = drawn(work["rows"], work["width"])

    def run() -> Tensor:
        y = functional.silu(x * 1.5 + 0.25)
        return functional.relu(torch.tanh(y * x - 0.5)) + x

    return run


def embedding(work: dict, drawn: Drawn, device: str) -> Run:
    table, ids = drawn(work["table"], work["width"]), torch.randint(work["table"], (work["rows"],), device=device)
    return lambda: functional.embedding(ids, table)


def embedding_bag(work: dict, drawn: Drawn, device: str) -> Run:
    lengths = torch.tensor(work["lengths"], device=device)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    table = drawn(work["table"], work["width"])
    ids = torch.randint(work["table"], (int(offsets[-1]),), device=device)
    return lambda: functional.embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True)


def stu(work: dict, drawn: Drawn, device: str) -> Run:
    samples = Samples(work, device)
    heads, own, hidden, width = (work[name] for name in ("heads", "attn_dim", "hidden_dim", "embedding_dim"))
    widths = [heads * hidden, heads * hidden, heads * own, heads * own]

    def weights() -> list[Tensor]:
        shapes = [(width,), (width,), (sum(widths),), (width, sum(widths)), (heads * hidden,), (heads * hidden,)]
        return [drawn(*shape) for shape in [*shapes, (3 * heads * hidden, width)]]

    layers = [weights() for _ in range(work.get("layers", 1))]
    x = drawn(samples.total, width)

    def layer(x: Tensor, weights: list[Tensor]) -> Tensor:
        scale, shift, bias, uvqk, norm_scale, norm_shift, output = weights
        normed = functional.layer_norm(x, (width,), scale, shift, EPS)
        u, v, q, k = torch.addmm(bias, normed, uvqk).split(widths, dim=1)
        q, k, v = (part.view(samples.total, heads, -1) for part in (q, k, v))
        attended = samples.attention(q, k, v, work["max_len"]).flatten(1)
        return torch.addmm(x, gated(attended, functional.silu(u), (norm_scale, norm_shift), True, False), output)

    def run() -> Tensor:
        y = x
        for weights in layers:
            y = layer(y, weights)
        return y

    return run


OPERATORS = {
    "attention": attention,
    "softmax-attention": softmax_attention,
    "addmm": addmm,
    "layer-norm": layer_norm,
    "norm-mul-dropout": norm_mul_dropout,
    "pointwise": pointwise,
    "embedding": embedding,
    "embedding-bag": embedding_bag,
    "stu-layer": stu,
    "stu": stu,
}
# Sizes that none of these takes into account unless they are absent.
OTHERS = ("window", "context", "targets", "weights", "tables", "sums")


def prepared(work: dict, device: str) -> Run | None:
    """A run of the workload, with gradients of all tensors if it has a backward pass."""
    if work["op"] not in OPERATORS or any(work.get(name) for name in OTHERS) or work["dtype"] not in DTYPES:
        return None
    drawn = Drawn(work, device)
    run = OPERATORS[work["op"]](work, drawn, device)
    if not work.get("backward"):
        return run
    gradient = torch.randn_like(run())
    return lambda: torch.autograd.grad(run(), drawn.all, gradient)


def median_ms(run: Run, seconds: float, wait: Callable[[], None]) -> float:
    """The median time of runs that take this many seconds together."""
    times: list[float] = []
    run()
    wait()
    while sum(times) < seconds or len(times) < LEAST_RUNS:
        begun = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def timed(work: dict) -> float | str | None:
    device, wait = "cpu", lambda: None
    if work["device"] == "accelerator":
        if not torch.accelerator.is_available():
            return None
        device, wait = torch.accelerator.current_accelerator().type, torch.accelerator.synchronize
    try:
        with torch.set_grad_enabled(work.get("backward", False)):
            run = prepared(work, device)
            return run and median_ms(run, work["seconds"], wait)
    except RuntimeError as error:
        return str(error)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps(torch.__version__), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(json.loads(line))), flush=True)


main()
