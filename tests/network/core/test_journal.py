"""The journal of a state folder: what survives a restart."""

from __future__ import annotations

from securedfl.network.core.entries import Peer, Settings
from securedfl.network.core.messages import Boot
from securedfl.network.core.state import State
from securedfl.network.journal import Journal

ROSTER = tuple(Peer(number, f"p{number}", f"host{number}:1", b"key") for number in range(3))


def opened(folder, run="run"):
    journal = Journal(folder, State(run, ROSTER, Settings(1)))
    count = max((record.count for record in journal.records), default=0)
    journal.append([Boot(run, journal.incarnation, count + 1)])
    journal.close()
    return journal.incarnation, count


def test_the_name_of_a_folder_that_others_may_have_heard_stays(tmp_path):
    name, count = opened(tmp_path)
    assert count == 0
    assert opened(tmp_path) == (name, 1)
    other, count = opened(tmp_path, "another run")
    assert count == 0
    assert other != name
