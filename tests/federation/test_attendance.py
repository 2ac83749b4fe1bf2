"""Who may be the members of an attempt of real peers, by what the federation does when some are missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from securedfl.federation.peers.rules import Attendance
from securedfl.network.core.entries import Begin, Commit, Done, Line, Remove, Settings, Start
from securedfl.network.core.state import Rules, State, reduce, refusal
from securedfl.privacy.absence import Absence, fewest_members

BLOCKS = Absence.chosen("blocks", peers=6, collusion=1, can_lose=True)


def ruled(attendance: Attendance, window: int = 10) -> Rules:
    return Rules(least=attendance.least, window=window, pick=attendance.pick, allows=attendance.allows)


def begun(n: int, rules: Rules) -> State:
    roster = tuple(Line(k, f"p{k}", f"host{k}:1", b"key %d" % k) for k in range(n))
    return reduce(State("run", roster, Settings(rounds=9)), Start(tuple(f"folder {k}" for k in range(n))), rules)


def averaged(state: State, members: tuple[int, ...], rules: Rules) -> State:
    for entry in (Begin(*_now(state), members), Commit(*_now(state)), Done(*_now(state), b"digest")):
        assert not refusal(state, entry, rules), entry
        state = reduce(state, entry, rules)
    return state


def _now(state: State) -> tuple[int, int]:
    return state.now.round, state.now.attempt


def test_a_block_takes_part_or_stays_out():
    attendance = Attendance(BLOCKS, 4)
    rules = ruled(attendance)
    state = averaged(begun(6, rules), (0, 1, 4, 5), rules)
    assert attendance.pick(state, tuple(range(6))) == (0, 1, 4, 5)
    assert attendance.allows(state, (0, 1, 4, 5))
    assert not attendance.allows(state, (0, 1, 2, 4, 5))
    # two new ones are too few to come, and whoever lacks one of the four waits for it
    assert attendance.pick(state, (0, 1, 2, 3, 4)) == ()


def test_after_the_window_blocks_are_dealt_anew():
    attendance = Attendance(BLOCKS, 4)
    rules = ruled(attendance)
    state = averaged(begun(6, rules), (0, 1, 4, 5), rules)
    assert attendance.pick(replace(state, round=12), (0, 1, 2, 3, 4)) == (0, 1, 2, 3, 4)


def test_who_is_removed_leaves_no_block_that_can_never_average():
    """Of (0, 1, 4, 5) and (2, 3) three and two are left: the three are too few, and the two are no block."""
    attendance = Attendance(BLOCKS, 4)
    rules = ruled(attendance)
    state = averaged(begun(6, rules), (0, 1, 4, 5), rules)
    assert not refusal(state, Remove(0), rules)
    left = reduce(state, Remove(0), rules)
    assert attendance.pick(left, (1, 2, 3, 4, 5)) == (1, 2, 3, 4, 5)
    averaged(left, (1, 2, 3, 4, 5), rules)


@given(st.integers(6, 12), st.integers(1, 2), st.data())
def test_all_who_are_left_can_always_average(n, collusion, data):
    missing = Absence.chosen("blocks", peers=n, collusion=collusion, can_lose=True)
    attendance = Attendance(missing, fewest_members(n, collusion))
    rules = ruled(attendance)
    state = begun(n, rules)
    for _ in range(data.draw(st.integers(1, 4))):
        roster = [line.number for line in state.roster]
        some = tuple(sorted(data.draw(st.sets(st.sampled_from(roster)))))
        members = attendance.pick(state, some)
        if not refusal(state, Begin(*_now(state), members), rules):
            state = averaged(state, members, rules)
        gone = Remove(data.draw(st.sampled_from(roster)))
        if data.draw(st.booleans()) and not refusal(state, gone, rules):
            state = reduce(state, gone, rules)
        everybody = tuple(line.number for line in state.roster)
        members = attendance.pick(state, everybody)
        assert not refusal(state, Begin(*_now(state), members), rules)
