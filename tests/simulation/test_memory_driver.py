"""The memory driver: chunks, masks as seeds, transcripts, faults."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.errors import InvalidInputError, PeerLostError
from securedfl.protocols import Mask, grouped, paper, plain
from securedfl.protocols.shares.shares import shares
from securedfl.simulation import Crash, Delay, Drop, run


def echo(me, w, draw, *, n):
    """Everybody sends everybody its vector."""
    received = yield {u: w for u in range(n) if u != me}
    return sum((w if u == me else received[u]) for u in range(n)) / n


def seeds(me, w, draw):
    """Each of two peers sends the other a mask as a seed."""
    mine = Mask(bytes([me]) * 32, w.shape, np.uint32)
    received = yield {1 - me: mine}
    return (mine.array + received[1 - me].array).astype(np.float64)


def test_masks_travel_as_seeds_and_are_recorded_as_arrays():
    out = run(seeds, [np.zeros(1000)] * 2, record=True)
    assert out.sent == (32, 32)
    assert [message.array.shape for message in out.transcript] == [(1000,), (1000,)]


def test_receivers_cannot_write_into_what_they_get():
    def scribble(me, w, draw):
        received = yield {1 - me: w.copy()}
        received[1 - me][0] = 1
        return w

    with pytest.raises(ValueError, match="read-only"):
        run(scribble, [np.zeros(3)] * 2)


@pytest.mark.parametrize("protocol", [plain, grouped, paper, shares])
@pytest.mark.parametrize("chunk", [1, 4, 7, 10, 100])
def test_transcripts_of_chunks_hold_every_message_once(protocol, chunk):
    vectors = [np.full(10, float(k)) for k in range(9)]
    out = run(partial(protocol, design=best(9, 3, 0)), vectors, chunk=chunk, record=True)
    np.testing.assert_allclose(out.average, 4, atol=1e-9)
    if protocol is not shares:  # whose slices depend on the size of a chunk
        whole = run(partial(protocol, design=best(9, 3, 0)), vectors, record=True)
        assert {(m.step, m.sender, m.receiver) for m in out.transcript} == {
            (m.step, m.sender, m.receiver) for m in whole.transcript
        }
        assert out.sent == whole.sent


def test_the_outcome_names_members_and_holders():
    out = run(partial(echo, n=3), [np.zeros(2)] * 3)
    assert out.members == out.holders == (0, 1, 2)
    assert (out.attempts, out.steps, out.sent) == (1, 1, (32, 32, 32))


@pytest.mark.parametrize("protocol", [grouped, paper, shares])
@pytest.mark.parametrize("fault", [None, Crash(peer=1, step=0), Crash(peer=4, step=1)])
def test_without_recovery_a_fault_is_an_error_on_all(protocol, fault):
    design = best(9, 3, 0)
    a, b, _ = design.group(0, 0)
    fault = fault or Drop(sender=a, receiver=b, step=0)
    with pytest.raises(PeerLostError, match="abandoned on all peers, nobody keeps a result"):
        run(partial(protocol, design=design), [np.zeros(30)] * 9, faults=[fault])


def test_delays_pass_on_the_simulated_clock():
    vectors, protocol = [np.ones(3)] * 9, partial(shares, design=best(9, 3, 0))
    assert run(protocol, vectors, faults=[Delay(sender=0, step=1, seconds=5.0)]).seconds == 5.0
    with pytest.raises(PeerLostError):
        run(protocol, vectors, faults=[Delay(sender=0, step=1, seconds=5.0)], deadline=4.0)


def test_peers_that_differ_are_refused():
    with pytest.raises(InvalidInputError, match="peer 1 has shape"):
        run(partial(echo, n=2), [np.zeros(3), np.zeros(4)])
    with pytest.raises(InvalidInputError, match="nothing to average"):
        run(partial(echo, n=2), [])


def test_a_protocol_that_lets_peers_disagree_is_found_out():
    def disagree(me, w, draw):
        yield {}
        return w + me

    with pytest.raises(RuntimeError, match="different averages"):
        run(disagree, [np.zeros(3)] * 3)
