"""The memory driver: runs the generators of all peers in lock-step, in one process.

For simulation, tests and fault injection. Vectors are cut into chunks that stay in the cache, messages are passed by
reference (read-only), and chunks run on several threads, because numpy and AES release the interpreter lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from securedfl.errors import InvalidInputError, PeerLostError
from securedfl.protocols.base import Array, Draw, Inbox, Outbox, Steps
from securedfl.protocols.randomness import secret_uniform
from securedfl.transport.faults import Fault, Weather
from securedfl.transport.transcript import Transcript

PeerProtocol = Callable[..., Steps]
"""A protocol with its design and options filled in: called as ``protocol(me, w, draw=draw)``."""

Draws = Callable[[int, int], Draw]
"""Gives the draw of a peer for the chunk that starts at an offset."""

CHUNK = 1 << 16
"""Parameters per chunk: 256 KiB of float32, so that the arrays of a few peers fit in a core's cache."""


@dataclass(frozen=True)
class Outcome:
    """What came out of one average.

    Attributes
    ----------
    average
        The result, which all peers hold bit for bit alike.
    sent
        Bytes of parameters that each peer sent.
    steps
        How many times peers sent and then waited.
    seconds
        Simulated time lost to injected delays.
    transcript
        Who received what and when, if recorded.
    """

    average: Array
    sent: tuple[int, ...]
    steps: int
    seconds: float = 0.0
    transcript: Transcript | None = None


def run(
    protocol: PeerProtocol,
    vectors: Sequence[Array],
    *,
    draws: Draws | None = None,
    chunk: int | None = None,
    threads: int | None = None,
    record: bool = False,
    faults: Sequence[Fault] = (),
    deadline: float = 60.0,
) -> Outcome:
    """Average the vectors of all peers and return what peers would hold at the end.

    Parameters
    ----------
    protocol
        Called once per peer and chunk as ``protocol(me, w, draw=draw)``.
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
        vector is one chunk, so that a step is a step of the whole average.

    Raises
    ------
    InvalidInputError
        An input is not finite (the message names peer and place) or the sum overflows.
    PeerLostError
        A message that the protocol needs did not arrive. No peer keeps a result.
    """
    draws = draws or (lambda _peer, _offset: secret_uniform)
    size = check_alike(vectors)
    chunk = max(size, 1) if faults else (chunk or CHUNK)
    starts = range(0, max(size, 1), chunk)
    weather = Weather(faults, deadline)
    average = np.empty_like(vectors[0])

    def work(start: int) -> _Chunk:
        pieces = [vector[start : start + chunk] for vector in vectors]
        peers = [protocol(me, w, draw=draws(me, start)) for me, w in enumerate(pieces)]
        with np.errstate(over="ignore", invalid="ignore"):
            done = _lockstep(peers, weather, record=record)
        if done.average.dtype.kind == "f" and not np.isfinite(done.average).all():
            raise _not_finite(pieces, start)
        _check_agreement(done)
        average[start : start + chunk] = done.average
        done.results.clear()  # free the memory for the next chunk
        return done

    threads = threads or os.cpu_count() or 1
    if threads == 1 or len(starts) == 1 or faults:
        chunks = [work(start) for start in starts]
    else:
        with ThreadPoolExecutor(min(threads, len(starts))) as pool:
            chunks = list(pool.map(work, starts))
    return Outcome(
        average=average,
        sent=tuple(int(count) for count in np.sum([done.sent for done in chunks], axis=0)),
        steps=chunks[0].steps,
        seconds=weather.seconds,
        transcript=Transcript.join([done.transcript for done in chunks]) if record else None,
    )


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


@dataclass
class _Chunk:
    """The outcome of one chunk."""

    results: dict[int, Array]
    sent: list[int]
    steps: int
    transcript: Transcript

    @property
    def average(self) -> Array:
        return next(iter(self.results.values()))


def _lockstep(peers: Sequence[Steps], weather: Weather, *, record: bool) -> _Chunk:
    """Let every peer send, deliver, repeat, until all have returned."""
    results: dict[int, Array] = {}
    lost: dict[int, PeerLostError] = {}
    sent, transcript, step = [0] * len(peers), Transcript(), 0
    inboxes: list[Inbox | None] = [None] * len(peers)
    while True:
        outboxes: dict[int, Outbox] = {}
        for me, peer in enumerate(peers):
            if me in results or me in lost or weather.crashed(me, step):
                continue
            try:
                outboxes[me] = next(peer) if step == 0 else peer.send(inboxes[me] or Inbox())
            except StopIteration as stop:
                results[me] = stop.value
            except PeerLostError as error:
                lost[me] = PeerLostError(f"peer {me}, step {step - 1}: {error}")
        if not outboxes:
            break
        inboxes = [Inbox() for _ in peers]
        for sender, outbox in outboxes.items():
            for receiver, array in outbox.items():
                array.flags.writeable = False  # the receiver gets this very array
                sent[sender] += array.nbytes
                if weather.arrives(sender, receiver, step):
                    inboxes[receiver][sender] = array  # type: ignore[index]
                    if record:
                        transcript.add(step, sender, receiver, array)
        weather.next_step()
        step += 1
    if lost:
        first = next(iter(lost.values()))
        raise PeerLostError(f"{first}; the average is abandoned on all peers, nobody keeps a result")
    return _Chunk(results, sent, step, transcript)


def _check_agreement(done: _Chunk) -> None:
    """Raise if two peers hold different bits: a protocol that lets that happen is broken."""
    for peer, result in done.results.items():
        if result is not done.average and not np.array_equal(result, done.average):
            raise RuntimeError(f"the protocol gave peers {min(done.results)} and {peer} different averages")


def _not_finite(pieces: Sequence[Array], start: int) -> InvalidInputError:
    for peer, piece in enumerate(pieces):
        bad = np.argwhere(~np.isfinite(piece))
        if bad.size:
            return NotFiniteError(peer, start + int(bad[0][0]), float(piece[tuple(bad[0])]))
    return InvalidInputError(
        f"the average overflows {pieces[0].dtype} near parameter {start}; scale the parameters or use float64"
    )


class NotFiniteError(InvalidInputError):
    """A NaN or infinity in a peer's vector, and where."""

    def __init__(self, peer: int, index: int, value: float, name: str = "") -> None:
        self.peer, self.index, self.value = peer, index, value
        place = f"parameter {name!r} (index {index} of the flat vector)" if name else f"index {index}"
        super().__init__(f"peer {peer} has {value} at {place}; only finite numbers can be averaged")
