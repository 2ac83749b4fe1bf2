"""What makes sense to a peer, from what it sees."""

from __future__ import annotations

from securedfl.network.core.entries import Line, Remove, Settings
from securedfl.network.core.messages import Status
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import Rules, State
from securedfl.network.core.views import Views

ROSTER = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in range(6))


def test_a_peer_is_removed_only_while_those_left_can_decide_without_it():
    """Else nobody could admit those who lost their disks, and all would wait for ever (seed 1091635)."""
    state = State("run", ROSTER, Settings(rounds=2), length=1)
    views = Views(0, state, lying=1, now=0.0)
    sense = Sense(Rules(lying=1), views)
    for peer in (0, 1, 2, 4):
        views.take(Status(peer, f"folder {peer}", 1, 1, asks=Remove(4)))
    # of five voters four decide, and three of them would be here
    assert not sense.agrees(Remove(4))
    views.take(Status(3, "folder 3", 1, 1))
    assert sense.agrees(Remove(4))
    # one that comes with another folder cannot vote until it is admitted
    views.strangers[3] = (Status(3, "another", 1, 1), 0.0)
    assert not sense.agrees(Remove(4))
    # where nobody lies, three of five decide
    assert Sense(Rules(), views).agrees(Remove(4))
