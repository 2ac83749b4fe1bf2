"""The memory driver: runs the generators of all peers in lock-step, in one process.

For simulation, tests and fault injection. Vectors are cut into chunks that stay in the cache, messages are passed by
reference (read-only), and chunks run on several threads, because numpy and AES release the interpreter lock.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from securedfl.designs.design import Design
from securedfl.errors import ConfigError, DesignError, InvalidInputError, PeerLostError
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.masks import values
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.shares.resilient import resilient
from securedfl.protocols.shares.shares import shares
from securedfl.protocols.steps import Array, Committed, Draw, Inbox, Outbox, PeerExcludedError, Steps, whole
from securedfl.simulation.faults import Fault, Weather
from securedfl.simulation.transcript import Transcript

PeerProtocol = Callable[..., Steps]
"""A protocol with its design and options filled in: called as ``protocol(me, w, draw=draw)``."""

Draws = Callable[[int, int], Draw]
"""Gives the draw of a peer for the chunk that starts at an offset."""

Result = Array | tuple[Array, ...]
"""An average, whole or in pieces."""

CHUNK = 1 << 17
"""Parameters per chunk: 512 KiB of float32. Fewer fit a core's cache better, but each peer and chunk costs a fixed
50 to 100 microseconds of Python and key set-up, and short operations make threads wait for each other."""

SLICED_CHUNK = 1 << 19
"""For protocols that cut chunks into slices, whose operations are shorter than the chunk."""


@dataclass(frozen=True)
class Outcome:
    """What came out of one average.

    Attributes
    ----------
    average
        The result, which all peers hold bit for bit alike.
    sent
        Bytes of parameters that each peer sent, masks that travel as seeds counted as such.
    steps
        How many times peers sent and then waited.
    seconds
        Simulated time lost to injected delays.
    transcript
        Who received what and when, if recorded.
    members
        The peers that the average is of.
    holders
        The peers that hold the result: all that neither crashed nor were excluded.
    attempts
        How often a protocol that survives crashes had to start.
    """

    average: Array
    sent: tuple[int, ...]
    steps: int
    seconds: float = 0.0
    transcript: Transcript | None = None
    members: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()
    attempts: int = 1


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
    vectors = [np.asarray(vector) for vector in vectors]
    size = check_alike(vectors)
    _check_peers(protocol, len(vectors))
    if chunk is not None and chunk < 1:
        raise ConfigError(f"a chunk needs at least 1 parameter, not {chunk}")
    chunk = max(size, 1) if faults else (chunk or _chunk_for(protocol))
    starts = range(0, max(size, 1), chunk)
    weather = Weather(faults, deadline) if faults else None
    average = np.empty_like(vectors[0])
    _keep_freed_memory()

    def work(start: int) -> _Chunk:
        pieces = [vector[start : start + chunk] for vector in vectors]
        peers = [protocol(me, w, draw=draws(me, start)) for me, w in enumerate(pieces)]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                done = _lockstep(peers, weather, record=record)
        except UnencodableError as error:
            raise _first_not_finite(pieces, start) or error.at(start=start) from None
        if done.average.dtype.kind == "f" and not np.isfinite(done.average).all():
            raise _not_finite(pieces, start)
        _check_agreement(done)
        average[start : start + chunk] = done.average
        done.results.clear()  # free the memory for the next chunk
        del done.average
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
        seconds=weather.seconds if weather else 0.0,
        transcript=Transcript.join([done.transcript for done in chunks]) if record else None,
        members=chunks[0].members,
        holders=chunks[0].holders,
        attempts=max(done.attempts for done in chunks),
    )


def _chunk_for(protocol: PeerProtocol) -> int:
    generator = protocol.func if isinstance(protocol, partial) else protocol
    return SLICED_CHUNK if generator in (shares, resilient) else CHUNK


def _check_peers(protocol: PeerProtocol, n: int) -> None:
    """Refuse another number of vectors than the design has peers, where the protocol tells its design."""
    design = protocol.keywords.get("design") if isinstance(protocol, partial) else None
    if isinstance(design, Design) and design.n != n:
        raise DesignError(f"the design is for {design.n} peers, but {n} take part")


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


@dataclass
class _Chunk:
    """The outcome of one chunk."""

    results: dict[int, Result]
    sent: list[int]
    steps: int
    transcript: Transcript
    members: tuple[int, ...]
    holders: tuple[int, ...]
    attempts: int

    @cached_property
    def average(self) -> Array:
        return whole(next(iter(self.results.values())))


def _lockstep(peers: Sequence[Steps], weather: Weather | None, *, record: bool) -> _Chunk:
    """Let every peer send, deliver, repeat, until all have returned."""
    returned: dict[int, Any] = {}
    lost: dict[int, PeerLostError] = {}
    sent, transcript, step = [0] * len(peers), Transcript(), 0
    inboxes: list[Inbox] = [Inbox() for _ in peers]
    while True:
        outboxes: dict[int, Outbox] = {}
        for me, peer in enumerate(peers):
            if me in returned or me in lost or (weather and weather.crashed(me, step)):
                continue
            try:
                outboxes[me] = next(peer) if step == 0 else peer.send(inboxes[me])
            except StopIteration as stop:
                returned[me] = stop.value
            except PeerLostError as error:
                lost[me] = type(error)(f"peer {me}, step {step - 1}: {error}")
            except UnencodableError as error:
                raise error.at(peer=me) from None
        if not outboxes:
            break
        inboxes = [Inbox() for _ in peers]
        for sender, outbox in outboxes.items():
            frozen = None  # the last message looked at: often the same one goes to many
            for receiver, message in outbox.items():
                if message is not frozen:
                    frozen = message
                    if isinstance(message, np.ndarray):
                        message.flags.writeable = False  # the receiver gets this very array
                sent[sender] += message.nbytes
                if weather is None or weather.arrives(sender, receiver, step):
                    inboxes[receiver][sender] = message
                    if record:
                        transcript.add(step, sender, receiver, values(message))
        if weather:
            weather.next_step()
        step += 1
    committed = {me: _committed(value, len(peers)) for me, value in returned.items()}
    _raise_if_abandoned(lost, committed)
    memberships = {value.members for value in committed.values()}
    if len(memberships) > 1:
        raise RuntimeError("the protocol let peers average over different members")
    return _Chunk(
        results={me: value.average for me, value in committed.items()},
        sent=sent,
        steps=step,
        transcript=transcript,
        members=memberships.pop(),
        holders=tuple(sorted(committed)),
        attempts=max(value.attempts for value in committed.values()),
    )


def _committed(value: Any, n: int) -> Committed:
    """Name the members of an average: all, unless the protocol says otherwise."""
    return value if isinstance(value, Committed) else Committed(value, tuple(range(n)))


def _raise_if_abandoned(lost: Mapping[int, PeerLostError], committed: Mapping[int, Committed]) -> None:
    """Raise if a member needed a message in vain; peers that the others agreed to go on without do not count."""
    members = {u for result in committed.values() for u in result.members}
    for peer, error in lost.items():
        if not committed or (peer in members and not isinstance(error, PeerExcludedError)):
            raise PeerLostError(f"{error}; the average is abandoned on all peers, nobody keeps a result")
    if not committed:
        raise PeerLostError("no peer is left that holds a result")


def _check_agreement(done: _Chunk) -> None:
    """Raise if two peers hold different bits: a protocol that lets that happen is broken."""
    first = next(iter(done.results.values()))
    for peer, result in done.results.items():
        if not _same_objects(first, result) and not np.array_equal(whole(result), done.average):
            raise RuntimeError(f"the protocol gave peers {min(done.results)} and {peer} different averages")


def _same_objects(a: Result, b: Result) -> bool:
    """Tell whether two results consist of the very same arrays, so that there is nothing to compare."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(operator.is_, a, b))
    return a is b


def _not_finite(pieces: Sequence[Array], start: int) -> InvalidInputError:
    return _first_not_finite(pieces, start) or InvalidInputError(
        f"the average overflows {pieces[0].dtype} near parameter {start}; scale the parameters or use float64"
    )


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
