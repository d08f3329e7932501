"""Reads checkpoints that `rewire train --export-dcp` writes with `torch.distributed.checkpoint`, and predicts with them in PyTorch.

    python checkpoint.py FOLDER --rewire PROGRAM [--families deepfm,mmoe]

Needs numpy, torch and safetensors, as `families.py`, whose modules have the parameters.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from families import TABLE, WRAPPER, load, make, read_table, rewire
from models import FAMILIES
from timing import TOLERANCE, largest_error

STEPS = 3


def flat(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a part of a checkpoint by name, read into tensors that the metadata describes."""
    reader = dcp.FileSystemReader(folder)
    described = reader.read_metadata().state_dict_metadata
    assert all(isinstance(kind, TensorStorageMetadata) for kind in described.values())
    tensors = {name: torch.empty(kind.size, dtype=kind.properties.dtype) for name, kind in described.items()}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def nested(folder: Path) -> dict:
    """A part of a checkpoint in the nested dicts that it was saved from."""
    content: dict = {}
    _load_state_dict(
        content, storage_reader=dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    return content


def check_states(states: dict[str, dict[str, torch.Tensor]], tensors: dict[str, torch.Tensor]) -> int:
    """Checks the states of the optimizers: Adam of dense parameters, Adagrad of tables. Returns their number."""
    for name, state in states.items():
        parameter = tensors[name]
        if ".embedding_bags." in name or ".embeddings." in name:
            table = name.removesuffix(".weight").rsplit(".", 1)[1]
            assert state.keys() == {f"{table}.momentum1"}, (name, state.keys())
        else:
            assert state.keys() == {"step", "exp_avg", "exp_avg_sq"}, (name, state.keys())
            assert state["step"].shape == () and state["step"].item() == STEPS, name
        shapes = {value.shape for key, value in state.items() if key != "step"}
        assert shapes == {parameter.shape}, (name, shapes)
        assert all(value.abs().max() > 0 for value in state.values()), name
    return len(states)


def check(folder: Path, family: str, program: Path) -> str:
    """Trains a family, reads the checkpoint, and compares tensors and predictions."""
    place = folder / family
    config = place / "pipeline.config"
    config.write_text(config.read_text().replace("num_steps: 1\n", f"num_steps: {STEPS}\n"))
    data, trained, exported = folder / f"data.{TABLE}", place / "trained", place / "exported"
    begin = ["--pipeline", config, "--checkpoint", place / "model.safetensors", "--data", data]
    rewire(program, "train", *begin, "--out", trained, "--export-dcp", exported)
    checkpoint = exported / f"model.ckpt-{STEPS - 1}"

    tensors = flat(checkpoint / "model")
    expected = {WRAPPER + name: value for name, value in load_file(trained / "model.safetensors").items()}
    assert tensors.keys() == expected.keys(), tensors.keys() ^ expected.keys()
    assert all(torch.equal(tensors[name], value) for name, value in expected.items())
    before = load_file(place / "model.safetensors")
    assert any(not torch.equal(tensors[name], value) for name, value in before.items())
    assert nested(checkpoint / "model").keys() == tensors.keys()
    states = check_states(nested(checkpoint / "optimizer")["state"], tensors)

    module, batch = load(folder, family)
    module.load_state_dict({name.removeprefix(WRAPPER): value for name, value in tensors.items()})
    scores = place / f"trained.{TABLE}"
    rewire(program, "predict", "--model", trained, "--data", data, "--out", scores)
    table = read_table(scores)
    with torch.no_grad():
        outputs = module(batch)
    assert table.keys() == outputs.keys(), table.keys() ^ outputs.keys()
    errors = [largest_error(torch.tensor(table[name]), value) for name, value in outputs.items()]
    assert max(errors) < TOLERANCE, errors

    again = place / f"again.{TABLE}"
    rewire(program, "import", config, "--checkpoint", exported, "--out", place / "imported")
    rewire(program, "predict", "--model", place / "imported", "--data", data, "--out", again)
    assert read_table(again) == table
    return f"{family}: {len(tensors)} tensors, {states} states, predictions within {max(errors):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rewire", type=Path, metavar="PROGRAM", required=True)
    parser.add_argument("--families", type=lambda text: text.split(","), default=["deepfm", "mmoe", "din"])
    options = parser.parse_args()
    if unknown := set(options.families) - FAMILIES.keys():
        parser.error(f"--families: expected some of {', '.join(FAMILIES)}, got {', '.join(sorted(unknown))}")
    make(options.folder, options.families)
    for family in options.families:
        print(check(options.folder, family, options.rewire.absolute()), flush=True)


if __name__ == "__main__":
    main()
