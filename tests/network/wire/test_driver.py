"""The network driver over links: an average of real peers has the same bits as one in memory."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.errors import PeerLostError
from securedfl.network.data.driver import LocalAttempt, Procedure
from securedfl.network.data.mailbox import Mailbox
from securedfl.network.data.parcels import Position
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.simulation import run

PLACE = Position(b"links-run-16-byt", 3, 1, 0, 0)
KEY = b"round 3 attempt 1"


class Delivery:
    """The inlet that fills a mailbox with what one peer sends."""

    def __init__(self, mailbox, sender):
        self._mailbox, self._sender = mailbox, sender

    def begin(self, head, nbytes):
        assert self._mailbox.expects(self._sender, head, nbytes)
        return memoryview(bytearray(nbytes))

    def arrived(self, head, body):
        assert self._mailbox.deliver(self._sender, head, body)

    def ended(self, reason):
        if reason:
            self._mailbox.fail(PeerLostError(reason))


@pytest.mark.parametrize(("protocol", "chunk"), [("grouped", 1000), ("shares", 700)])
def test_same_bits_as_the_memory_driver(world, protocol, chunk):
    n, size = 9, 2600
    peers = world.start(n)
    for peer in peers:
        peer.linked(*(other.name for other in peers if other is not peer))
    generator = by_name(protocol).on(best(n, 3, 0)).at(3)
    vectors = [np.random.default_rng(k).normal(size=size).astype(np.float32) for k in range(n)]

    def draws(peer, offset):
        return InsecureSeededDraw(1, peer=peer, round=3, offset=offset)

    results = {}

    def work(me):
        recipe = Procedure(generator, me, n, size, "float32", commit_step=int(protocol == "shares"), chunk=chunk)
        mailbox, links = Mailbox(PLACE, recipe.routes()), peers[me].links
        others = [k for k in range(n) if k != me]
        for k in others:
            links.accept(peers[k].name, KEY, Delivery(mailbox, k))
        streams = {k: links.open(peers[k].name, KEY) for k in others}
        attempt = LocalAttempt(recipe, vectors[me], draws=partial(draws, me), patience=120)
        attempt.connect(mailbox, streams)
        attempt.share()
        results[me] = attempt.finish()
        for stream in streams.values():
            stream.finish(120)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    expected = run(generator, vectors, draws=draws).average
    assert len(results) == n
    for result in results.values():
        np.testing.assert_array_equal(result, expected)
