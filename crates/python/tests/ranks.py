"""A rank of torchrun: `ranks.py CONFIG OUT SECONDS [hang|die]` trains the built-in model, and the first rank hangs or dies at the third step."""

import os
import sys
import time

import rewire
import rewire.distributed

config, out, seconds, *fault = sys.argv[1:]


def progress(line):
    if fault and line["step"] == 3:
        time.sleep(1000) if fault == ["hang"] else os._exit(9)


collectives = rewire.distributed.torch(float(seconds))
rewire.train(config, [], out, kernel="cpu", collectives=collectives, progress=progress)
