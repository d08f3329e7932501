"""Times exported models by rewire, eager PyTorch, `torch.compile` and ONNX Runtime, in turns.

usage: exported.py REWIRE FOLDER [--only NAME] [--seconds S] [--rounds N] [--threads N] [--cuda] [--no-compile] [--no-onnx]

`torch.compile` needs a C++ compiler, ONNX Runtime the packages onnxruntime and onnxscript.

Exports each model to FOLDER/NAME, checks rewire's results against PyTorch's, and prints medians of the rounds in milliseconds: processor time of a run
with one thread on the CPU, which other work on the machine hardly moves, or with --threads the time of a run. With --cuda it is the time of a run on a
GPU with f16 weights and activations: of rewire with the transfer of inputs and results, of PyTorch with both on the GPU and `torch.compile` in CUDA graphs.
"""

import argparse
import copy
import json
import os
import resource
import subprocess
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        short = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if stride == 1 and width == out else short

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))


def resnet() -> nn.Module:
    """A residual network for images of 32 by 32."""
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    blocks = [Block(32, 32, 1), Block(32, 64, 2), Block(64, 128, 2)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Inverted(nn.Module):
    """A depthwise convolution between two of single pixels."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        wide = 6 * width
        layers = [nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers, self.is_residual = nn.Sequential(*layers), stride == 1 and width == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.is_residual else y


def mobilenet() -> nn.Module:
    """Blocks of a mobile network for images of 64 by 64."""
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    blocks = [Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 32, 2), Inverted(32, 32, 1)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Encoder(nn.Module):
    """A transformer encoder over token ids, and logits of the next token by the embedding."""

    def __init__(self, tokens: int, width: int, heads: int, layers: int, is_causal: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(512, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, activation="gelu", norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.is_causal = nn.LayerNorm(width), is_causal

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device) if self.is_causal else None
        return self.norm(self.layers(x, mask=mask, is_causal=self.is_causal))


class Sasrec(nn.Module):
    """Scores of candidates by the last state of a causal encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(5000, 64, 2, 2, True)

    def forward(self, ids: Tensor, candidates: Tensor) -> Tensor:
        user = self.encoder(ids)[:, -1]
        return torch.einsum("bd,bcd->bc", user, self.encoder.tokens(candidates))


class Din(nn.Module):
    """Attention of a candidate over a history by a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(5000, 16)
        self.attention = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.head = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, history: Tensor, item: Tensor) -> Tensor:
        keys, query = self.items(history), self.items(item)
        wide = query[:, None].expand_as(keys)
        weight = self.attention(torch.cat([wide, keys, wide - keys, wide * keys], -1)).masked_fill((history == 0)[..., None], -1e4)
        pooled = (weight.softmax(1) * keys).sum(1)
        return torch.sigmoid(self.head(torch.cat([pooled, query], 1)))


class DeepFm(nn.Module):
    """A factorization machine beside a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("starts", torch.arange(20) * 1000)
        self.wide, self.deep = nn.Embedding(20000, 1), nn.Embedding(20000, 16)
        self.mlp = nn.Sequential(nn.Linear(320, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, ids: Tensor) -> Tensor:
        places = ids + self.starts
        rows = self.deep(places)
        crossed = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.wide(places).sum(1) + crossed + self.mlp(rows.flatten(1)))


class Gru4Rec(nn.Module):
    """Logits of all items by the last state of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.gru = nn.Embedding(5000, 128), nn.GRU(128, 256, batch_first=True)
        self.head = nn.Linear(256, 128)

    def forward(self, ids: Tensor) -> Tensor:
        _, state = self.gru(self.items(ids))
        return self.head(state[0]) @ self.items.weight.T


class Rotated(nn.Module):
    """A decoder's layer with grouped heads, rotary positions and a gated perceptron."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = [nn.Linear(width, groups * self.head, bias=False) for _ in range(2)]
        self.gate, self.up = [nn.Linear(width, 3 * width, bias=False) for _ in range(2)]
        self.down = nn.Linear(3 * width, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        def turned(y: Tensor, heads: int) -> Tensor:
            y = y.unflatten(-1, (heads, self.head)).transpose(1, 2)
            a, b = y.chunk(2, -1)
            return y * cos + torch.cat([-b, a], -1) * sin

        y = self.first(x)
        q, k = turned(self.q(y), self.heads), turned(self.k(y), self.groups)
        v = self.v(y).unflatten(-1, (self.groups, self.head)).transpose(1, 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A small decoder of the kind of Llama and Qwen."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8000, 256)
        self.layers = nn.ModuleList(Rotated(256, 8, 2) for _ in range(4))
        self.norm = nn.RMSNorm(256)

    def forward(self, ids: Tensor) -> Tensor:
        places, pairs = [torch.arange(count, device=ids.device) for count in (ids.shape[1], 16)]
        places = places[:, None] * 10000.0 ** (-pairs / 16)
        angle = torch.cat([places, places], -1)
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin())
        return functional.linear(self.norm(x)[:, -1], self.tokens.weight)


def ids(most: int, *shape: int) -> Tensor:
    """Ids below a number."""
    return torch.randint(1, most, shape)


MODELS = {
    "linear_relu": lambda: (nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)), (torch.randn(256, 512),)),
    "resnet": lambda: (resnet(), (torch.randn(4, 3, 32, 32),)),
    "mobilenet": lambda: (mobilenet(), (torch.randn(2, 3, 64, 64),)),
    "encoder": lambda: (Encoder(1000, 128, 4, 4, False), (ids(1000, 8, 64),)),
    "sasrec": lambda: (Sasrec(), (ids(5000, 16, 50), ids(5000, 16, 100))),
    "din": lambda: (Din(), (ids(5000, 64, 50), ids(5000, 64))),
    "deepfm": lambda: (DeepFm(), (ids(1000, 512, 20),)),
    "gru4rec": lambda: (Gru4Rec(), (ids(5000, 32, 20),)),
    "bert": lambda: (Encoder(8000, 256, 4, 4, False), (ids(8000, 1, 128),)),
    "decoder": lambda: (Decoder(), (ids(8000, 1, 64),)),
}


def cpu_of(run, seconds: float, threads: int) -> float:
    """Milliseconds of processor time of a run, or of the clock with several threads."""
    run()
    clock = time.process_time if threads == 1 else time.perf_counter
    runs, begun = 0, clock()
    while clock() - begun < seconds:
        run()
        runs += 1
    return (clock() - begun) / runs * 1e3


ON_CPU = ["--kernel", "cpu"]
ON_GPU = ["--kernel", "wgpu", "--dtype", "f16", "--tables", "f16", "--activations", "f16"]


def rewire(program: str, folder: Path, seconds: float, threads: int, kernel: list[str]) -> float:
    """The same of rewire."""

    def timed(seconds: float) -> tuple[dict, float]:
        command = [program, "run", folder / "model.pt2", *kernel, "--json", "--seconds", seconds]
        command += ["--inputs", folder / "inputs.safetensors", "--out", folder / "outputs.safetensors"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "REWIRE_THREADS": str(threads)}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    record, cpu = timed(seconds)
    if threads > 1 or kernel == ON_GPU:
        return record["seconds"] * 1e3
    least, start = timed(0)
    return (cpu - start) / max(record["runs"] - least["runs"], 1) * 1e3


def onnx(exported: torch.export.ExportedProgram, inputs: tuple[Tensor, ...], folder: Path, threads: int):
    """A run by ONNX Runtime."""
    import onnxruntime

    torch.onnx.export(exported, f=str(folder / "model.onnx"), verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    feeds = {given.name: x.numpy() for given, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feeds)


def on_gpu(model: nn.Module, inputs: tuple[Tensor, ...], seconds: float, is_compiled: bool):
    """The milliseconds of a run with f16 on a GPU."""
    model = copy.deepcopy(model).half().cuda()
    inputs = tuple(x.half().cuda() if x.is_floating_point() else x.cuda() for x in inputs)
    model = torch.compile(model, mode="reduce-overhead") if is_compiled else model

    def run() -> None:
        model(*inputs)
        torch.cuda.synchronize()

    for _ in range(10):
        run()
    return lambda: cpu_of(run, seconds, 2)


def main() -> None:
    """Exports, checks and times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rewire")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-onnx", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, make in MODELS.items():
        if options.only and options.only != name:
            continue
        torch.manual_seed(0)
        model, inputs = make()
        model = model.eval()
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():
            exported = torch.export.export(model, inputs)
            torch.export.save(exported, folder / "model.pt2")
            names = [spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
            save_file(dict(zip(names, inputs)), folder / "inputs.safetensors")
            expected = model(*inputs)
            seconds, threads = options.seconds, options.threads
            kernel = ON_GPU if options.cuda else ON_CPU
            runs = {"rewire": lambda: rewire(options.rewire, folder, seconds, threads, kernel)}
            if options.cuda:
                torch.set_default_dtype(torch.float16)
                runs["eager"] = on_gpu(model, inputs, seconds, False)
                if not options.no_compile:
                    runs["compile"] = on_gpu(model, inputs, seconds, True)
            else:
                runs["eager"] = lambda: cpu_of(lambda: model(*inputs), seconds, threads)
                if not options.no_compile:
                    compiled = torch.compile(model)
                    compiled(*inputs)
                    runs["compile"] = lambda: cpu_of(lambda: compiled(*inputs), seconds, threads)
                if not options.no_onnx:
                    converted = onnx(exported, inputs, folder, threads)
                    runs["onnx"] = lambda: cpu_of(converted, seconds, threads)
            times = {kind: [] for kind in runs}
            for _ in range(options.rounds):
                for kind, run in runs.items():
                    times[kind].append(run())
            torch.set_default_dtype(torch.float32)
        (actual,) = load_file(folder / "outputs.safetensors").values()
        error = ((actual - expected).abs().max() / expected.abs().max()).item()
        medians = {kind: sorted(own)[len(own) // 2] for kind, own in times.items()}
        best = min(own for kind, own in medians.items() if kind != "rewire")
        print(json.dumps({"model": name, **medians, "ratio": best / medians["rewire"], "error": error}), flush=True)


if __name__ == "__main__":
    main()
