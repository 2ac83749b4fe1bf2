"""Peers trained in parallel processes, for models that are worth the start of a process.

Parameters and data lie in shared memory; each worker keeps the optimisers of its own peers. Workers are started
afresh ("spawn"), so a script that uses them needs the usual ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from securedfl import errors
from securedfl.errors import SecuredFLError
from securedfl.learning.models.flat import ALIGNMENT
from securedfl.learning.training.team import Report, Task
from securedfl.learning.training.trainer import (
    Array,
    LocalTrainer,
    PeerData,
    Score,
    State,
    TrainingOptions,
    one_thread,
)

PATIENCE = 5.0
"""Seconds that a worker gets to leave by itself before it is terminated."""


class WorkerLostError(SecuredFLError):
    """A training process ended by itself, for instance because memory ran out."""

    exit_code = 10


@dataclass(frozen=True)
class _Block:
    """The place of an array in shared memory."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class _Job:
    """What one worker needs to start."""

    peers: tuple[int, ...]
    parameters: _Block
    data: dict[int, tuple[_Block, ...]]
    shape: tuple[int, ...]
    classes: int
    options: TrainingOptions


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    peers: tuple[int, ...]


class ProcessTeam:
    """Trains peers in several processes; the numbers are those of `InProcessTeam`.

    Parameters
    ----------
    task
        What to train.
    workers
        How many processes; peers are dealt to them so that each has about the same number of samples.
    """

    def __init__(self, task: Task, workers: int) -> None:
        self._memory: list[SharedMemory] = []
        self._workers: list[_Worker] = []
        try:
            with one_thread():
                self.schema = task.trainer([]).model.schema
            zeros = np.zeros((task.peers, self.schema.size), dtype=np.float32)
            (block,), (self.parameters,) = self._share([zeros])
            context = multiprocessing.get_context("spawn")
            for peers in deal_work([len(share.train) for share in task.shares], workers):
                data = self._share_data({peer: task.data(peer) for peer in peers})
                job = _Job(peers, block, data, task.dataset.shape, task.dataset.classes, task.options)
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_work, args=(job, theirs), daemon=True, name="securedfl worker"
                )
                process.start()
                theirs.close()  # so that a dead worker is seen as the end of the pipe
                self._workers.append(_Worker(process, ours, peers))
            self._call("ready")
        except BaseException:
            self.close()
            raise
        self.workers = len(self._workers)

    def initialise(self) -> None:
        """Write w_k^0 into every row and start all optimisers afresh."""
        self._call("initialise")

    def update(self, round: int, report: Report | None = None) -> list[float]:
        """Train every peer in place and return their mean training losses."""
        return [float(loss) for loss in self._call("update", round, report=report)]

    def evaluate(self) -> list[Score]:
        """Score every peer's row on its own test data."""
        return self._call("evaluate")

    def states(self) -> list[State]:
        """Return copies of all optimiser states."""
        return self._call("state")

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and optimiser states."""
        self.parameters[:] = parameters
        self._call("restore", list(states))

    def close(self) -> None:
        """End the workers and give back the shared memory; may be called twice."""
        for worker in self._workers:
            worker.pipe.close()  # the worker sees the end of the pipe and leaves
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []
        self.parameters = np.empty((0, 0), dtype=np.float32)  # views must go before the memory does
        for memory in self._memory:
            with suppress(BufferError):  # somebody still holds a view: the memory goes when that does
                memory.close()
            with suppress(FileNotFoundError):
                memory.unlink()
        self._memory = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, command: str, argument: Any = None, *, report: Report | None = None) -> list[Any]:
        """Ask all workers, collect one answer per peer as they come, and return them in the order of peers."""
        for worker in self._workers:
            with suppress(OSError):  # a dead worker is reported below
                worker.pipe.send((command, argument))
        answers: dict[int, Any] = {}
        count = sum(len(worker.peers) for worker in self._workers)
        waiting = {worker.pipe: worker for worker in self._workers}
        left = {worker.pipe: len(worker.peers) for worker in self._workers}
        while waiting:
            for ready in wait(list(waiting)):
                worker = waiting[ready]  # type: ignore[index]
                try:
                    peer, answer = worker.pipe.recv()
                except (EOFError, OSError):
                    raise self._lost(worker) from None
                if isinstance(answer, _Failure):
                    raise answer.error()
                answers[peer] = answer
                left[worker.pipe] -= 1
                if not left[worker.pipe]:
                    del waiting[worker.pipe]
                if report is not None:
                    report(len(answers))
        return [answers[peer] for peer in range(count)]

    def _lost(self, worker: _Worker) -> WorkerLostError:
        worker.process.join(PATIENCE)
        return WorkerLostError(
            f"the process that trains peers {', '.join(map(str, worker.peers))} ended (exit code "
            f"{worker.process.exitcode}); memory may have run out: use fewer workers, then continue with --resume"
        )

    def _share(self, arrays: Sequence[Array]) -> tuple[list[_Block], list[Array]]:
        """Copy arrays into one piece of shared memory, each at the beginning of a cache line."""
        offsets = [0]
        for array in arrays:
            offsets.append(-(-(offsets[-1] + array.nbytes) // ALIGNMENT) * ALIGNMENT)
        memory = SharedMemory(create=True, size=max(offsets[-1], 1))
        self._memory.append(memory)
        blocks = [
            _Block(memory.name, offset, array.shape, array.dtype.str)
            for array, offset in zip(arrays, offsets[:-1], strict=True)
        ]
        views = [_view(memory, block) for block in blocks]
        for view, array in zip(views, arrays, strict=True):
            view[...] = array
        return blocks, views

    def _share_data(self, data: dict[int, PeerData]) -> dict[int, tuple[_Block, ...]]:
        """Share the samples of one worker's peers: one piece of memory, because open files are limited."""
        arrays = [array for d in data.values() for array in (d.train_x, d.train_y, d.test_x, d.test_y)]
        blocks = iter(self._share(arrays)[0])
        return {peer: tuple(next(blocks) for _ in range(4)) for peer in data}


def _view(memory: SharedMemory, block: _Block) -> Array:
    array: Array = np.ndarray(block.shape, dtype=block.dtype, buffer=memory.buf, offset=block.offset)
    return array


def deal_work(samples: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Deal peers to workers so that each has about the same number of samples (largest first, to the idlest)."""
    loads = [0] * min(workers, len(samples))
    hands: list[list[int]] = [[] for _ in loads]
    for peer in sorted(range(len(samples)), key=lambda peer: (-samples[peer], peer)):
        idlest = loads.index(min(loads))
        loads[idlest] += samples[peer]
        hands[idlest].append(peer)
    return [tuple(sorted(hand)) for hand in hands]


@dataclass(frozen=True)
class _Failure:
    """An exception on its way from a worker to the team."""

    kind: str
    text: str

    def error(self) -> Exception:
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, SecuredFLError):
            return kind(self.text)
        return WorkerLostError(f"a training process failed: {self.kind}: {self.text}")


def _work(job: _Job, pipe: Connection) -> None:
    """Serve one worker's peers until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    torch.set_num_threads(1)
    memory: dict[str, SharedMemory] = {}

    def attach(block: _Block) -> Array:
        if block.name not in memory:
            memory[block.name] = SharedMemory(name=block.name)
        return _view(memory[block.name], block)

    with suppress(EOFError, OSError):  # the parent is gone or has closed the pipe
        parameters = attach(job.parameters)
        data = {peer: PeerData(*(attach(block) for block in blocks)) for peer, blocks in job.data.items()}
        trainer = LocalTrainer(data, job.shape, job.classes, job.options)
        while True:
            command, argument = pipe.recv()
            for peer, answer in _answers(trainer, parameters, job.peers, command, argument):
                pipe.send((peer, answer))


def _answers(
    trainer: LocalTrainer, parameters: Array, peers: Sequence[int], command: str, argument: Any
) -> Iterator[tuple[int, Any]]:
    """Carry a command out for one peer after the other."""
    if command == "initialise":
        trainer.forget()
    for peer in peers:
        row = parameters[peer]
        answer: Any = None
        try:
            if command == "initialise":
                trainer.initialise(peer, row)
            elif command == "update":
                answer = trainer.update(peer, argument, row)
            elif command == "evaluate":
                answer = trainer.evaluate(peer, row)
            elif command == "state":
                answer = trainer.state(peer)
            elif command == "restore":
                trainer.restore(peer, argument[peer])
        except Exception as error:  # told to the parent, which raises it
            answer = _Failure(type(error).__name__, str(error))
        yield peer, answer
