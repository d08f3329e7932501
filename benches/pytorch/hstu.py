"""Times training steps of dlrm_hstu on the CPU, in rewire and in PyTorch, once their losses agree.

    python hstu.py FOLDER --rewire PROGRAM [--threads 2]

The pipeline is that of `tests/tzrec/dlrm_hstu_train`, with Adagrad for tables, cross entropies for both tasks of clicks,
128 rows a batch and its rows in random order. In PyTorch histories and candidates are padded to the longest of all; ids,
labels and lengths are tensors before a step begins. Needs numpy, torch, safetensors and pyarrow.
"""

import argparse
import json
import math
import re
import statistics
import sys
import time
from pathlib import Path

import malloc

if __name__ == "__main__":
    malloc.keep_memory()

import numpy as np
import pyarrow.compute as compute
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import families
from models import Batch
from timing import pin, separate_cores
from training import ACCUMULATOR, COMPARED, EPS, LONG, LOSS_TOLERANCE, MOST_ERRORS, RATE, SHORT, error

GOLDEN = Path(__file__).resolve().parents[2] / "tests/tzrec/dlrm_hstu_train"
ROWS, BATCHES = 128, LONG
WIDTH, HEADS, HEAD, LAYERS, CONTEXT = 16, 2, 8, 2, 2
POSITIONS, TIMES, INCREMENT, MOST = 64, 32, 60.0, 64
PERIODS, UNITS = ((3600.0, 86400.0), (24.0, 7.0))
BITS = [1 << bit for bit in range(8)]
TASK_BITS = [1, 2]
USER = ("user_id", "user_active_degree")
BUFFERS = ("_period_units", "_units_per_period", "_combined_action_weights")
OPTIMIZER = f"adagrad_optimizer {{ initial_accumulator_value: {ACCUMULATOR}"
# A task with a softmax over the examples of a session, and what takes its place.
JRC = re.compile(r"num_class: 2\s*losses \{\s*jrc_loss \{.*?\}\s*\}\s*metrics \{\s*grouped_auc \{.*?\}\s*\}", re.DOTALL)
ENTROPY = "losses { binary_cross_entropy {} } metrics { auc {} }"


def make(folder: Path) -> None:
    """Writes pipelines, weights and a table of all batches."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(7)
    table = pq.read_table(GOLDEN / "data.parquet")
    passes = math.ceil(ROWS * BATCHES / table.num_rows)
    order = np.concatenate([noise.permutation(table.num_rows) for _ in range(passes)])
    for name in USER:
        table = table.set_column(table.column_names.index(name), name, compute.fill_null(table[name], 0))
    pq.write_table(table.take(order[: ROWS * BATCHES]), folder / "train.parquet")
    text = (GOLDEN / "pipeline.config").read_text()
    for old, new in {"rowwise_adagrad_optimizer {": OPTIMIZER, "batch_size: 16": f"batch_size: {ROWS}"}.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text, replaced = JRC.subn(ENTROPY, text)
    assert replaced == 1
    for steps in (COMPARED, SHORT, LONG):
        (folder / f"train_{steps}.config").write_text(text.replace("num_steps: 12", f"num_steps: {steps}"))
    weights = load_file(GOLDEN / "model.safetensors")
    for part in ("weight", "bias"):
        name = f"model._multitask_module.linear.{part}"
        weights[name] = weights[name][[0, 1, 3]]
    save_file(weights, folder / "model.safetensors")


def load(folder: Path, dtype: torch.dtype) -> list[Batch]:
    """The batches, padded."""
    table = pq.read_table(folder / "train.parquet")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    batches = []
    for begin in range(0, ROWS * BATCHES, ROWS):
        def padded(name: str, kind: torch.dtype) -> Tensor:
            rows = [torch.tensor(row, dtype=kind) for row in columns[name][begin : begin + ROWS]]
            return pad_sequence(rows, batch_first=True)

        def lengths(name: str) -> Tensor:
            return torch.tensor([len(row) for row in columns[name][begin : begin + ROWS]])

        def whole(name: str, size: int, kind: torch.dtype) -> Tensor:
            part = padded(name, kind)
            return functional.pad(part, (0, size - part.shape[1]))

        most = [max(map(len, columns[name])) for name in ("uih_seq__video_id", "cand_seq__video_id")]
        actions = whole("cand_seq__action_weight", most[1], torch.long)
        batches.append(
            {name: torch.tensor(columns[name][begin : begin + ROWS]) for name in USER}
            | {
                "history": whole("uih_seq__video_id", most[0], torch.long),
                "candidates": whole("cand_seq__video_id", most[1], torch.long),
                "actions": whole("uih_seq__action_weight", most[0], torch.float32).long(),
                "history_time": whole("uih_seq__action_timestamp", most[0], torch.float32),
                "candidate_time": whole("cand_seq__query_time", most[1], torch.float32),
                "lengths": lengths("uih_seq__video_id"),
                "counts": lengths("cand_seq__video_id"),
                "clicks": torch.stack([(actions & bit != 0).to(dtype) for bit in TASK_BITS], -1),
                "watched": whole("cand_seq__watch_time", most[1], torch.float32).to(dtype),
            }
        )
    return batches


class DlrmHstu(nn.Module):
    """The model, with parameters by the reference's names, `/` in place of dots."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        super().__init__()
        weights = load_file(folder / "model.safetensors")
        kept = {name: weight for name, weight in weights.items() if not name.endswith(BUFFERS)}
        named = {name.replace(".", "/"): nn.Parameter(weight.to(dtype)) for name, weight in kept.items()}
        self.weights = nn.ParameterDict(named)
        self.dtype = dtype

    def get(self, name: str) -> Tensor:
        return self.weights[f"model.{name}".replace(".", "/")]

    def rows(self, table: str, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.get(f"embedding_group.{table}.weight"), sparse=True)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.get(f"{name}.weight"), self.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.get(f"{name}.weight"), self.get(f"{name}.bias"))

    def swish_mlp(self, name: str, x: Tensor) -> Tensor:
        x = self.linear(f"{name}.0", x)
        x = x * self.norm(f"{name}.1", x).sigmoid()
        return self.norm(f"{name}.3", self.linear(f"{name}.2", x))

    def tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Tokens [B, N, W] of context, history and candidates, and the rows of the candidates' items."""
        path = "_hstu_transducer._input_preprocessor"
        bags = "emb_impls.__BASE__.ebc.embedding_bags"
        context = torch.stack([self.rows(f"{bags}.{name}_emb", batch[name]) for name in USER], 1)
        context = torch.einsum("bcd,cde->bce", context, self.get(f"{path}._batched_contextual_linear_weights"))
        context = context + self.get(f"{path}._batched_contextual_linear_bias")[:, 0]
        ids = torch.cat([batch["history"], batch["candidates"]], 1)
        items = self.rows("seq_emb_impls.__BASE__.ec_dict.16.embeddings.video_id_emb", ids)
        content = self.swish_mlp(f"{path}._content_embedding_mlp._mlp", items)
        encoder = f"{path}._action_encoder"
        on = (batch["actions"][..., None] & torch.tensor(BITS)) != 0
        history = (on[..., None] * self.get(f"{encoder}._action_embedding_table")).flatten(2)
        unknown = self.get(f"{encoder}._target_action_embedding_table").expand(*batch["candidates"].shape, -1)
        actions = self.swish_mlp(f"{path}._action_embedding_mlp._mlp", torch.cat([history, unknown], 1))
        return torch.cat([context, content + actions], 1), items[:, batch["history"].shape[1] :]

    def places(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of positions and of times [B, N], and which keys a query sees [B, N, N]."""
        lengths, counts = batch["lengths"][:, None], batch["counts"][:, None]
        steps, candidates = (torch.arange(batch[name].shape[1])[None] for name in ("history", "candidates"))
        rows = len(lengths)
        context = torch.arange(CONTEXT).expand(rows, -1)
        targets = torch.full((rows, candidates.shape[1]), CONTEXT)
        position = torch.cat([context, (lengths - steps).clamp(min=0) + CONTEXT, targets], 1)
        query = batch["candidate_time"].gather(1, counts - 1)
        stamps = torch.cat([torch.zeros(rows, CONTEXT), batch["history_time"], batch["candidate_time"]], 1)
        age = ((query - stamps).clamp(min=1e-6) / INCREMENT).sqrt()
        times = ((age / TIMES).clamp(0, 1) * TIMES).long()
        most = lengths + 1
        group = torch.cat([context * 0, (steps + 1).expand(rows, -1), most.expand(-1, candidates.shape[1])], 1)
        is_there = torch.cat([context >= 0, steps < lengths, candidates < counts], 1)
        row, column = group[:, :, None], group[:, None]
        sees = (row > column) | torch.eye(group.shape[1], dtype=torch.bool) | ((row == 0) & (column < most[..., None]))
        return position.clamp(max=POSITIONS - 1), times, sees & is_there[:, None]

    def layer(self, index: int, x: Tensor, sees: Tensor) -> Tensor:
        path = f"_hstu_transducer._stu_module._stu_layers.{index}"
        gain, bias = (self.get(f"{path}._input_norm_{part}") for part in ("weight", "bias"))
        y = functional.layer_norm(x, (WIDTH,), gain, bias, 1e-6)
        y = y @ self.get(f"{path}._uvqk_weight") + self.get(f"{path}._uvqk_beta")
        u, v, q, k = y.split(HEADS * HEAD, -1)
        u = functional.silu(u)
        v, q, k = (part.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for part in (v, q, k))
        weights = functional.silu(HEAD**-0.5 * (q @ k.transpose(-1, -2))) / MOST * sees[:, None]
        found = (weights @ v).transpose(1, 2)
        gain, bias = (self.get(f"{path}._output_norm_{part}")[:, None] for part in ("weight", "bias"))
        normed = (functional.layer_norm(found, (HEAD,), eps=1e-6) * gain + bias).flatten(2)
        joined = torch.cat([u, found.flatten(2), u * normed], -1)
        return x + joined @ self.get(f"{path}._output_weight")

    def forward(self, batch: Batch) -> Tensor:
        """Logits of all candidates [B, C, 3]."""
        x, items = self.tokens(batch)
        position, times, sees = self.places(batch)
        path = "_hstu_transducer._positional_encoder"
        x = x * math.sqrt(WIDTH) + functional.embedding(position, self.get(f"{path}._position_embeddings_weight"))
        x = x + functional.embedding(times, self.get(f"{path}._timestamp_embeddings_weight"))
        for index in range(LAYERS):
            x = self.layer(index, x, sees)
        x = x[:, -items.shape[1] :]
        path = "_hstu_transducer._output_postprocessor"
        periods, units = torch.tensor(PERIODS), torch.tensor(UNITS)
        whole = torch.div(batch["candidate_time"][..., None], periods, rounding_mode="floor")
        phase = torch.remainder(whole, units) / units * 2 * 3.14
        x = torch.cat([x, torch.stack([phase.cos(), phase.sin()], -1).flatten(2).to(self.dtype)], -1)
        user = self.norm(f"{path}._layer_norm", self.linear(f"{path}._time_feature_combiner", x))
        x = user * self.swish_mlp("_item_embedding_mlp", items)
        path = "_multitask_module.tower_mlp.mlp.0.perceptron"
        x = functional.silu(self.norm(f"{path}.1", self.linear(f"{path}.0", x)))
        return self.linear("_multitask_module.linear", x)


class Step:
    """Training steps in PyTorch."""

    def __init__(self, module: DlrmHstu, is_compiled: bool) -> None:
        self.forward = torch.compile(module, dynamic=False) if is_compiled else module
        named = list(module.weights.items())
        tables = [weight for name, weight in named if "embedding_group" in name]
        dense = [weight for name, weight in named if "embedding_group" not in name]
        self.optimizers = [
            torch.optim.Adagrad(tables, lr=RATE["sparse"], eps=EPS["sparse"], initial_accumulator_value=ACCUMULATOR),
            torch.optim.Adam(dense, lr=RATE["dense"], eps=EPS["dense"]),
        ]

    def __call__(self, batch: Batch) -> float:
        """The sum of the losses before the update."""
        logits = self.forward(batch)
        is_there = (torch.arange(logits.shape[1]) < batch["counts"][:, None]).to(logits.dtype)
        clicks = functional.binary_cross_entropy_with_logits(logits[..., :2], batch["clicks"], reduction="none").sum(-1)
        loss = ((clicks + (logits[..., 2] - batch["watched"]) ** 2) * is_there).sum() / is_there.sum()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def pytorch(
    folder: Path, batches: list[Batch], is_compiled: bool, dtype: torch.dtype = torch.float32
) -> tuple[list[float], float]:
    """The first losses, and the median time of a step in ms."""
    step = Step(DlrmHstu(folder, dtype), is_compiled)
    losses = [step(batch) for batch in batches[:COMPARED]]
    times = []
    for batch in batches[COMPARED:]:
        begun = time.perf_counter()
        step(batch)
        times.append(time.perf_counter() - begun)
    return losses, 1e3 * statistics.median(times or [math.nan])


def rewire(folder: Path, program: Path, steps: int, threads: int) -> tuple[list[float], float]:
    """The losses of a training of so many steps, and its seconds."""
    printed = families.rewire(
        program, "train", "--pipeline", folder / f"train_{steps}.config", "--checkpoint", folder / "model.safetensors",
        "--data", folder / "train.parquet", "--out", folder / f"trained_{steps}", threads=threads,
    )
    lines = [json.loads(line) for line in printed.splitlines()]
    return [line["loss"] for line in lines if "step" in line], lines[-1]["summary"]["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rewire", type=Path, metavar="PROGRAM", required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder, program, threads = options.folder, options.rewire.absolute(), options.threads
    make(folder)
    pin(separate_cores(threads))
    own, _ = rewire(folder, program, COMPARED, threads)
    expected, _ = pytorch(folder, load(folder, torch.float64)[:COMPARED], False, torch.float64)
    batches = load(folder, torch.float32)
    times: dict[str, list[float]] = {}
    for _ in range(families.ROUNDS):
        for label, is_compiled in {"eager": False, "compile": True}.items():
            try:
                losses, ms = pytorch(folder, batches, is_compiled)
            except Exception as reason:
                print(f"{label}: {type(reason).__name__}: {str(reason)[:500]}", file=sys.stderr)
                continue
            worst, theirs = error(own, expected), error(losses, expected)
            if worst > max(LOSS_TOLERANCE, MOST_ERRORS * theirs):
                sys.exit(f"losses differ by {worst:.1e} from doubles, those of PyTorch ({label}) by {theirs:.1e}")
            times.setdefault(label, []).append(ms)
        (_, short), (_, long) = (rewire(folder, program, steps, threads) for steps in (SHORT, LONG))
        times.setdefault("rewire", []).append(1e3 * (long - short) / (LONG - SHORT))
    medians = {label: statistics.median(values) for label, values in times.items()}
    ratios = {f"{label}_ratio": value / medians["rewire"] for label, value in medians.items()}
    record = {"family": "dlrm_hstu", "rows": ROWS, "threads": threads, "torch": torch.__version__}
    found = {f"{label}_ms": value for label, value in medians.items()}
    print(json.dumps(record | found | ratios | {"rounds_ms": times}))


if __name__ == "__main__":
    main()
