"""The malloc that PyTorch is timed with."""

import os
import sys

MALLOC = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=268435456"


def keep_memory() -> None:
    """Starts this program again if glibc would return the memory of results to the system.

    Most of PyTorch's time would go to page faults. Call it before torch is imported.
    """
    if os.environ.get("GLIBC_TUNABLES") != MALLOC:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"GLIBC_TUNABLES": MALLOC})
