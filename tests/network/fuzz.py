"""Feeds broken frames and messages to what reads them: nothing but `FrameError` may come out.

    python -m tests.network.fuzz --messages 10000000 [--seed 0]

Each conversation is a few frames as peers send them, or a few messages, records and heads of parcels as the log of
three peers makes them, of which some bytes were changed, doubled, cut or moved. Messages that can still be read go to a
core. A conversation is a function of its seed, so that one that breaks something can be repeated:
``--seed N --messages 1``.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache

from securedfl.network import letters
from securedfl.network.core import events as ev
from securedfl.network.core.core import Core
from securedfl.network.core.entries import End, Line, Settings, Try
from securedfl.network.core.messages import Gossip, Result, Stored, decode_record, encode
from securedfl.network.core.state import Rules, State
from securedfl.network.data import parcels
from securedfl.network.wire import frames
from securedfl.network.wire.exchange import Exchange
from securedfl.network.wire.frames import Kind, frame
from securedfl.network.wire.streams import Outgoing
from securedfl.network.wire.values import FrameError, Inlet, Limits

_LENGTHS = (0, 1, 4, 8, 9, 63, 64, 512, 513, 5000)


@dataclass
class Tally:
    """What came of the messages: how many there were, how many conversations were taken whole, how many refused."""

    messages: int = 0
    taken: int = 0
    refused: int = 0


class _Anything:
    """An owner and an inlet that take whatever comes."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def on_control(self, data: bytes) -> None:
        """Take it."""

    def on_frame(self, kind: Kind, payload: bytes) -> None:
        """Take it."""

    def inlet(self, _key: bytes) -> Inlet | None:
        """Accept every second stream."""
        return self if self._source.random() < 0.5 else None

    def begin(self, _head: bytes, nbytes: int) -> memoryview | None:
        """Want short messages only."""
        return memoryview(bytearray(nbytes)) if nbytes < 1 << 16 else None

    def arrived(self, head: bytes, body: memoryview) -> None:
        """Take it."""

    def ended(self, reason: str) -> None:
        """Take it."""


def conversation(source: random.Random) -> tuple[bytes, int]:
    """Return the bytes of a conversation, broken in places, and how many frames it had."""
    parts: list[bytes] = []
    while len(parts) < 12:
        channel = source.choice((0, 1, 2, 3, 0xFFFFFFFF))
        length = source.choice(_LENGTHS)
        if source.random() < 0.6:
            parts += [
                frame(Kind.OPEN, channel, source.randbytes(2)),
                frame(Kind.MESSAGE, channel, frames.message(b"head", length)),
                frame(Kind.DATA, channel, bytes(length)) if length else b"",
                frame(source.choice((Kind.END, Kind.RESET)), channel),
            ]
        else:
            parts.append(frame(source.choice(list(Kind)), channel, source.randbytes(length)))
    for _ in range(source.choice((0, 0, 1, 1, 2))):
        at, other = source.randrange(len(parts)), source.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at] * source.choice((1, 2))
    data = bytearray(b"".join(parts))
    for _ in range(source.choice((0, 1, 1, 2, 8))):
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data[: source.randrange(len(data)) if source.random() < 0.2 else len(data)]), len(parts)


def feed(data: bytes, source: random.Random) -> bool:
    """Let an exchange read bytes in pieces, while it is used from this side as well; return whether it took all."""
    owner = _Anything(source)
    exchange = Exchange(owner, Limits(), Counter(), lambda: 0.0)
    exchange.linked = True
    view, at = memoryview(data), 0

    def read(into: memoryview) -> int:
        nonlocal at
        count = min(len(into), len(view) - at, source.choice((1, 7, 1 << 14)))
        into[:count] = view[at : at + count]
        at += count
        return count

    stream = Outgoing("peer", b"key", 1 << 20, lambda _stream: None)
    stream.put(b"head", b"body")
    try:
        exchange.ready(stream)
        exchange.pull()
        exchange.advance(read)
        exchange.accept(source.randbytes(2), owner)
        exchange.stop(source.randbytes(2), "enough")
        while exchange.pull():
            pass
        exchange.fail("the end")
    except FrameError:
        return False
    return True


class _Trusting:
    """Signs with nothing, and believes everything, so that broken messages get far."""

    def owns(self, _key: bytes) -> bool:
        """Own every key."""
        return True

    def sign(self, _data: bytes) -> bytes:
        """Sign."""
        return b"signed"

    def verify(self, _key: bytes, _data: bytes, _signature: bytes) -> bool:
        """Believe it."""
        return True


def _core(me: int) -> Core:
    roster = tuple(Line(k, f"p{k}", f"h{k}:1", b"key") for k in range(3))
    genesis = State("run", roster, Settings(rounds=3))
    return Core(
        Stored(), me=me, genesis=genesis, rules=Rules(), signer=_Trusting(), incarnation=f"folder {me}", now=0.0
    )


@cache
def _said() -> tuple[bytes, ...]:
    """Return what three peers send and write down in two rounds, and what else travels on links."""
    cores, said = [_core(k) for k in range(3)], dict[bytes, None]()
    happened = [(k, ev.Link(other)) for k in range(3) for other in range(3) if k != other]
    todo: list[tuple[int, ev.Event]] = [*happened, (0, ev.Command(Settings(rounds=4)))]
    for round in range(2):
        todo += [(k, event) for event in (ev.Update(round), ev.Shared(Try(round, 0))) for k in range(3)]
        todo += [(k, Result(round, 0, b"digest")) for k in range(3)]
    for k, event in [*todo, (1, ev.Command(End("enough")))]:
        inbox = [(k, event)]
        while inbox:
            me, heard = inbox.pop(0)
            for action in cores[me].step(heard, 0.0):
                if isinstance(action, ev.Write):
                    said[b"R" + encode(action.record)] = None
                elif isinstance(action, ev.Send):
                    said[encode(action.message)] = None
                    inbox += [(peer, ev.Received(me, action.message)) for peer in action.peers]
    others = (letters.Hello({"name": "x"}, 1.0), letters.Cards((b"certificate",)), letters.Want(1, b"digest", b"key"))
    head, _ = parcels.pack(
        parcels.Position(b"r" * 16, 1, 0, 2, 3), parcels.message_of(parcels.Spec("<f4", 0), memoryview(b""))
    )
    return (*said, *(encode(other) for other in others), b"P" + head)


def _broken(data: bytes, source: random.Random) -> bytes:
    """Return a message of which some bytes were changed, doubled, cut, or taken from another one."""
    changed = bytearray(data)
    for _ in range(source.choice((0, 1, 1, 2, 8))):
        changed[source.randrange(1, len(changed))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
    at = source.randrange(1, len(changed))
    match source.randrange(6):
        case 0:
            del changed[at:]
        case 1:
            changed[at:at] = changed[at : at + source.randrange(1, 50)]
        case 2:
            other = source.choice(_said())
            changed[at:] = other[source.randrange(len(other)) :]
    return bytes(changed)


def feed_messages(source: random.Random) -> tuple[int, bool]:
    """Let what reads messages read broken ones; return how many there were, and whether all could be read."""
    core, count, whole = _core(0), source.randrange(1, 8), True
    for _ in range(count):
        data = _broken(source.choice(_said()), source)
        if data[:1] == b"R":
            whole &= decode_record(data[1:]) is not None
        elif data[:1] == b"P":
            try:
                parcels.read_head(data[1:])
            except FrameError:
                whole = False
        else:
            message = letters.unpack(data)
            whole &= message is not None
            if isinstance(message, Gossip):
                core.step(ev.Received(source.choice((1, 2)), message), 0.0)
            elif isinstance(message, letters.Hello):
                letters.differences({"name": "y"}, message.settings)
    return count, whole


def fuzz(messages: int, seed: int) -> Tally:
    """Feed so many messages, and count."""
    tally = Tally()
    while tally.messages < messages:
        source = random.Random(seed)
        try:
            if seed % 2:
                count, taken = feed_messages(source)
            else:
                data, count = conversation(source)
                taken = feed(data, source)
        except Exception:
            sys.stderr.write(f"repeat it with: python -m tests.network.fuzz --messages 1 --seed {seed}\n")
            raise
        tally.messages += count
        tally.taken += taken
        tally.refused += not taken
        seed += 1
    return tally


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally = fuzz(options.messages, options.seed)
    sys.stdout.write(
        f"{tally.messages:,} messages: {tally.taken:,} conversations were taken whole, {tally.refused:,} refused, "
        "and nothing else happened\n"
    )


if __name__ == "__main__":
    main()
