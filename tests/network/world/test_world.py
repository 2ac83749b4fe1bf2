"""Schedules of the simulated world; `make simulate` runs more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.network.world.runs import options, run, run_seed, shrink
from tests.network.world.schedule import KINDS, Fault, Schedule, draw

SCHEDULES, PARTS = 500, 25


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_violated(part):
    for seed in range(part, SCHEDULES, PARTS):
        outcome = run_seed(seed)
        assert not outcome.kind, f"{outcome.what}\nreplay: python -m tests.network.world --replay {seed}"


def test_a_seed_replays_bit_for_bit():
    one, again = list[str](), list[str]()
    run(draw(5), one.append)
    run(draw(5), again.append)
    assert one == again
    assert len(one) > 10


def test_every_kind_of_fault_is_drawn():
    drawn = {fault.kind for seed in range(SCHEDULES) for fault in draw(seed).faults}
    assert drawn == set(KINDS)
    assert {draw(seed).lying for seed in range(SCHEDULES)} == {0, 1, 2}
    assert {draw(seed).absence for seed in range(SCHEDULES)} == {"go on", "blocks", "wait"}


@pytest.mark.parametrize("protocol", ["shares", "resilient"])
def test_a_link_that_stays_down_leaves_one_of_the_two_out(protocol):
    told: list[str] = []
    cut = Fault(0.6, "cut", 1, 3, lasts=100.0, choice=0.9)
    outcome = run(Schedule(seed=1, peers=5, protocol=protocol, rounds=3, faults=(cut,)), told.append)
    assert not outcome.kind, outcome.what
    assert any("Begin" in line and len(_members(line)) == 4 for line in told)


def _members(line: str) -> list[str]:
    return line.partition("members=(")[2].partition(")")[0].split(", ")


@pytest.mark.parametrize("both", [False, True], ids=["one", "two"])
@pytest.mark.parametrize(("peers", "delay"), [(5, 0.02), (9, 0.1)])
def test_killed_members_take_no_live_one_along(peers, delay, both):
    """Their links end at slightly other times at each of the others; those left finish without them and nobody else."""
    killed = Fault(0.6, "killed after a commit", 1, 2, lasts=40.0, choice=0.0 if both else 0.9)
    for seed in range(30):
        told: list[str] = []
        plan = Schedule(seed, peers, "resilient", rounds=2, delay=delay, prompt=True, faults=(killed,))
        outcome = run(plan, told.append)
        assert not outcome.kind, outcome.what
        lost = {line.partition("lost=(")[2].partition(")")[0] for line in told if "Without" in line}
        assert lost <= {"1,", "2,", "1, 2"}, seed
        # what two peers of one group held is lost with them
        assert both or (lost == {"1,"} and not any("Void" in line for line in told)), seed


def test_a_dead_proposer_costs_no_timeout():
    told: list[str] = []
    crash = Fault(3.0, "crash", 2, lasts=30.0, choice=0.0)
    outcome = run(Schedule(seed=2, peers=5, protocol="resilient", rounds=4, faults=(crash,)), told.append)
    assert not outcome.kind, outcome.what
    assert outcome.counts["averages checked"] >= 16


def test_what_was_granted_is_not_granted_again_when_who_asked_is_gone():
    faults = (Fault(4.65, "renew", 3), Fault(5.08, "gone for good", 3))
    told: list[str] = []
    outcome = run(
        Schedule(seed=1017, peers=4, protocol="shares", rounds=2, delay=0.1, faults=faults),
        told.append,
    )
    assert not outcome.kind, outcome.what
    assert sum("Renew" in line for line in told) == 1


def test_a_lost_update_and_a_peer_gone_for_good_end_the_round_that_needs_both():
    faults = (Fault(2.83, "gone for good", 1, lasts=17.9), Fault(5.03, "update damaged", 2, lasts=0.1))
    told: list[str] = []
    outcome = run(Schedule(seed=207055, peers=4, protocol="shares", rounds=1, delay=0.1, faults=faults), told.append)
    assert not outcome.kind, outcome.what
    assert any("Void(round=0)" in line for line in told)


def test_a_peer_that_loses_its_update_while_others_miss_its_messages_is_still_waited_for_in_vain():
    """Its update is in memory, so that it goes on; those who lack its messages have to say so, or all wait for ever."""
    schedule = draw(1060953)
    outcome = run(replace(schedule, faults=schedule.faults[:2], rounds=1))
    assert not outcome.kind, outcome.what


@pytest.mark.parametrize("protocol", ["shares", "resilient", "grouped", "plain", "classic"])
@pytest.mark.parametrize("peers", [4, 7])
@pytest.mark.parametrize("kind", ["other sums", "withheld"])
def test_a_liar_that_spoils_averages_keeps_nobody_waiting_for_ever(protocol, peers, kind):
    """It sends other sums to each, so that all have another result; or it sends nothing, and says that all is well."""
    told = list[str]()
    spoiled = Fault(0.1, kind, 3, lasts=20.0)
    plan = Schedule(seed=1, peers=peers, protocol=protocol, rounds=2, liars=(3,), faults=(spoiled,))
    outcome = run(plan, told.append)
    assert not outcome.kind, outcome.what


def test_members_that_failed_are_not_waited_for_where_results_differ():
    """Seed 6032282: a liar tells each that it has the same result, and some had none because their links were cut."""
    assert not run_seed(6032282).kind


def test_where_two_lie_two_members_that_are_left_are_too_few_to_be_believed():
    assert not run_seed(15041261).kind


@pytest.mark.parametrize("seed", [1016633, 1091635])
def test_removals_while_others_have_lost_their_disks(seed):
    """What made them wait for ever is shown by core/test_sense.py; the world loses one disk less there since."""
    outcome = run_seed(seed)
    assert not outcome.kind, outcome.what


def test_what_was_decided_in_memory_and_never_written_is_no_decision():
    outcome = run_seed(2098024)
    assert not outcome.kind, outcome.what


def test_nobody_is_gone_for_good_who_alone_knows_that_the_run_has_begun():
    """It had everybody's votes, wrote that, and crashed before it sent its own: the first start needs every peer."""
    outcome = run_seed(4012355)
    assert not outcome.kind, outcome.what


def test_a_liar_that_says_it_has_shared_and_has_not_keeps_nobody_from_going_on():
    outcome = run_seed(2032250)
    assert not outcome.kind, outcome.what


@pytest.mark.parametrize("seed", [303073, 1001508])
def test_a_liar_that_names_several_state_folders_does_not_keep_others_from_going_on(seed):
    """Before the first entry; and later, once it comes with an empty folder, where the protocol needs everybody."""
    outcome = run_seed(seed)
    assert not outcome.kind, outcome.what


@pytest.mark.parametrize("seed", [271, 276, 600])
def test_who_went_on_with_the_votes_of_a_liar_leads_others_on_when_the_liar_lost_its_disk(seed):
    """The schedule of 1014138 in other weather, in which a core that forgets why it went on is stuck."""
    schedule = draw(1014138)
    faults = tuple(schedule.faults[place] for place in (0, 1, 2, 4, 5))
    outcome = run(replace(schedule, seed=seed, faults=faults, rounds=1))
    assert not outcome.kind, outcome.what


def test_what_a_peer_signed_with_its_old_key_keeps_nobody_from_hearing_others():
    """A key is renewed while its peer is down for good, and another peer starts anew: it heard nobody's votes."""
    schedule = draw(1038822)
    faults = tuple(schedule.faults[place] for place in (1, 2, 4, 6))
    outcome = run(replace(schedule, faults=faults, rounds=1))
    assert not outcome.kind, outcome.what


def test_blocks_that_too_few_are_left_of_keep_nobody_waiting_for_ever():
    """Four of six have averaged, then one of them is removed: the other two are no block, and three too few."""
    outcome = run_seed(2249)
    assert not outcome.kind, outcome.what


def test_a_violation_is_shrunk_and_can_be_replayed(monkeypatch):
    from securedfl.network.core.conduct import Conduct

    monkeypatch.setattr(Conduct, "_leave", lambda *args: None)
    found = next(outcome for outcome in map(run_seed, range(40)) if outcome.kind and len(outcome.schedule.faults) > 1)
    small = shrink(found)
    assert small.kind == found.kind
    assert len(small.schedule.faults) <= len(found.schedule.faults)
    assert options(small.schedule).startswith(f"--replay {found.schedule.seed}")
