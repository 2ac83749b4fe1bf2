"""The frames of a connection without its socket: order, flow control, and whatever bytes one likes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.errors import PeerLostError
from securedfl.network.wire import frames, streams
from securedfl.network.wire.exchange import Exchange
from securedfl.network.wire.frames import FLOW, HEADER_BYTES, PIECE, WINDOW, Kind
from securedfl.network.wire.streams import Outgoing
from securedfl.network.wire.values import Limits
from tests.network.fuzz import fuzz


class Nothing(Counter):
    """Counts nothing, because nothing may be refused or dropped."""

    def __missing__(self, what):
        raise AssertionError(what)


class End:
    """One end of a connection in memory."""

    def __init__(self, accepted=()):
        self.exchange = Exchange(self, Limits(), Nothing(), lambda: 0.0)
        self.exchange.linked = True
        self.accepted, self.control, self.messages, self.over = set(accepted), [], [], []

    def on_control(self, data):
        self.control.append(data)

    def on_frame(self, kind, payload):
        raise AssertionError((kind, payload))

    def inlet(self, key):
        return self if key in self.accepted else None

    def begin(self, _head, nbytes):
        return memoryview(bytearray(nbytes))

    def arrived(self, head, body):
        self.messages.append((head, bytes(body)))

    def ended(self, reason):
        self.over.append(reason)

    def hear(self, buffers):
        data = b"".join(bytes(buffer) for buffer in buffers)

        def read(into):
            nonlocal data
            count = min(len(into), len(data))
            into[:count], data = data[:count], data[count:]
            return count

        self.exchange.advance(read)


def stream_from(end, key=b"key"):
    return Outgoing("other", key, 1 << 30, end.exchange.ready)


def talk(first, second):
    """Let both say all they have to say; return how many bytes went to the second."""
    there = 0
    while True:
        to_second, to_first = first.exchange.pull(), second.exchange.pull()
        if not to_second and not to_first:
            return there
        there += sum(len(buffer) for buffer in to_second)
        second.hear(to_second)
        first.hear(to_first)


def test_a_reset_that_crosses_the_confirmation_of_the_end_is_no_offence():
    first, second = End(), End([b"key"])
    stream = stream_from(first)
    stream.put(b"", b"data")
    with pytest.raises(PeerLostError, match="did not confirm"):
        stream.finish(timeout=0)
    # all of it arrives, but the sender gives up before it hears so
    while buffers := first.exchange.pull():
        second.hear(buffers)
    stream.cancel()
    assert first.exchange.send(b"more")
    talk(first, second)
    assert (second.messages, second.control) == ([(b"", b"data")], [b"more"])


def test_a_slow_link_may_take_its_time_as_long_as_it_takes_something(monkeypatch):
    clock, moving = [0.0], [True]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    stream = Outgoing("other", b"key", 16 * PIECE, lambda _stream: None)
    stream.channel = 0

    def wait(seconds):
        clock[0] += seconds
        if moving[0]:
            stream.credit(PIECE)
            stream.pull()

    monkeypatch.setattr(stream._changed, "wait", wait)
    stream.put(b"", bytes(10 * PIECE))
    with pytest.raises(PeerLostError, match="did not confirm what it was sent within 1 s"):
        stream.finish(timeout=1.0)
    # a piece in each second, and then nothing
    assert clock[0] == 11


def test_a_receiver_that_takes_a_piece_now_and_then_does_not_hold_up_its_sender(monkeypatch):
    """Others wait for the sender meanwhile, and would take it for the one that does nothing."""
    clock = [0.0]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    stream = Outgoing("other", b"key", 16 * PIECE, lambda _stream: None)
    stream.channel = 0

    def wait(seconds):
        clock[0] += min(seconds, 0.9)
        stream.credit(PIECE)
        stream.pull()

    monkeypatch.setattr(stream._changed, "wait", wait)
    stream.put(b"", bytes(20 * PIECE))
    with pytest.raises(PeerLostError, match="did not take what it was sent within 1 s"):
        stream.put(b"", b"more", timeout=1.0)
    assert clock[0] <= 2


@pytest.mark.parametrize("call", ["put", "finish"])
def test_a_receiver_that_takes_a_byte_now_and_then_does_not_hold_up_its_sender(monkeypatch, call):
    clock = [0.0]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    stream = Outgoing("other", b"key", 4 * PIECE, lambda _stream: None)
    stream.channel = 0

    def wait(seconds):
        clock[0] += seconds
        assert clock[0] < 100, "it was held up"
        stream.credit(1)
        while stream.pull():
            pass

    monkeypatch.setattr(stream._changed, "wait", wait)
    stream.put(b"", bytes(64 * PIECE))
    with pytest.raises(PeerLostError, match="what it was sent within 1 s"):
        stream.put(b"", b"more", timeout=1.0) if call == "put" else stream.finish(1.0)


def test_control_goes_before_bulk():
    end = End()
    stream = stream_from(end)
    stream.put(b"", bytes(4 * PIECE))
    assert frames.read_header(end.exchange.pull()[0][:HEADER_BYTES])[0] is Kind.OPEN
    assert len(end.exchange.pull()[1]) == PIECE
    assert end.exchange.send(b"urgent")
    assert frames.read_header(end.exchange.pull()[0][:HEADER_BYTES])[0] is Kind.CONTROL
    assert len(end.exchange.pull()[1]) == PIECE


def test_an_unread_stream_holds_one_window_and_goes_on_when_it_is_accepted():
    first, second = End(), End()
    stream = stream_from(first)
    body = bytes(range(256)) * (FLOW // 64)
    stream.put(b"head", body)
    assert WINDOW - PIECE <= talk(first, second) <= WINDOW + 1000
    assert not second.messages
    second.exchange.accept(b"key", second)
    talk(first, second)
    assert second.messages == [(b"head", body)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3 * PIECE), max_size=12), st.sampled_from(["before", "between", "after"]), st.booleans())
def test_messages_arrive_whole_and_in_order_whenever_the_stream_is_accepted(lengths, when, two):
    first, second = End(), End([b"key"] if when == "before" else [])
    streams = [stream_from(first, key) for key in ([b"key", b"other"] if two else [b"key"])]
    bodies = [bytes([k]) * length for k, length in enumerate(lengths)]
    for k, body in enumerate(bodies):
        for stream in streams:
            stream.put(bytes([k]), body)
    if when == "between":
        for _ in range(3):
            second.hear(first.exchange.pull())
        if not second.exchange.accept(b"key", second):
            second.accepted.add(b"key")
    for stream in streams:
        stream._closing = True
        first.exchange.ready(stream)
    talk(first, second)
    if when == "after":
        second.exchange.accept(b"key", second)
        talk(first, second)
    assert second.messages == [(bytes([k]), body) for k, body in enumerate(bodies)]
    assert second.over == [""]
    assert streams[0].over
    assert not any(stream.over for stream in streams[1:])


def test_broken_frames_raise_nothing_but_the_named_error():
    tally = fuzz(20_000, seed=1)
    assert tally.messages >= 20_000
    assert tally.taken > 100
    assert tally.refused > 100
