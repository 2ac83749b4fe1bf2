"""What coalitions learn from shares: brute force on symbols, and statistics on real transcripts."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from itertools import combinations

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.designs.coalitions import components
from securedfl.protocols.shares.layout import layout_for
from securedfl.protocols.shares.shares import shares
from securedfl.simulation import run
from tests.designs.test_coalitions import PROJECTIVE
from tests.protocols.shares.shares_symbols import SymbolicRun, eliminate, joined, span_of


def theorem(design, used, coalition):
    """DESIGN 3.7, written down once more: components of honest peers who share a group without a colluder."""
    edges = [
        (group[0], v)
        for i in used
        for group in design.partition(i)
        if not set(group) & set(coalition)
        for v in group[1:]
    ]
    return joined(design.n, coalition, edges)


@cache
def owners_of(design, strength, size, k):
    """Return who owns coordinate k of the shares of each peer."""
    layout = layout_for(design, design.turns(0, strength), size)
    return [
        [v for g in layout.groups[u].values() for v in g for a, b in [layout.slice_of(g, v)] if a <= k < b]
        for u in range(design.n)
    ]


def refined(design, strength, size, coalition, k):
    """What slices and segments leave of it at coordinate k: only owners see shares, only the segment's owner sums."""
    layout, owners = layout_for(design, design.turns(0, strength), size), owners_of(design, strength, size, k)
    honest = [u for u in range(design.n) if u not in coalition]
    if not any(a <= k < b for u in coalition for a, b in [layout.reduction.segments[u]]):
        return [honest, *([u] for u in honest if set(owners[u]) <= set(coalition))]
    return joined(design.n, coalition, [(u, v) for u in honest for v in owners[u]])


def all_coalitions(n, sizes):
    return [c for size in sizes for c in combinations(range(n), size)]


@pytest.mark.parametrize(
    ("n", "s", "m"), [(9, 3, 3), (9, 3, 4), (9, 3, 2), (10, 3, 3), (7, 2, 4), (5, 2, 5), (3, 2, 3)]
)
def test_every_coalition_learns_exactly_its_components_at_every_coordinate(n, s, m):
    design = best(n, s, 0)
    size = 2 * n if n < 9 else n
    symbolic = SymbolicRun("shares", n, size, design=design, strength=m)
    for coalition in all_coalitions(n, range(1, n)):
        upper = span_of(theorem(design, range(m), coalition))
        total = span_of([[u for u in range(n) if u not in coalition]])
        for k in range(size):
            learned = symbolic.learned(coalition, k)
            assert learned == span_of(refined(design, m, size, coalition, k))
            assert eliminate(learned + upper) == upper, "more than DESIGN 3.7 allows"
            assert eliminate(learned + total) == learned, "the total is always learned"


def test_every_coalition_of_15_learns_exactly_its_components():
    design = PROJECTIVE
    symbolic = SymbolicRun("shares", 15, 15, design=design, strength=7)
    for at, coalition in enumerate(all_coalitions(15, range(1, 15))):
        # all coordinates for few colluders, one in turn for the rest of the 32,766 coalitions
        for k in range(15) if len(coalition) < 3 else [at % 15]:
            assert symbolic.learned(coalition, k) == span_of(refined(design, 7, 15, coalition, k))


def test_the_bound_is_reached_by_who_sees_whole_groups():
    # Stand-ins see more slices of their groups; were every member to see all of them, and everybody all sums, a
    # coalition would learn exactly the components of DESIGN 3.7: the certificate promises no more and no less.
    design = best(9, 3, 0)
    symbolic = SymbolicRun("resilient", 9, 9, design=design, collusion=2)
    for coalition in all_coalitions(9, range(1, 9)):
        groups = [set(group) for i in range(3) for group in design.partition(i) if set(group) & set(coalition)]

        def sees(row, groups=groups):
            within = any({row.sender, row.receiver} <= group for group in groups)
            return within if row.step < 2 else True

        for k in range(9):
            learned = symbolic.learned(coalition, k, sees=sees)
            assert learned == span_of(theorem(design, range(3), coalition))


def test_components_agree_with_the_theorem():
    for n, s, m in [(9, 3, 3), (9, 3, 4), (10, 3, 2), (7, 3, 2), (11, 2, 4)]:
        design = best(n, s, 0)
        for coalition in all_coalitions(n, range(1, 4)):
            found = {frozenset(c) for c in components(design.used(0, m), coalition)}
            assert found == {frozenset(c) for c in theorem(design, range(m), coalition)}


def test_gf2_is_enough():
    # the same question answered over the rationals, for coalitions of up to two
    design = best(9, 3, 0)
    symbolic = SymbolicRun("shares", 9, 9, design=design, strength=2)
    for coalition in all_coalitions(9, (1, 2)):
        for k in range(0, 9, 2):
            assert rational_dimension(symbolic, coalition, k) == len(symbolic.learned(coalition, k))


def rational_dimension(symbolic, coalition, k):
    owners = np.array(symbolic.owners)
    rows = np.array([r.coefficients[: len(owners)] for r in symbolic.at[k] if r.receiver in coalition])
    rows[:, np.isin(owners, coalition)] = 0
    masks = rows[:, symbolic.n * symbolic.size :]
    return rank(rows) - rank(masks)


def rank(matrix):
    rows = [[Fraction(int(x)) for x in row] for row in matrix[:, matrix.any(axis=0)]]
    count = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(count, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[count], rows[pivot] = rows[pivot], rows[count]
        for r in range(count + 1, len(rows)):
            if factor := rows[r][column] / rows[count][column]:
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[count], strict=True)]
        count += 1
    return count


@pytest.mark.parametrize(("n", "s", "m", "bits"), [(9, 3, 3, 32), (9, 3, 3, 64), (10, 3, 2, 32), (4, 2, 3, 32)])
def test_what_any_single_peer_sees_is_uniform(n, s, m, bits):
    # Very regular parameters, so that a pattern would show. Step 0 are shares, step 1 sums of owners.
    w = np.tile(np.array([0.0, 1.0, -1.0, 0.5], dtype=np.float32), 6000)
    out = run(partial(shares, design=best(n, s, 0), strength=m, bits=bits), [w] * n, record=True)
    for peer in range(n):
        for step in (0, 1):
            seen = [message.array for message in out.transcript.received_by([peer]) if message.step == step]
            # one column per place in the codes, so that each bit of the ring is tested, not only the noisy low ones
            columns = np.concatenate(seen).view(np.uint8).reshape(-1, bits // 8)
            for column in columns.T:
                assert chi_square(column) < 255 + 8 * np.sqrt(2 * 255)


def test_what_two_peers_see_of_a_third_is_uniform_together():
    w = np.full(30_000, 0.25, dtype=np.float32)
    design = best(9, 3, 0)
    out = run(partial(shares, design=design, strength=3), [w] * 9, record=True)
    shown = {m.receiver: m.array for m in out.transcript if m.step == 0 and m.sender == 0}
    for a, b in combinations(shown, 2):
        length = min(len(shown[a]), len(shown[b]))
        together = shown[a][:length] + shown[b][:length]
        assert chi_square(together.view(np.uint8)) < 255 + 8 * np.sqrt(2 * 255)


def chi_square(values):
    counts = np.bincount(values, minlength=256)
    expected = len(values) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_no_mask_is_used_twice():
    out = run(
        partial(shares, design=best(9, 3, 0), strength=3),
        [np.zeros(9000, np.float32)] * 9,
        record=True,
        chunk=900,
    )
    words = np.concatenate([m.array for m in out.transcript if m.step == 0])
    pairs = words[: len(words) // 2 * 2].view(np.uint64)
    assert len(np.unique(pairs)) == len(pairs)
