"""One attempt, with links that go nowhere: what it asked for, it gives up again."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from securedfl.errors import PeerLostError
from securedfl.network.core.messages import Failure
from securedfl.network.data.driver import Procedure
from securedfl.network.data.parcels import Position
from securedfl.network.data.trial import Trial, Work
from securedfl.protocols.protocol import averaging


class Links:
    """Links to nobody."""

    def __init__(self):
        self.accepted, self.forgotten = [], []

    def accept(self, peer, key, _inlet):
        self.accepted.append((peer, key))

    def open(self, peer, _key):
        raise PeerLostError(f"there is no link to {peer}")

    def forget(self, peer, key):
        self.forgotten.append((peer, key))


def lost(links):
    """Return an attempt that reaches nobody, when it is over, and what it told."""
    told = []
    work = Work(
        place=Position(b"r" * 16, 3, 1, 0, 0),
        members={2: "p2", 5: "p5", 7: "p7"},
        recipe=Procedure(averaging("plain", 3, options={}).at(3), 1, 3, 10, "float32"),
        vector=np.zeros(10, np.float32),
        patience=1.0,
        grace=0.01,
        ready=lambda: (2, 5, 7),
        store=lambda mean: None,
    )
    trial = Trial(links, work, told.append)
    trial.start()
    while not told:
        trial.join(0.01)
    trial.stop()
    trial.join(60)
    return trial, told


def test_an_attempt_that_reaches_nobody_takes_none_of_their_streams_either():
    links = Links()
    _, told = lost(links)
    assert told == [Failure(3, 1, (), (2,))]
    assert {peer for peer, _ in links.accepted} == {"p2", "p7"}
    assert links.forgotten == links.accepted


def test_an_attempt_that_is_over_needs_no_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        seen = weakref.ref(lost(Links())[0])
        assert seen() is None
    finally:
        gc.enable()
