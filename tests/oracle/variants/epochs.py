"""Variants of passes over the file and batches."""

from base import *

V, OPTIONS = {}, {}
MODEL = "multi_tower { towers { input: 'g' mlp " + units(12, 8, rest="use_bn: true") + " } final " + units(8) + " } " + BCE
TEXT = pipeline(D8, group("g", N8), MODEL)
for name, steps in (("steps20", "num_steps: 20"), ("epochs1", "num_epochs: 1"), ("epochs3", "num_epochs: 3"), ("steps3", "num_steps: 3"), ("one", "num_steps: 1")):
    V[name] = TEXT.replace("num_steps: 6", steps)
    V[name + "_uneven"] = V[name].replace("batch_size: 8", "batch_size: 10 eval_batch_size: 7")
    V[name + "_drop"] = V[name].replace("batch_size: 8", "batch_size: 10 drop_remainder: true")
