"""Collective operations for distributed training.

    rewire.train("dlrm.config", "data.parquet", "trained", collectives=rewire.distributed.torch())

under `torchrun --nproc-per-node 4`. Any object with the attributes and the method of `Collectives` can take its place.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

# The largest message in bytes. One of this size is followed by another one.
LARGEST = 1 << 30


class Collectives(Protocol):
    """The operations of one rank. All ranks call them in the same order."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""

    def all_to_all(self, parts: list[bytearray]) -> Sequence[bytes | bytearray]:
        """Sends `parts[r]` to every rank `r`, and returns what every rank sent to this one, in rank order. Parts have any size.

        A `RankError` names a rank that ended or did not answer in time.
        """


class RankError(RuntimeError):
    """A rank ended, or did not answer for `waited` seconds."""

    def __init__(self, rank: int, waited: float | None = None, reason: str = "") -> None:
        super().__init__(rank, waited, reason)
        self.rank = rank
        self.waited = waited
        self.reason = reason


class TorchCollectives:
    """The operations of a process of `torch.distributed`, over CPU buffers."""

    def __init__(self, group: Any, timeout: float) -> None:
        import torch.distributed

        self.group = group
        self.timeout = timeout
        self.rank: int = torch.distributed.get_rank(group)
        self.ranks: int = torch.distributed.get_world_size(group)

    def all_to_all(self, parts: list[bytearray]) -> list[bytearray]:
        until = time.monotonic() + self.timeout
        sizes = self._exchange([bytearray(len(part).to_bytes(8, "little")) for part in parts], [8] * self.ranks, until)
        return self._exchange(parts, [int.from_bytes(size, "little") for size in sizes], until)

    def _exchange(self, parts: list[bytearray], sizes: list[int], until: float) -> list[bytearray]:
        """`all_to_all` of parts of known sizes."""
        import torch

        received = [bytearray(size) for size in sizes]
        received[self.rank] = parts[self.rank]
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        works = []
        for receives, start, buffers in [(True, torch.distributed.irecv, received), (False, torch.distributed.isend, parts)]:
            for rank in others:
                side = {"group_src" if receives else "group_dst": rank}
                for begin in range(0, len(buffers[rank]), LARGEST):
                    count = min(LARGEST, len(buffers[rank]) - begin)
                    message = torch.frombuffer(buffers[rank], dtype=torch.uint8, offset=begin, count=count)
                    works.append((rank, self._of(rank, lambda: start(message, group=self.group, **side))))
        for rank, work in works:
            rest = max(until - time.monotonic(), 0.001)
            self._of(rank, lambda: work.wait(timedelta(seconds=rest)), until)
        return received

    def _of(self, rank: int, call: Any, until: float | None = None) -> Any:
        """The result of a call that sends to a rank or receives from it."""
        try:
            return call()
        except RuntimeError as error:
            is_late = until is not None and time.monotonic() >= until
            raise RankError(rank, self.timeout if is_late else None, str(error)) from error


def torch(timeout: float = 600.0) -> TorchCollectives:
    """The operations of this process of `torch.distributed`, as `torchrun` starts it.

    Initializes `torch.distributed` from the environment unless that was done, and uses gloo, which works on CPU buffers. An operation ends within `timeout`
    seconds with an error that names a rank.
    """
    import torch.distributed as distributed

    if not distributed.is_initialized():
        distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    group = None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")
    return TorchCollectives(group, timeout)
