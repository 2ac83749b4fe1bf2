"""The memory driver: runs the generators of all peers in lock-step, in one process.

For simulation, tests and fault injection. Vectors are cut into chunks that stay in the cache, messages are passed by
reference (read-only), and chunks run on several threads, because numpy and AES release the interpreter lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from securedfl.errors import DesignError, InvalidInputError, whole_number
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.protocol import LEAST_PEERS, Averaging
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Array, Draw, PeerProtocol
from securedfl.simulation.attempts import Outcome, average_chunk
from securedfl.simulation.faults import Fault, Weather
from securedfl.simulation.transcript import Transcript

Draws = Callable[[int, int], Draw]
"""Gives the draw of a peer for the chunk that starts at an offset."""

CHUNK = 1 << 18
"""Parameters per chunk: 1 MiB of float32. Fewer fit a core's cache better, but each peer and chunk costs a fixed
50 to 100 microseconds of Python and key set-up, and short operations make threads wait for each other."""

SLICED_CHUNK = 1 << 19
"""For protocols that cut chunks into slices, whose operations are shorter than the chunk."""


def run(
    protocol: PeerProtocol,
    vectors: Sequence[Array],
    *,
    draws: Draws | None = None,
    chunk: int | None = None,
    threads: int | None = None,
    record: bool = False,
    least_peers: int = LEAST_PEERS,
    deadline: float = 60.0,
    faults: Sequence[Fault] = (),
) -> Outcome:
    """Average the vectors of all peers and return what peers would hold at the end.

    Parameters
    ----------
    protocol
        An `Averaging`, or any function that is called once per peer and chunk as ``protocol(me, w, draw=draw)``.
    vectors
        One array per peer, alike in shape and dtype; cut along axis 0.
    draws
        Where masks come from; by default a cryptographic generator that the operating system seeds.
    chunk, threads
        Parameters per chunk and chunks at a time. Neither changes the result.
    record
        Keep every message. Costs as much memory as was sent.
    faults, deadline
        Faults to inject, and the simulated seconds after which a late message counts as lost. With faults the
        vector is one chunk, so that a step is a step of the whole average. An `Averaging` that can lose peers goes on
        without them (`securedfl.simulation.attempts`).
    least_peers
        Give up rather than average over fewer.

    Raises
    ------
    InvalidInputError
        An input is not finite (the message names peer and place) or the sum overflows.
    PeerLostError
        A message that the protocol needs did not arrive. No peer keeps a result.
    """
    draws = draws or (lambda _peer, _offset: secret_uniform)
    vectors = [np.asarray(vector) for vector in vectors]
    size = check_alike(vectors)
    chunk = _chunk_size(protocol, len(vectors), max(size, 1) if faults else chunk)
    starts = range(0, max(size, 1), chunk)
    weather = Weather(faults, deadline) if faults else None
    average = np.empty_like(vectors[0])
    _keep_freed_memory()

    def work(start: int) -> Outcome:
        pieces = [vector[start : start + chunk] for vector in vectors]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                done = average_chunk(
                    protocol,
                    len(vectors),
                    lambda protocol, me, peer: protocol(me, pieces[peer], draw=draws(peer, start)),
                    weather=weather,
                    record=record,
                    least_peers=least_peers,
                )
        except UnencodableError as error:
            raise _first_not_finite(pieces, start) or error.at(start=start) from None
        mean = done.average
        if mean.dtype.kind == "f" and not np.isfinite(mean).all():
            raise _first_not_finite(pieces, start) or InvalidInputError(
                f"the average overflows {mean.dtype} near parameter {start}; scale the parameters or use float64"
            )
        average[start : start + chunk] = mean
        # its own memory is free for the next chunk
        return replace(done, average=average[start : start + chunk])

    threads = (os.cpu_count() or 1) if threads is None else whole_number(threads, "number of threads", least=1)
    if threads == 1 or len(starts) == 1 or faults:
        chunks = [work(start) for start in starts]
    else:
        with ThreadPoolExecutor(min(threads, len(starts))) as pool:
            chunks = list(pool.map(work, starts))
    return replace(
        chunks[0],
        average=average,
        sent=tuple(int(count) for count in np.sum([done.sent for done in chunks], axis=0)),
        seconds=weather.seconds if weather else 0.0,
        transcript=Transcript.join([done.transcript for done in chunks if done.transcript is not None])
        if record
        else None,
        attempts=max(done.attempts for done in chunks),
    )


def _chunk_size(protocol: PeerProtocol, peers: int, wish: int | None) -> int:
    """Return how many parameters go through the protocol at a time; a protocol for other peers is an error."""
    averaging = protocol if isinstance(protocol, Averaging) else None
    if averaging is not None and averaging.n != peers:
        raise DesignError(f"the design is for {averaging.n} peers, but {peers} take part")
    if wish is not None:
        return whole_number(wish, "chunk", least=1)
    return SLICED_CHUNK if averaging is not None and averaging.protocol.sliced else CHUNK


def _keep_freed_memory() -> None:
    """Let the allocator keep what chunks free instead of returning it, at the price of touching every page again.

    glibc raises its limits to the size of the largest block freed so far, up to 32 MiB; elsewhere this does nothing.
    """
    np.empty(31 << 20, dtype=np.uint8)


def check_alike(vectors: Sequence[Array]) -> int:
    """Return the common length of the peers' vectors; raise `InvalidInputError` if they differ."""
    if not vectors:
        raise InvalidInputError("there is nothing to average: pass one vector per peer")
    first = vectors[0]
    if first.ndim < 1:
        raise InvalidInputError("peers average vectors; put a single number into an array of one")
    for peer, vector in enumerate(vectors):
        if (vector.shape, vector.dtype) != (first.shape, first.dtype):
            raise InvalidInputError(
                f"peer {peer} has shape {vector.shape} and dtype {vector.dtype}, "
                f"but peer 0 has {first.shape} and {first.dtype}; all peers must train the same model"
            )
    return len(first)


def _first_not_finite(pieces: Sequence[Array], start: int) -> NotFiniteError | None:
    for peer, piece in enumerate(pieces):
        bad = np.argwhere(~np.isfinite(piece))
        if bad.size:
            return NotFiniteError(peer, start + int(bad[0][0]), float(piece[tuple(bad[0])]))
    return None


class NotFiniteError(InvalidInputError):
    """A NaN or infinity in a peer's vector, and where."""

    def __init__(self, peer: int, index: int, value: float, name: str = "") -> None:
        self.peer, self.index, self.value = peer, index, value
        place = f"parameter {name!r} (index {index} of the flat vector)" if name else f"index {index}"
        super().__init__(f"peer {peer} has {value} at {place}; only finite numbers can be averaged")
