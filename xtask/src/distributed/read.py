"""Compares a checkpoint that ranks wrote, as torch reads it, with the tensors of the model: read.py CHECKPOINT MODEL RANKS PARTS"""

import json
import pathlib
import sys

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

checkpoint, model, ranks = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes(), int(sys.argv[3])
length = int.from_bytes(model[:8], "little")
described = json.loads(model[8 : 8 + length])
described.pop("__metadata__")


def tensor(entry):
    begin, end = (8 + length + offset for offset in entry["data_offsets"])
    kind = {"F32": torch.float32, "I64": torch.int64}[entry["dtype"]]
    return torch.frombuffer(bytearray(model[begin:end]), dtype=kind).reshape(entry["shape"])


expected = {f"model.{name}": tensor(entry) for name, entry in described.items()}
read = {name: torch.zeros_like(value) for name, value in expected.items()}
load(read, storage_reader=FileSystemReader(checkpoint / "model"), no_dist=True)
assert all(torch.equal(read[name], value) for name, value in expected.items())

metadata = FileSystemReader(checkpoint / "model").read_metadata()
assert set(metadata.state_dict_metadata) == set(expected)
files = {info.relative_path for info in metadata.storage_data.values()}
assert files == {f"__{rank}_0.distcp" for rank in range(ranks)}, files
parts = {name: len(entry.chunks) for name, entry in metadata.state_dict_metadata.items()}
assert max(parts.values()) == int(sys.argv[4]), parts

states = FileSystemReader(checkpoint / "optimizer").read_metadata().state_dict_metadata
moments = {name: torch.zeros(entry.size) for name, entry in states.items()}
load(moments, storage_reader=FileSystemReader(checkpoint / "optimizer"), no_dist=True)
assert any(name.endswith("momentum1") for name in moments) and any(value.any() for value in moments.values())
print(len(expected), "tensors and", len(moments), "states are right")
