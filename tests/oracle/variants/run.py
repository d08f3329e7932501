"""Builds variants and compares a program with the oracle: python variants/run.py predict|evaluation|training MODULE [PATTERN]"""

import importlib
import os
import pathlib
import re
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
root = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(root), str(root.parent)]
from tzoracle import compare, synthesis

PROGRAM = os.environ.get("REWIRE", str(root.parents[2] / "target/debug/rewire"))
torch.set_num_threads(1)


def main(what, module, pattern=""):
    found = importlib.import_module(module)
    bad = 0
    for name, text in found.V.items():
        if not re.search(pattern, name):
            continue
        folder = root.parent / "runs" / what / module / name
        options = dict(getattr(found, "OPTIONS", {}).get(name, {}))
        if what == "training":
            options["rows"] = 48
            text = re.sub(r"\b(ppnet_)?dropout_ratio: (\[.*?\]|[\d.]+)", "", text)
        try:
            synthesis.build(folder, text, seed=len(name) + 100 * int(os.environ.get("SEED", "0")), **options)
        except Exception as error:
            print(f"{name}: ORACLE {type(error).__name__} {str(error)[:300]}")
            bad += 1
            continue
        try:
            errors = getattr(compare, what)(PROGRAM, folder)
        except Exception as error:
            print(f"{name}: REFUSED {str(error)[-350:]}")
            bad += 1
            continue
        wrong = {k: v for k, v in errors.items() if not v < 2e-5}
        if wrong:
            print(f"{name}: MISMATCH {len(wrong)} of {len(errors)}: { {k[-45:]: float(f'{v:.2g}') for k, v in list(wrong.items())[:4]} }")
            bad += 1
    print(module, "variants", sum(bool(re.search(pattern, n)) for n in found.V), "not equal", bad)


main(*sys.argv[1:])
