"""Requests of users, and their tables."""

import json
from pathlib import Path

import pyarrow as pa

PACKAGES = Path(__file__).parents[2] / "cli/tests/packages"
MODEL = PACKAGES / "format-1.rewire"
USERS = [json.loads(line) for line in (PACKAGES / "users.jsonl").read_text().splitlines()]


def columns_of(users):
    """The requests as columns, lists under dotted names."""
    columns = {"user": [user["user"] for user in users]}
    for name in users[0]:
        if name in ("history", "candidates"):
            for feature in users[0][name]:
                columns[f"{name}.{feature}"] = [user[name][feature] for user in users]
        elif name not in ("user", "labels"):
            columns[name] = [user[name] for user in users]
    return columns


def dotted(users):
    columns = columns_of(users)
    kinds = {name: pa.list_(pa.int64()) if "." in name else None for name in columns}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def nested(users):
    """The same with large lists of 32 bits in structs."""
    lists = pa.large_list(pa.int32())
    arrays, names = [], []
    for name in users[0]:
        if name in ("history", "candidates"):
            kinds = pa.struct({feature: lists for feature in users[0][name]})
            arrays.append(pa.array([user[name] for user in users], kinds))
        elif name != "labels":
            arrays.append(pa.array([user[name] for user in users]))
        names += [name] if name != "labels" else []
    return pa.table(arrays, names)
