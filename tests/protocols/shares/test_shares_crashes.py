"""Crashes: every step, every peer, half-sent messages included, on the simulated clock of the memory driver."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import best, best_design, strength_for
from securedfl.errors import ConfigError, DesignError, PeerLostError, PrivacyError
from securedfl.protocols import Held, by_name, secret_uniform
from securedfl.simulation import Crash, Delay, Drop, run
from tests.protocols.shares.shares_symbols import SymbolicRun, span_of

RESILIENT = by_name("resilient")
# steps before the commit, and in all
COMMITTED, STEPS = RESILIENT.commit_step, RESILIENT.commit_step + 2


def vectors_of(n):
    source = np.random.default_rng(n)
    return [source.normal(0, 1, 2 * n + 7) for _ in range(n)]


def assert_exact(outcome, vectors):
    mean = np.mean(np.asarray(vectors, dtype=np.longdouble)[list(outcome.members)], axis=0)
    assert np.abs(outcome.average - mean).max() < 2.0**-40


def reaches(peer, n):
    """What still leaves a peer that crashes: nothing, one message, every second one, all but one, all."""
    others = [u for u in range(n) if u != peer]
    return [[], others[:1], others[::2], others[1:], others]


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("n", [5, 9, 15])
def test_any_crash_at_any_step(n, step):
    design, vectors = best_design(n, collusion=1), vectors_of(n)
    for peer in range(n):
        for reached in reaches(peer, n):
            fault = Crash(peer=peer, step=step, reached=frozenset(reached))
            outcome = run(RESILIENT.on(design), vectors, faults=[fault])
            # the driver itself raises if two peers hold different results or name different members
            assert set(outcome.holders) >= set(range(n)) - {peer}
            assert_exact(outcome, vectors)
            if step < COMMITTED or (step == COMMITTED and not reached):
                assert outcome.members == tuple(u for u in range(n) if u != peer), "lost before the commit"
                assert outcome.attempts == 2
            else:
                assert outcome.members == tuple(range(n)), "it had shared, so it is committed"
                assert outcome.attempts == 1


def test_no_crash_costs_little():
    n, d = 9, 40_000
    outcome = run(RESILIENT.on(best(n, 3, 0), collusion=2), [np.zeros(d, np.float32)] * n)
    assert outcome.steps == STEPS
    assert outcome.members == outcome.holders == tuple(range(n))
    assert max(outcome.sent) <= 1.6 * 2 * d * 4 * (n - 1) / n


@pytest.mark.parametrize("n", [5, 9])
def test_two_crashes_in_a_row_of_attempts(n):
    # one before the commit, and one after the commit of the attempt that follows
    design, vectors = best_design(n, collusion=1), vectors_of(n)
    for later in range(COMMITTED, 2 * COMMITTED + 2):
        faults = [Crash(peer=1, step=0), Crash(peer=3, step=later)]
        outcome = run(RESILIENT.on(design), vectors, faults=faults)
        assert set(outcome.holders) >= set(range(n)) - {1, 3}
        assert_exact(outcome, vectors)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_faults_give_the_exact_mean_or_an_error_on_all(data):
    n = data.draw(st.sampled_from([5, 8, 9, 12]))
    vectors = vectors_of(n)
    peers, steps = st.integers(0, n - 1), st.integers(0, 2 * STEPS)
    crash = st.builds(Crash, peer=peers, step=steps, reached=st.frozensets(peers, max_size=n))
    faults = data.draw(st.lists(crash, min_size=1, max_size=3, unique_by=lambda fault: fault.peer))
    try:
        outcome = run(RESILIENT.on(best_design(n, collusion=1)), vectors, faults=faults)
    except (PeerLostError, PrivacyError):
        return
    crashed = {fault.peer for fault in faults}
    assert set(outcome.holders) >= set(range(n)) - crashed
    assert_exact(outcome, vectors)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_lost_and_late_messages_exclude_their_sender_or_nobody(data):
    n = 9
    vectors = vectors_of(n)
    peers, steps = st.integers(0, n - 1), st.integers(0, STEPS)
    drop = st.builds(Drop, sender=peers, receiver=peers, step=steps)
    delay = st.builds(Delay, sender=peers, step=steps, seconds=st.sampled_from([1.0, 59.0, 61.0]))
    faults = data.draw(st.lists(drop, max_size=2)) + data.draw(st.lists(delay, max_size=1))
    if not faults:
        return
    try:
        outcome = run(RESILIENT.on(best(n, 3, 0)), vectors, faults=faults)
    except PeerLostError:
        return
    assert set(range(n)) - set(outcome.holders) <= {fault.sender for fault in faults}
    assert_exact(outcome, vectors)


def test_two_of_one_group_after_the_commit_is_an_error_on_all():
    design = best(9, 3, 0)
    group = design.group(0, 0)
    faults = [Crash(peer=u, step=COMMITTED, reached=frozenset({8})) for u in group[:2]]
    with pytest.raises(PeerLostError, match="do not average the same parameters again among fewer peers"):
        run(RESILIENT.on(design), vectors_of(9), faults=faults)


def test_a_cut_network_never_gives_two_averages():
    # four peers here, five there: only the larger side may go on, and after the commit point neither can
    here, there = range(4), range(4, 9)
    cut = [(a, b) for a in here for b in there] + [(b, a) for a in here for b in there]
    for first in range(STEPS):
        drops = [Drop(sender=a, receiver=b, step=step) for a, b in cut for step in range(first, 60)]
        try:
            outcome = run(RESILIENT.on(best(9, 3, 0)), vectors_of(9), faults=drops)
        except (PeerLostError, PrivacyError):
            continue
        assert set(outcome.members) in (set(there), set(range(9)))
        assert_exact(outcome, vectors_of(9))


def test_a_peer_that_is_not_heard_is_excluded():
    drops = [Drop(sender=2, receiver=u, step=0) for u in range(9)]
    outcome = run(RESILIENT.on(best(9, 3, 0)), vectors_of(9), faults=drops)
    assert outcome.members == outcome.holders == (0, 1, 3, 4, 5, 6, 7, 8)
    assert_exact(outcome, vectors_of(9))


def test_too_few_are_an_error_before_any_sum_is_sent():
    three = best_design(3, collusion=1)
    with pytest.raises(PeerLostError, match="only 2 of 3 peers are left before the commit"):
        run(RESILIENT.on(three), vectors_of(3), faults=[Crash(peer=0, step=0)])
    with pytest.raises(PeerLostError, match="only 8 of 9 peers are left"):
        run(RESILIENT.on(best(9, 3, 0)), vectors_of(9), faults=[Crash(peer=0, step=0)], least_peers=9)
    strong = RESILIENT.on(best_design(5, collusion=3), collusion=3)
    with pytest.raises(PrivacyError, match="ask for at most 2"):
        run(strong, vectors_of(5), faults=[Crash(peer=0, step=0)])
    with pytest.raises(ConfigError, match="at least 3 peers"):
        run(RESILIENT.on(three), vectors_of(3), least_peers=2)


@pytest.mark.parametrize("step", range(STEPS))
def test_no_crash_teaches_two_colluders_more_than_the_total(step):
    # On symbols: everything that a pair ever receives, over all attempts, gives the total over the members and
    # nothing else. In particular a peer lost before the commit is in nothing that anybody can compute.
    n, size = 9, 9
    for peer, reached in [(0, []), (4, [0, 1, 2, 3]), (8, [0, 1, 2, 3, 4, 5, 6, 7])]:
        crash = Crash(peer=peer, step=step, reached=frozenset(reached))
        symbolic = SymbolicRun("resilient", n, size, design=best(n, 3, 0), collusion=2, faults=[crash])
        members = symbolic.outcome.members
        for coalition in combinations([u for u in range(n) if u != peer], 2):
            total = span_of([[u for u in members if u not in coalition]])
            for k in range(size):
                assert symbolic.learned(coalition, k) == total


def test_designs_for_the_remaining_peers_withstand_as_many_colluders():
    left = RESILIENT.on(best(9, 3, 0), seed=7, strength=3).among(8)
    assert left.design == best_design(8, collusion=2, seed=7)
    assert left.options["strength"] == strength_for(left.design, 2)
    with pytest.raises(DesignError, match="grouped needs all 9 peers, but 8 take part"):
        by_name("grouped").on(best(9, 3, 0)).among(8)


@pytest.mark.parametrize("name", ["shares", "resilient"])
def test_nothing_but_masked_shares_leaves_before_the_commit_step(name):
    steps = by_name(name).on(best(9, 3, 0))(0, np.zeros(18), draw=secret_uniform)
    next(steps)
    for _ in range(by_name(name).commit_step - 1):
        assert steps.send({u: np.zeros(6, np.uint64) for u in range(9)})
    with pytest.raises(StopIteration) as stop:
        steps.send({u: np.zeros(6, np.uint64) for u in range(9)})
    assert isinstance(stop.value.value, Held)


def test_shares_start_again_without_a_peer_that_was_lost_before_the_commit():
    vectors = vectors_of(9)
    shares = by_name("shares").on(best(9, 3, 0))
    outcome = run(shares, vectors, faults=[Crash(peer=3, step=0)])
    assert outcome.members == (0, 1, 2, 4, 5, 6, 7, 8)
    assert_exact(outcome, vectors)
    with pytest.raises(PeerLostError, match="'resilient' survives that"):
        run(shares, vectors, faults=[Crash(peer=3, step=1, reached=frozenset({0}))])
