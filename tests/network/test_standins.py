"""Members lost after the commit: stand-ins complete the very total that was committed to, and nothing else."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from securedfl.designs import best, best_design, strength_for
from securedfl.errors import PeerLostError
from securedfl.federation.methods import FIRST
from securedfl.protocols import Inbox, Symbols, by_name
from securedfl.protocols.shares.layout import layout_for
from securedfl.protocols.shares.resilient import resilient
from securedfl.simulation import run
from tests.network import toy
from tests.network.test_peers import check_equal
from tests.protocols.shares.shares_symbols import SymbolicRun, span_of

N, ROUND = 5, 2


def share_a_group(design, round, collusion=1):
    """Return the pairs of peers that share a group in the partitions that a round uses."""
    strength = strength_for(design, collusion)
    groups = layout_for(design, design.turns(round, strength), 100).groups
    return {pair for own in groups for group in own.values() for pair in combinations(sorted(group), 2)}


DESIGN = best(N, 2, 0)
TOGETHER = share_a_group(DESIGN, ROUND)
APART = next(pair for pair in combinations(range(N), 2) if pair not in TOGETHER)
AFFINE = best(9, 3, 0)
TWO = next(pair for pair in combinations(range(9), 2) if pair not in share_a_group(AFFINE, 0, 2))


def expected(made, peer):
    """Return the model of the survivors: the mean over the members that the log names for each round."""
    members = [row["members"] for row in made.rows(peer)]

    def average(vectors, round):
        kept = [v for name, v in zip(made.names, vectors, strict=True) if name in members[round]]
        design = DESIGN if len(kept) == N else best_design(len(kept), collusion=1)
        return run(by_name("shares").on(design, **({} if round else FIRST)).at(round), kept).average

    return toy.replay(made.names, 3, average)


def check_members(made, left):
    """Nobody is missing who was not killed; a starved machine may be silent so long that logs name others as lost."""
    logs = "".join((made.folder / f"out-{made.names[k]}" / "peer.log").read_text() for k in left)
    lost = {name for name in made.names if f"{name} is lost" in logs or f"{name} and" in logs or f"and {name}" in logs}
    killed = {name for k, name in enumerate(made.names) if k not in left}
    rows = made.rows(left[0])
    for round, row in enumerate(rows):
        gone = killed if round > ROUND else set()
        assert gone <= set(made.names) - set(row["members"]) <= gone | lost, row
    assert rows[ROUND]["members"] == made.names
    if lost <= killed:
        assert [(row["void"], row["attempts"]) for row in rows] == [(False, 1)] * 4


def run_with(federation, faults):
    # more patience than elsewhere: whoever is starved for seconds counts as lost
    made = federation(N, protocol="resilient", group_size=2, rounds=3, deadlines={"heartbeat": 1.0, "absent": 8})
    processes = made.start_all(faults)
    for k in faults:
        assert processes[k].end() == -signal.SIGKILL, processes[k].errors
    left = [k for k in range(N) if k not in faults]
    assert [processes[k].end() for k in left] == [0] * len(left), [processes[k].errors for k in left]
    return made, left, check_equal(made, left)


@pytest.mark.parametrize("place", ["committed", "step 2", "step 3"])
def test_a_member_is_lost_after_the_commit(federation, place):
    """Killed before reducing, half-way through it, and half-way through gathering: its update counts all the same."""
    made, left, model = run_with(federation, {1: (place, ROUND)})
    np.testing.assert_array_equal(model, expected(made, left[0]))
    check_members(made, left)
    assert made.rows(left[0])[ROUND]["attempts"] == 1


def test_another_member_is_lost_while_stand_ins_finish(federation):
    first, second = APART
    made, left, model = run_with(federation, {first: ("committed", ROUND), second: ("recovering", ROUND)})
    np.testing.assert_array_equal(model, expected(made, left[0]))
    check_members(made, left)


def test_owner_and_stand_in_lost_together_make_the_round_void(federation):
    """What only those two had is lost. The others must not open the sum of fewer, so they keep the round before."""
    pair = next(iter(sorted(TOGETHER)))
    made, left, _ = run_with(federation, dict.fromkeys(pair, ("committed", ROUND)))
    assert [row["void"] for row in made.rows(left[0])] == [False, False, True, False]


def test_crash_and_return_with_stand_ins(federation):
    """The peer that comes back fetches the result that its stand-ins completed."""
    made = federation(N, protocol="resilient", group_size=2, rounds=3, deadlines={"absent": 120})
    processes = made.start_all({1: ("step 2", ROUND)})
    assert processes[1].end() == -signal.SIGKILL, processes[1].errors
    processes[1] = made.start(1)
    assert [process.end() for process in processes] == [0] * N, [process.errors for process in processes]
    # it may be back too late for the last round
    np.testing.assert_array_equal(check_equal(made), expected(made, 0))
    assert made.rows(0)[2]["members"] == made.names


# -- on symbols ---------------------------------------------------------------------------------------------------


def repeatedly(me, w, design, *, finishes, strength=None, collusion=None, codec=None, round=0, draw):
    """Share once and finish several times without different peers, as a network with false alarms may make it."""
    held = yield from resilient(
        me, w, design, strength=strength, collusion=collusion, codec=codec, round=round, draw=draw
    )
    mean = None
    for lost in finishes:
        if me in lost:
            for _ in range(3):
                yield {}
        else:
            mean = yield from held.finish(frozenset(lost))
            if not lost:
                yield {}
    return mean


REPEATEDLY = replace(by_name("resilient"), name="repeatedly", generator=repeatedly, passes_on=())


@pytest.mark.parametrize("finishes", [[(), (4,), ()], [(0,), (8,), (4,)], [TWO[:1], TWO, ()]])
def test_finishing_in_any_way_teaches_two_colluders_nothing_but_the_total(finishes):
    """Whoever is left out and however often: all sums that leave are sums of whole groups under the same masks."""
    n, size = 9, 9
    symbolic = SymbolicRun(REPEATEDLY, n, size, design=AFFINE, collusion=2, finishes=finishes)
    for coalition in combinations(range(n), 2):
        total = span_of([[u for u in range(n) if u not in coalition]])
        for k in range(size):
            assert symbolic.learned(coalition, k) == total


def test_what_nobody_holds_cannot_be_finished():
    pair = sorted(share_a_group(AFFINE, 0, 1))[0]
    with pytest.raises(PeerLostError, match="two peers of one group"):
        run(partial(repeatedly, design=AFFINE, finishes=[pair]), [np.zeros(9)] * 9)
    steps = resilient(0, np.zeros((9, 1)), AFFINE, codec=Symbols(), draw=np.zeros_like)
    next(steps)
    with pytest.raises(PeerLostError, match="nothing arrived"):
        steps.send(Inbox())
