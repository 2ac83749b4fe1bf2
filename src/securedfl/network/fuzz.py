"""Feeds broken frames to what reads frames: nothing but `FrameError` may come out.

    python -m securedfl.network.fuzz --messages 10000000 [--seed 0]

Each conversation is a few frames as peers send them, of which some bytes were changed, doubled, cut or moved. It is a
function of its seed, so that a conversation that breaks something can be repeated: ``--seed N --messages 1``.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass

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

    def count(self, what: str) -> None:
        """Take it."""

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
    exchange = Exchange(owner, Limits(), lambda: 0.0)
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


def fuzz(messages: int, seed: int) -> Tally:
    """Feed so many messages, and count."""
    tally = Tally()
    while tally.messages < messages:
        source = random.Random(seed)
        data, count = conversation(source)
        try:
            taken = feed(data, source)
        except Exception:
            sys.stderr.write(f"repeat it with: python -m securedfl.network.fuzz --messages 1 --seed {seed}\n")
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
