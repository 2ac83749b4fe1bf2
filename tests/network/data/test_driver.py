"""The network driver at its edges; whole averages are in tests/network/test_peers.py."""

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.errors import PeerLostError
from securedfl.network.data.driver import LocalAttempt, Procedure
from securedfl.network.data.mailbox import Mailbox, StalledError
from securedfl.network.data.parcels import Position
from securedfl.protocols import by_name


class Stuck:
    """A stream whose receiver takes nothing."""

    def __init__(self):
        self.timeouts = []

    def put(self, _head, _body, timeout):
        self.timeouts.append(timeout)
        raise PeerLostError("it did not take what it was sent")


def test_a_sender_that_is_held_up_names_the_receiver_before_others_complain_about_the_sender():
    n, patience = 4, 8.0
    averaging = by_name("shares").on(best(n, 2, 0), strength=2)
    recipe = Procedure(averaging.at(0), 0, n, 100, "float32", averaging.protocol.commit_step)
    attempt, streams = (
        LocalAttempt(recipe, np.zeros(100, np.float32), patience=patience),
        {k: Stuck() for k in (1, 2, 3)},
    )
    attempt.connect(Mailbox(Position(b"r" * 16, 0, 0, 0, 0), recipe.routes()), streams)
    with pytest.raises(StalledError) as error:
        attempt.share()
    (receiver,) = error.value.peers
    # they wait for a message as long as the patience says
    assert streams[receiver].timeouts == [patience / 2]
