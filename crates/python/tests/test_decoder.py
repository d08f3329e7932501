"""Items of decoders are those of the reference."""

import json
import re
from pathlib import Path

import pytest

import rewire

FOLDER = Path(__file__).parents[3] / "tests/decoders/qwen3"
ITEMS = json.loads((FOLDER / "trie.json").read_text())["items"]
PROMPTS = [json.loads(line) for line in (FOLDER / "prompts.jsonl").read_text().splitlines()]
BEAMS = [json.loads(line) for line in (FOLDER / "beams.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def decoder():
    return rewire.Decoder(FOLDER, kernel="cpu")


def test_beams_are_those_of_the_reference(decoder):
    found = decoder.generate([prompt["tokens"] for prompt in PROMPTS], items=ITEMS, num_beams=4)
    for prompt, found in zip(PROMPTS, found):
        expected = next(line for line in BEAMS if line["id"] == prompt["id"] and line["beams"] == 4)
        assert [one["tokens"] for one in found] == expected["items"]
        assert [one["score"] for one in found] == pytest.approx(expected["scores"], abs=1e-4)
        assert [ITEMS[one["items"][0]] for one in found] == expected["items"]
    assert decoder.vocab_size == 400 and decoder.device == "cpu"


def test_tokens_are_drawn_and_watched(decoder):
    watched = []
    found = decoder.generate([[3, 1, 7], [9]], max_new_tokens=3, on_token=lambda prompt, tokens: watched.append((prompt, tokens)))
    assert [len(one["tokens"]) for (one,) in found] == [3, 3]
    assert (0, found[0][0]["tokens"]) in watched and len(watched) == 6
    stopped = decoder.generate([[3, 1, 7], [9]], max_new_tokens=3, on_token=lambda prompt, _: prompt == 1)
    assert stopped == [[], found[1]]
    with pytest.raises(ZeroDivisionError):
        decoder.generate([[3]], on_token=lambda prompt, tokens: 1 / 0)
    with pytest.raises(rewire.RunError, match="400"):
        decoder.generate([[400]])


def test_the_program_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(FOLDER)
    page = (FOLDER.parents[2] / "docs/decoders.md").read_text()
    exec(compile(re.search(r"```python\n(.*?)```", page, re.S)[1], "decoders.md", "exec"), {"rewire": rewire})


def test_a_with_block_frees_the_decoder():
    with rewire.Decoder(FOLDER, kernel="cpu") as decoder:
        assert decoder.vocab_size == 400
    with pytest.raises(ValueError, match="closed"):
        decoder.generate([[3]])
    assert repr(decoder) == "<rewire.Decoder, closed>"
