"""Attacks on real numbers: they recover exactly the peers that the audit calls exposed.

Computed, not guessed: masks are at least as wide as training demands. Narrow ones are in test_privacy_commands.py.
"""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.attacks.intervals import consensus, interval, narrow
from securedfl.attacks.rings import solve_ring
from securedfl.attacks.solving import max_error, record, recovered, solve
from securedfl.designs import Design, best
from securedfl.designs.algorithm2 import randomized
from securedfl.errors import PrivacyError
from securedfl.privacy.symbolic.algebra import TwoAdic
from securedfl.protocols import InsecureSeededDraw, Schedule, by_name, grouped, paper
from securedfl.protocols.admm import factors
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint, Symbols
from securedfl.protocols.shares.shares import shares
from tests.privacy.audits import audit

AFFINE = best(9, 3, 0)


def vectors(n, size=20, seed=0, dtype=np.float64):
    source = np.random.default_rng(seed)
    return [source.normal(0, 0.05, size).astype(dtype) for _ in range(n)]


def seeded(seed):
    return lambda peer: InsecureSeededDraw(seed, peer=peer)


@given(
    n=st.integers(4, 12),
    s=st.integers(2, 4),
    iterations=st.integers(2, 7),
    rho=st.sampled_from([0.0625, 0.5, 1.0, 3.0, Schedule(start=3.0, decay=0.1)]),
    round=st.integers(0, 3),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_attack_and_audit_agree(n, s, iterations, rho, round, seed, data):
    """Over random designs, coalitions and iteration counts: recovered, claimed and exposed are the same peers."""
    design = randomized(n, min(s, n - 1), seed, trials=2000)
    coalition = tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=min(3, n - 1)))))
    protocol = partial(paper, design=design, rho=rho, iterations=iterations, round=round)
    private = vectors(n, seed=seed)
    loot = solve(record(protocol, private, seeded(seed)).overheard_by(coalition), protocol, n)
    exposed = audit("paper", design, {"rho": rho, "iterations": iterations}, shortcut=False)
    expected = exposed.learns(coalition, round).exposed
    assert loot.claimed == expected
    assert recovered(loot, private) == expected


@pytest.mark.parametrize(
    ("protocol", "dtype", "limit"), [("classic", "f4", 2e-5), ("classic", "f8", 1e-12), ("plain", "f4", 1e-6)]
)
def test_one_peer_steals_everything(protocol, dtype, limit):
    call = by_name(protocol).on(AFFINE)
    private = vectors(9, 10_000, dtype=dtype)
    loot = solve(record(call, private).overheard_by([0]), call, 9)
    assert loot.claimed == recovered(loot, private) == tuple(range(1, 9))
    assert max_error(loot, private, loot.claimed) < limit


def test_group_sums_give_everybody_away_at_iteration_six():
    call = partial(paper, design=AFFINE, iterations=6)
    private = vectors(9)
    loot = solve(record(call, private).overheard_by([4]), call, 9)
    assert recovered(loot, private) == tuple(peer for peer in range(9) if peer != 4)


def test_eighteen_of_thirty_six_pairs_recover_somebody():
    call = partial(paper, design=AFFINE)
    private = vectors(9)
    taken = record(call, private)
    hits = [pair for pair in combinations(range(9), 2) if recovered(solve(taken.overheard_by(pair), call, 9), private)]
    assert len(hits) == 18


def two_messages(first, second, between, rho):
    """Compute w from two messages y^i and y^j of one peer, the paper's Lemma III.1 for any distance.

    With lam^i = rho (y^i - z^i) the messages obey y^{i+1} = c (w + y^i) + (q - c) z^i. Unrolled from y^i to y^j that
    is one equation in w; ``between`` is the consensus z^i, ..., z^{j-1}, which is public.
    """
    c, q = factors(rho)
    known, of_w = first, 0.0
    for z in between:
        known, of_w = c * known + (q - c) * z, c * (of_w + 1)
    return (second - known) / of_w


def test_the_lemma_from_two_messages_in_a_row():
    """Lemma III.1: all-to-all, two iterations."""
    rho, private = 0.0625, vectors(9)
    taken = record(by_name("classic").on(AFFINE, rho=rho), private)
    held = taken.overheard_by([0])
    first, second = (m.array for m in held.messages if m.sender == 5)
    z = consensus(held, AFFINE.everyone(9), rho=rho, at=0)
    assert np.allclose(two_messages(first, second, [z], rho), private[5], atol=1e-12)


def test_meeting_twice_under_a_gap():
    """Two meetings with the whole gap between them give w, whatever happened in between."""
    rho, private = 1.0, vectors(9)
    victim = next(u for u in AFFINE.group(0, 0) if u != 0)
    taken = record(partial(paper, design=AFFINE, rho=rho, iterations=5), private)
    held = taken.overheard_by([0])
    first, second = (m.array for m in held.messages if m.sender == victim and m.step % 2 == 0)
    # every peer knows each z: here from the sums of all groups, one message per group and iteration
    between = []
    own = taken.vectors[0] + taken.draws[0][0] / rho
    z = np.zeros(1)
    c, q = factors(rho)
    for i in range(4):
        y = c * own + q * z
        mates = [m.array for m in held.messages if m.step == 2 * i]
        sums = {AFFINE.group(m.sender, i): m.array for m in held.messages if m.step == 2 * i + 1}
        z = (y + sum(mates)) / 9 + sum(sums.values())
        between.append(z)
        own = taken.vectors[0] + y - z
    assert np.allclose(two_messages(first, second, between, rho), private[victim], atol=1e-12)


def test_ill_conditioning_is_reported():
    """With masks a million wide, rounding of float32 drowns what is determined; the attacker knows it."""
    call = partial(paper, design=AFFINE, rho=1e-6, iterations=6)
    private = vectors(9, 1000, dtype="f4")
    loot = solve(record(call, private).overheard_by([0]), call, 9)
    assert audit("paper", AFFINE, {"rho": 1e-6, "iterations": 6}).learns((0,)).exposed == loot.claimed
    assert recovered(loot, private) == ()
    assert loot.condition > 1e6
    error = max_error(loot, private, loot.claimed)
    assert error > 0.05
    assert error / 20 < max(loot.expected_error.values()) < error * 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_the_expected_error_is_about_the_true_one(n, dtype):
    """Messages are rounded as large as they are, masks included; so is the average, which is made of them."""
    call = by_name("classic").on(Design.everyone(n), rho=1 / 16, iterations=2)
    private = vectors(n, 5000, dtype=dtype)
    loot = solve(record(call, private).overheard_by([0]), call, n)
    assert loot.claimed == tuple(range(1, n))
    error = max_error(loot, private, loot.claimed)
    assert error < max(loot.expected_error.values()) < 10 * error


@given(st.sampled_from([np.float32, np.float64]), st.integers(2, 3), st.data())
@settings(max_examples=15, deadline=None)
def test_shares_are_broken_in_the_ring_exactly_where_the_audit_says(dtype, strength, data):
    coalition = tuple(sorted(data.draw(st.sets(st.integers(0, 8), min_size=1, max_size=4))))
    call = partial(shares, design=AFFINE, strength=strength)
    private = vectors(9, 9, dtype=dtype)
    held = record(call, private).overheard_by(coalition)
    loot = solve_ring(held, partial(call, codec=Symbols()), 9, FixedPoint(), TwoAdic())
    exposed = audit("shares", AFFINE, {"strength": strength}, shortcut=False).learns(coalition).exposed
    assert loot.claimed == exposed
    if exposed:
        assert max_error(loot, private, exposed) <= max(loot.expected_error.values()) * 1.01


@given(st.sampled_from([16, 32, 64]), st.integers(2, 6), st.data())
@settings(max_examples=15, deadline=None)
def test_grouped_is_broken_in_the_field_exactly_where_the_audit_says(bits, iterations, data):
    coalition = tuple(sorted(data.draw(st.sets(st.integers(0, 8), min_size=1, max_size=3))))
    call = partial(grouped, design=AFFINE, iterations=iterations, bits=bits)
    private = vectors(9, 9, dtype=np.float64)
    held = record(call, private).overheard_by(coalition)
    audited = audit("grouped", AFFINE, {"iterations": iterations, "bits": bits}, shortcut=False)
    loot = solve_ring(held, partial(call, codec=Symbols(), bits=None), 9, FieldPoint(bits=bits), audited.ring)
    exposed = audited.learns(coalition).exposed
    assert loot.claimed == exposed
    if exposed:
        assert max_error(loot, private, exposed) <= max(loot.expected_error.values()) * 1.01


def test_attackers_get_nothing_of_the_others():
    held = record(partial(paper, design=AFFINE), vectors(9)).overheard_by([2, 5])
    assert {m.receiver for m in held.messages} == {2, 5}
    assert set(held.parameters) == set(held.draws) == {2, 5}
    with pytest.raises(PrivacyError):
        record(partial(paper, design=AFFINE), vectors(9)).overheard_by([])


class TestNarrowing:
    def test_intervals_hold_and_have_the_stated_widths(self):
        audited = audit("paper", AFFINE, {"rho": 0.5})
        private = vectors(9)
        for round in range(4):
            call = partial(paper, design=AFFINE, rho=0.5, round=round)
            held = record(call, private).overheard_by([0])
            for victim in range(1, 9):
                found = interval(held, AFFINE, victim, rho=0.5, round=round)
                met = [i for i in range(2) if victim in AFFINE.group(0, 2 * round + i)]
                assert (found is None) == (not met)
                if found is not None:
                    low, high = found
                    assert (low <= private[victim] + 1e-12).all()
                    assert (private[victim] <= high + 1e-12).all()
                    assert np.allclose(high - low, audited.averaging.settled.widths[met[0]])

    def test_rotation_halves_the_meetings_and_fixed_neighbours_shrink_by_two_over_k_plus_one(self):
        private = vectors(9, 200)
        fixed = narrow(lambda _: private, AFFINE, rounds=20, rho=0.0625, rotate=False)
        rotated = narrow(lambda _: private, AFFINE, rounds=20, rho=0.0625, rotate=True)
        assert (fixed.messages[-1], rotated.messages[-1]) == (20, 10)
        assert fixed.widths[0] == pytest.approx(16)
        assert fixed.widths[-1] == pytest.approx(16 * 2 / 21, rel=0.2)
        assert rotated.widths[-1] > 1.3 * fixed.widths[-1]
        assert list(fixed.widths) == sorted(fixed.widths, reverse=True)

    def test_parameters_that_move_keep_the_interval_wide(self):
        source = np.random.default_rng(0)
        moving = [[source.normal(0, 1, 50) for _ in range(9)] for _ in range(20)]
        found = narrow(lambda r: moving[r], AFFINE, rounds=20, rho=0.5, rotate=False, drift=4.0)
        still = narrow(lambda _: moving[0], AFFINE, rounds=20, rho=0.5, rotate=False)
        assert found.widths[-1] > 4 * still.widths[-1]
