"""Peers trained in parallel processes, for models that are worth the start of a process.

Parameters lie in shared memory; each worker keeps the samples and optimisers of its own peers. Workers are started
afresh ("spawn"), so a script that uses them needs the usual ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import torch

from securedfl.learning.training.failures import WorkerFailure, WorkerLostError, tried
from securedfl.learning.training.task import Maker, Task
from securedfl.learning.training.team import COMMANDS, Team
from securedfl.learning.training.trainer import one_thread
from securedfl.parameters import Array

PATIENCE = 5.0
"""Seconds that a worker gets to leave by itself before it is terminated."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    peers: tuple[int, ...]


class ProcessTeam(Team):
    """Trains peers in several processes; the numbers are those of `InProcessTeam`.

    Parameters
    ----------
    task, rows
        As of `make_team`.
    workers
        How many processes; peers are dealt to them so that each has about the same work.
    """

    def __init__(self, task: Task, workers: int, rows: int | None = None) -> None:
        super().__init__(task.peers, rows)
        with one_thread():
            self.schema, self.buffers = task.schema(), task.buffers()
        shape, dtype = (rows or task.peers, self.schema.size), self.schema.dtype
        self._memory = SharedMemory(create=True, size=np.dtype(dtype).itemsize * shape[0] * shape[1])
        self._workers: list[_Worker] = []
        try:
            self.parameters = _view(self._memory, shape, dtype)
            context = multiprocessing.get_context("spawn")
            for peers in deal_work(task.loads, workers):
                ours, theirs = context.Pipe()
                job = theirs, task.maker(peers), self._memory.name, shape, dtype
                process = context.Process(target=_work, args=job, daemon=True, name="securedfl worker")
                process.start()
                # so that a dead worker is seen as the end of the pipe
                theirs.close()
                self._workers.append(_Worker(process, ours, peers))
            # when they answer, they are ready
            self.samples()
        except BaseException:
            self.close()
            raise
        self.workers = len(self._workers)

    def close(self) -> None:
        """End the workers and give back the shared memory; may be called twice."""
        for worker in self._workers:
            # the worker sees the end of the pipe and leaves
            worker.pipe.close()
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            for end in (worker.process.terminate, worker.process.kill):
                if worker.process.is_alive():
                    end()
                    worker.process.join(PATIENCE)
        self._workers = []
        # views must go before the memory does
        self.parameters = np.empty((0, 0), dtype=np.float32)
        with suppress(BufferError):  # somebody still holds a view: the memory goes when that does
            self._memory.close()
        with suppress(FileNotFoundError):
            self._memory.unlink()

    def _carry_out(self, command: str, argument: Any, peers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        # by pipe: who has still to answer for how many peers
        left: dict[Any, tuple[_Worker, int]] = {}
        for worker in self._workers:
            work = [(peer, self.row(peer)) for peer in sorted(set(worker.peers).intersection(peers))]
            if work:
                left[worker.pipe] = worker, len(work)
                with suppress(OSError):  # a dead worker is reported below
                    worker.pipe.send((command, argument, work))
        while left:
            for ready in wait(list(left)):
                worker, count = left.pop(ready)
                try:
                    peer, answer = worker.pipe.recv()
                except (EOFError, OSError):
                    raise self._lost(worker) from None
                if isinstance(answer, WorkerFailure):
                    raise answer.error()
                if count > 1:
                    left[worker.pipe] = worker, count - 1
                yield peer, answer

    def _lost(self, worker: _Worker) -> WorkerLostError:
        worker.process.join(PATIENCE)
        return WorkerLostError(
            f"the process that trains peers {', '.join(map(str, worker.peers))} ended (exit code "
            f"{worker.process.exitcode}); memory may have run out: use fewer workers, then continue with --resume"
        )


def deal_work(loads: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Deal peers to workers so that each has about the same load (largest first, to the idlest)."""
    sums = [0] * min(workers, len(loads))
    hands: list[list[int]] = [[] for _ in sums]
    for peer in sorted(range(len(loads)), key=lambda peer: (-loads[peer], peer)):
        idlest = sums.index(min(sums))
        sums[idlest] += loads[peer]
        hands[idlest].append(peer)
    return [tuple(sorted(hand)) for hand in hands]


def _view(memory: SharedMemory, rows: tuple[int, int], dtype: str) -> Array:
    view: Array = np.ndarray(rows, dtype=dtype, buffer=memory.buf)
    return view


def _work(pipe: Connection, make: Maker, name: str, rows: tuple[int, int], dtype: str) -> None:
    """Serve one worker's peers, whose rows lie in the memory of that name, until the pipe ends."""
    # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):  # the parent is gone or has closed the pipe
        memory = SharedMemory(name=name)
        parameters = _view(memory, rows, dtype)
        # what cannot be made is told with the first answer
        trainer = tried(make)
        while True:
            command, argument, work = pipe.recv()
            for peer, row in work:
                answer = trainer
                if not isinstance(trainer, WorkerFailure):
                    answer = tried(partial(COMMANDS[command], trainer, peer, parameters[row], argument))
                pipe.send((peer, answer))
