"""What the scripts of all rivals share: the vectors, and how time, processor, memory, bytes and error are measured.

Needs numpy only, because it runs in every rival's environment. `run.py` starts each script in name spaces of its own
(processes and network), so that all processes that are seen and all bytes on the loopback interface are the rival's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

OWN = "SECUREDFL_RIVALS_OWN_NAMESPACES"
"""Set by `run.py` if this script has processes and network to itself; else bytes and processor are not told."""

SMOKE = {"peers": 5, "size": 20_000, "repeat": 1}
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

Step = Callable[[], np.ndarray]
"""One average at one peer; returns the result."""


def arguments(text: str | None) -> argparse.Namespace:
    """Read the options that all scripts have."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=1_000_000, help="float32 in each peer's vector")
    parser.add_argument("--repeat", type=int, default=3, help="averages that are measured, after one that is not")
    parser.add_argument("--protocol", default="shares", help="of ours only")
    parser.add_argument("--smoke", action="store_true", help=f"a size that takes less than a minute: {SMOKE}")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(SMOKE)
    return args


def vector(peer: int, size: int) -> np.ndarray:
    """Return what a peer brings, the same in every system: parameters of about the size of a network's weights."""
    return np.random.default_rng(peer).standard_normal(size, dtype=np.float32) * np.float32(0.05)


def truth(peers: int, size: int) -> np.ndarray:
    """Return the true mean in float64."""
    return sum(vector(peer, size).astype(np.float64) for peer in range(peers)) / peers


def largest_error(result: np.ndarray, peers: int) -> float:
    """Return how far a result is from the true mean at most."""
    return float(np.abs(np.asarray(result, dtype=np.float64) - truth(peers, len(result))).max())


def versions(*packages: str) -> dict[str, str]:
    """Return the versions that a measurement depends on."""
    found = {"python": sys.version.split()[0]}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class Watch:
    """Measures averages: time, and of all processes here the processor time, memory and bytes on loopback."""

    def __init__(self) -> None:
        raise_loopback()
        self.seconds: list[float] = []
        self._processor: list[float] = []
        self._bytes: list[int] = []
        self._highest, self._before = 0, 0
        self._ended = threading.Event()

    def begin(self) -> None:
        """Take note of the memory before the first average, and watch it from now on."""
        self._before = self._highest = resident_of_all()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self._highest = max(self._highest, resident_of_all())

    @contextmanager
    def average(self) -> Iterator[None]:
        """Measure one average."""
        sent, used, began = loopback_bytes(), processor_of_all(), time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - began)
        self._processor.append(processor_of_all() - used)
        self._bytes.append(loopback_bytes() - sent)

    def result(self, args: argparse.Namespace, **more: Any) -> dict[str, Any]:
        """Return what was measured, per average; bytes, processor and memory per peer."""
        self._ended.set()
        alone = OWN in os.environ
        return {
            "peers": args.peers,
            "size": args.size,
            "repeat": len(self.seconds),
            "seconds": statistics.median(self.seconds),
            "processor_seconds_per_peer": statistics.median(self._processor) / args.peers if alone else None,
            "bytes_per_peer": statistics.median(self._bytes) / args.peers if alone else None,
            "memory_per_peer_in_vectors": (self._highest - self._before) / args.peers / (4 * args.size)
            if alone
            else None,
            **more,
        }


def tell(result: dict[str, Any]) -> None:
    """Print a measurement as the last line, which `run.py` reads, and leave without waiting for anybody's threads."""
    print(json.dumps(result), flush=True)
    os._exit(0)


def side_by_side(
    setup: Callable[[int, argparse.Namespace, Any], Step], args: argparse.Namespace, given: Any = None
) -> dict[str, Any]:
    """Run one process per peer; all are told to average, and an average ends when the last peer has it.

    Parameters
    ----------
    setup
        Called in each process with the peer's number, the options and what was ``given``; returns one average.
    args, given
        Handed over.
    """
    watch = Watch()
    context = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for me in range(args.peers):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(setup, me, args, given, theirs))
        process.start()
        ends.append(ours)
        processes.append(process)
    try:
        everybody(ends, "warm up")
        watch.begin()
        for _ in range(args.repeat):
            with watch.average():
                everybody(ends, "average")
        return watch.result(args, largest_error=max(everybody(ends, "error")))
    finally:
        # they may have processes of their own, so they are no daemons
        for process in processes:
            process.kill()


def everybody(ends: list[Any], command: str) -> list[Any]:
    """Tell all processes something and wait for all answers."""
    for end in ends:
        end.send(command)
    answers = [end.recv() for end in ends]
    for answer in answers:
        if isinstance(answer, str):
            raise SystemExit(answer)
    return answers


def _serve(setup: Callable[..., Step], me: int, args: argparse.Namespace, given: Any, pipe: Any) -> None:
    try:
        step = setup(me, args, given)
        result = np.zeros(args.size, dtype=np.float32)
        while True:
            command = pipe.recv()
            if command == "error":
                pipe.send(largest_error(result, args.peers))
            else:
                result = step()
                pipe.send(None)
    except EOFError:
        pass
    except BaseException as error:
        pipe.send(f"peer {me}: {type(error).__name__}: {error}")
        raise


def raise_loopback() -> None:
    """Bring the loopback interface up, which a new network name space has down."""
    with socket.socket() as some, suppress(OSError):
        fcntl.ioctl(some, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))


def loopback_bytes() -> int:
    """Return what has gone over the loopback interface, headers included."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    return 0


def processor_of_all() -> float:
    """Return the seconds of processor that all processes seen here, and those that they waited for, have used."""
    return sum(sum(map(int, fields[11:15])) for fields in _stats()) / TICKS


def resident_of_all() -> int:
    """Return the resident memory of all processes seen here, in bytes; shared pages count more than once."""
    return sum(int(fields[21]) for fields in _stats()) * PAGE


def _stats() -> Iterator[list[str]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            yield path.read_text().rpartition(")")[2].split()
