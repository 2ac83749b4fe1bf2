"""A site of several processes: torchrun, accelerate, DDP, FSDP. The process of rank 0 is the peer, the others follow.

All processes of the site make the same calls in the same order, as everywhere in torch.distributed. What travels
between them is JSON and arrays, never pickles, over a gloo group of our own, whatever the job itself uses.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from securedfl.errors import ConfigError, PeerLostError, rebuilt
from securedfl.parameters import Array
from securedfl.states import pack, unpack

BEAT_SECONDS = 5.0
"""How often the first process tells the others that it still waits for the federation: far below any timeout."""

T = TypeVar("T")
Told = Mapping[str, Any]
"""What the first process tells the others: all that `pack` can keep."""


class Processes:
    """The processes of one site: this one alone."""

    alone = True

    def lead(self, act: Callable[[], Told]) -> Told:
        """Let the first process act, and return what it found in all of them; its error is the error of all."""
        return act()

    def together(self, act: Callable[[], T]) -> T:
        """Act in every process; an error in one is an error in all of them."""
        return act()

    def same(self, what: str, value: float) -> None:
        """Raise `ConfigError` in all processes if they were given different values."""

    def end(self) -> None:
        """Give back what was taken for it."""


class SeveralProcesses(Processes):
    """The processes of a job of torch.distributed; made by all of them together."""

    alone = False

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self._group = distributed.new_group(backend="gloo")
        self._first = distributed.get_rank() == 0

    def lead(self, act: Callable[[], Told]) -> Told:
        """Let the first process act in a thread, so that it can tell the others meanwhile that it is alive."""
        told: list[Told] = []
        failed: list[BaseException] = []

        def acting() -> None:
            try:
                told.append(act())
            except BaseException as error:  # handed to the callers in all processes
                failed.append(error)

        thread = threading.Thread(target=acting, name="securedfl-site", daemon=True)
        if self._first:
            thread.start()
        while True:
            if self._first:
                thread.join(BEAT_SECONDS)
            if self._broadcast(np.array([not thread.is_alive()], dtype=np.int64))[0]:
                break
        if failed:
            self._tell({"error": [type(failed[0]).__name__, str(failed[0])]})
            raise failed[0]
        found = self._tell(told[0] if self._first else {})
        if "error" in found:
            kind, text = found["error"]
            raise rebuilt(kind, text) or PeerLostError(text)
        return found

    def together(self, act: Callable[[], T]) -> T:
        """Act here, then hear how the others fared."""
        result: list[T] = []
        failed: Exception | None = None
        try:
            result.append(act())
        except Exception as error:
            failed = error
        texts = self._gather("" if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        for rank, text in enumerate(texts):
            if text:
                raise PeerLostError(f"rank {rank} of this site failed, so none of its processes goes on: {text}")
        return result[0]

    def same(self, what: str, value: float) -> None:
        """Compare."""
        texts = self._gather(repr(float(value)))
        if len(set(texts)) > 1:
            raise ConfigError(f"the processes of this site gave different {what}s ({', '.join(texts)}); give one")

    def end(self) -> None:
        """End the group: a thread of gloo that drops an array after Python's end would abort the process."""
        self._distributed.destroy_process_group(self._group)
        self._group = None

    def _tell(self, told: Told) -> Told:
        """Send what the first process has to the others, piece by piece; return it in all of them."""
        text, arrays = pack(told) if self._first else ("", {})
        shapes = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
        content = json.dumps([text, shapes]).encode()
        size = int(self._broadcast(np.array([len(content)], dtype=np.int64))[0])
        raw = np.frombuffer(content, dtype=np.uint8).copy() if self._first else np.empty(size, dtype=np.uint8)
        text, shapes = json.loads(self._broadcast(raw).tobytes())
        for name, dtype, shape in shapes:
            array = np.array(arrays[name], order="C") if self._first else np.empty(shape, dtype=dtype)
            # as bytes: gloo knows fewer kinds of numbers than numpy
            self._broadcast(array.reshape(-1).view(np.uint8))
            arrays[name] = array
        return told if self._first else unpack(text, arrays)

    def _broadcast(self, array: Array) -> Array:
        if array.size:
            tensor = sys.modules["torch"].from_numpy(array)
            self._safely(lambda: self._distributed.broadcast(tensor, src=0, group=self._group))
        return array

    def _gather(self, text: str) -> list[str]:
        """Return the text of every process."""
        torch, count = sys.modules["torch"], self._distributed.get_world_size()
        content = text.encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(count)]
        mine = torch.tensor([len(content)])
        self._safely(lambda: self._distributed.all_gather(sizes, mine, group=self._group))
        longest = max(int(size) for size in sizes)
        if not longest:
            return [""] * count
        padded = torch.from_numpy(np.frombuffer(content.ljust(longest, b"\0"), dtype=np.uint8).copy())
        found = [torch.empty(longest, dtype=torch.uint8) for _ in range(count)]
        self._safely(lambda: self._distributed.all_gather(found, padded, group=self._group))
        return [one[: int(size)].numpy().tobytes().decode() for one, size in zip(found, sizes, strict=True)]

    @staticmethod
    def _safely(call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            raise PeerLostError(f"another process of this site is gone; start the site again: {error}") from None


def processes() -> Processes:
    """Return the processes of this site: those of torch.distributed, if it runs more than one."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return Processes()
    return SeveralProcesses(distributed) if distributed.get_world_size() > 1 else Processes()
