"""What a real peer rounds off with 16 bits: added in the next round if the rest was averaged, else dropped with it."""

from types import SimpleNamespace

import numpy as np
import pytest

from securedfl.federation.bringing import Brought
from securedfl.federation.peers.membership import Membership
from securedfl.federation.peers.run import RealPeer
from securedfl.federation.peers.update import StoredUpdate, carried, find_update, save_update
from securedfl.learning.training.common_optimizer import NO_OPTIMIZER
from securedfl.network.data.averages import Averaged

ME = 2
LEFT = np.array([0.25])
MODEL = np.array([1.0])
COUNTED = Averaged(3, MODEL, members=(0, 1, 2))


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (COUNTED, True),
        (Averaged(3, MODEL, members=(0, 1, 2), fetched=True), True),
        (Averaged(3, MODEL, members=(0, 1, 3)), False),
        (Averaged(3, MODEL, members=(), void=True), False),
        # the others went on meanwhile
        (Averaged(5, MODEL, members=(0, 1, 2)), False),
    ],
)
def test_only_what_belongs_to_an_averaged_update_is_carried_on(outcome, kept):
    assert (carried(LEFT, outcome, 3, ME) is LEFT) is kept
    assert carried(None, outcome, 3, ME) is None


class Rounding:
    """Brings differences of which ever more is rounded off; keeps the residuals that it is given."""

    def __init__(self):
        self.asked = []

    def __call__(self, w, base, *, residual, **_options):
        self.asked.append(residual)
        return Brought(w - base, residual=np.array([0.1 * len(self.asked)]))

    def check(self, vector):
        """Anything can travel."""


def real_peer(folder, first, outcomes):
    """Return a peer whose averages come out as told, and the residuals that its updates are made with."""
    how, left = Rounding(), iter(outcomes)
    peer = SimpleNamespace(
        begin=lambda: SimpleNamespace(round=first, again=False),
        progress=SimpleNamespace(todo=None, state=SimpleNamespace(roster=())),
        model=lambda: MODEL,
        average=lambda vector, round: next(left),
    )
    training = SimpleNamespace(weighted=False, differences=True)
    federation = SimpleNamespace(max_weight=None, training=training, check_weight=lambda _name, _weight: None)
    site = SimpleNamespace(config=SimpleNamespace(out=folder, name="p2"), me=ME, federation=federation, plan=None)
    learner = SimpleNamespace(
        samples=SimpleNamespace(train=1),
        state=dict,
        restore=lambda state: None,
        update=lambda model, round: (model + round, 0.5),
    )
    member = Membership(site, peer, lambda _round: how, NO_OPTIMIZER)
    return RealPeer(member, learner, lambda event: None), how.asked


def test_a_void_round_and_a_restart_drop_what_was_rounded_off(tmp_path):
    outcomes = [COUNTED, Averaged(4, MODEL, void=True), Averaged(5, MODEL, members=(0, 1, 2))]
    peer, asked = real_peer(tmp_path, 3, outcomes)
    for round in (3, 4, 5):
        peer.update(round)
        peer.average(round)
    assert asked[0] is None
    assert asked[1].tolist() == [0.1]
    assert asked[2] is None
    # killed, and started again one round later: whether round 5 counted is not known any more
    peer, asked = real_peer(tmp_path, 6, [])
    peer.update(6)
    assert asked == [None]


def test_a_restart_in_the_same_round_brings_the_same_and_carries_on(tmp_path):
    save_update(tmp_path, StoredUpdate(3, np.array([7.0]), {}, 0.5, LEFT))
    peer, asked = real_peer(tmp_path, 3, [COUNTED])
    peer.update(3)
    peer.average(3)
    assert find_update(tmp_path).vector.tolist() == [7.0]
    peer.update(4)
    assert [residual.tolist() for residual in asked] == [[0.25]]


def test_an_update_that_is_lost_after_others_may_have_seen_shares_of_it_is_never_made_anew(tmp_path):
    peer, asked = real_peer(tmp_path, 3, [])
    running = peer._member.peer
    forgotten, running.forget = [], lambda round: forgotten.append(round) or COUNTED
    running.progress.todo = SimpleNamespace(round=3, again=True)
    assert peer.update(3) == ()
    peer.average(3)
    assert forgotten == [3]
    assert asked == []
    # its residual is lost, too, even if the others could finish without it
    peer.update(4)
    assert asked == [None]
