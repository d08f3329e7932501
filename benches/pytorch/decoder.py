"""Times beam searches by a language model of the shape of Qwen3-0.6B with random weights on the CPU, in PyTorch.

    python decoder.py [--widths 1,32,256] [--prompt 512] [--layers 28] [--dtype float32] [--threads 2]

Prints a JSON object a width, with the keys of `cargo bench -p rewire-benches --bench decoder`. Keys and values are kept
in a cache that beams select and extend at every token, as in Hugging Face's; tokens are chosen among 256 of every
level, by their probabilities in the whole vocabulary. Needs torch.
"""

import argparse
import json
import time

import torch
from torch import Tensor
from torch.nn import functional

VOCABULARY, WIDTH, HIDDEN = 151936, 1024, 3072
QUERIES, KEYS, HEAD = 16, 8, 128
LEVELS, CODES, FIRST_CODE = 4, 256, 150_000
EPS, THETA, RUNS = 1e-6, 1e6, 3

Cache = list[tuple[Tensor, Tensor]]
"""By layer keys and values, `[beams, KEYS, tokens, HEAD]`."""


def random(*shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-0.05, 0.05)


class Layer:
    """Weights of a layer."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.qkv = random((QUERIES + 2 * KEYS) * HEAD, WIDTH).to(dtype)
        self.out = random(WIDTH, QUERIES * HEAD).to(dtype)
        self.gate_up = random(2 * HIDDEN, WIDTH).to(dtype)
        self.down = random(WIDTH, HIDDEN).to(dtype)
        self.norms = [torch.ones(width, dtype=dtype) for width in (WIDTH, WIDTH, HEAD, HEAD)]


def rotated(x: Tensor, first: int) -> Tensor:
    """Heads `[beams, heads, tokens, HEAD]` turned by their positions."""
    frequencies = THETA ** (-torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.outer(torch.arange(first, first + x.shape[2]), frequencies)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Decoder:
    def __init__(self, layers: int, dtype: torch.dtype) -> None:
        self.table = random(VOCABULARY, WIDTH).to(dtype)
        self.layers = [Layer(dtype) for _ in range(layers)]
        self.norm = torch.ones(WIDTH, dtype=dtype)

    def run(self, tokens: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        """Logarithms of probabilities after the last of tokens `[beams, tokens]`, and the cache with them."""
        x = functional.embedding(tokens, self.table)
        before = 0 if cache is None else cache[0][0].shape[2]
        extended = []
        for number, layer in enumerate(self.layers):
            normed = functional.rms_norm(x, (WIDTH,), layer.norms[0], EPS)
            heads = functional.linear(normed, layer.qkv).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            q, k, v = heads.split([QUERIES, KEYS, KEYS], dim=1)
            q = rotated(functional.rms_norm(q, (HEAD,), layer.norms[2], EPS), before)
            k = rotated(functional.rms_norm(k, (HEAD,), layer.norms[3], EPS), before)
            if cache is not None:
                k, v = (torch.cat([old, new], dim=2) for old, new in zip(cache[number], (k, v)))
            extended.append((k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
            x = x + functional.linear(mixed.transpose(1, 2).flatten(2), layer.out)
            normed = functional.rms_norm(x, (WIDTH,), layer.norms[1], EPS)
            gate, up = functional.linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        last = functional.rms_norm(x[:, -1], (WIDTH,), self.norm, EPS)
        return functional.linear(last, self.table).float().log_softmax(dim=-1), extended


def search(decoder: Decoder, prompt: Tensor, width: int) -> list[float]:
    """Seconds of the prompt and of every further token."""
    times, scores, tokens, cache = [], torch.zeros(1), prompt[None], None
    for level in range(LEVELS):
        begun = time.perf_counter()
        logarithms, cache = decoder.run(tokens, cache)
        first = FIRST_CODE + level * CODES
        candidates = (scores[:, None] + logarithms[:, first : first + CODES]).flatten()
        scores, best = candidates.topk(min(width, len(candidates)))
        parents, tokens = best // CODES, (first + best % CODES)[:, None]
        if level + 1 < LEVELS:
            cache = [(k.index_select(0, parents), v.index_select(0, parents)) for k, v in cache]
        times.append(time.perf_counter() - begun)
    return times


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", default="1,32,256")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    decoder = Decoder(options.layers, getattr(torch, options.dtype))
    prompt = torch.randint(FIRST_CODE, (options.prompt,))
    for width in map(int, options.widths.split(",")):
        runs = [search(decoder, prompt, width) for _ in range(RUNS)]
        fastest = [min(times) * 1e3 for times in zip(*runs)]
        steps = fastest[1:]
        result = {
            "width": width,
            "prompt": options.prompt,
            "prompt_ms": round(fastest[0], 3),
            "step_ms": round(sum(steps) / len(steps), 3),
            "request_ms": round(sum(fastest), 3),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
