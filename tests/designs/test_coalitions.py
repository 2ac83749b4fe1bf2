"""What coalitions learn from partitions, and what designs withstand: against the definition, and by brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import Design, best, randomized, strength_for, withstands
from securedfl.designs.coalition_search import EXPOSED, PARTIAL, TOTAL, exposure
from securedfl.designs.coalitions import (
    components,
    evaluate,
    exhaustive,
    extent,
    first_and_spread,
    learned,
)
from securedfl.errors import ConfigError, PrivacyError


def by_definition(design: Design, rounds: range, coalition: tuple[int, ...]) -> set[frozenset[int]]:
    """Sets of honest peers joined by groups without a colluder, grown one peer after the other."""
    left = set(range(design.n)) - set(coalition)
    found = set()
    while left:
        todo = [min(left)]
        component = set(todo)
        while todo:
            peer = todo.pop()
            for i in rounds:
                group = set(design.group(peer, i))
                if not group & set(coalition):
                    todo += group - component
                    component |= group
        found.add(frozenset(component))
        left -= component
    return found


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(3, 13),
    s=st.integers(2, 5),
    seed=st.integers(0, 9),
    first=st.integers(0, 30),
    data=st.data(),
)
def test_the_kernel_agrees_with_the_definition(n: int, s: int, seed: int, first: int, data: st.DataObject) -> None:
    design = randomized(n, min(s, n), seed, trials=500)
    strength = data.draw(st.integers(1, design.gap))
    size = data.draw(st.integers(1, min(4, n - 1)))
    coalitions = np.array(list(combinations(range(n), size)))
    labels = design.used(first, strength)
    levels, dimension = learned(labels, coalitions)
    for coalition, level, number in zip(coalitions.tolist(), levels, dimension, strict=True):
        rounds = range(first * strength, (first + 1) * strength)
        sets = by_definition(design, rounds, tuple(coalition))
        assert {frozenset(peers) for peers in components(labels, coalition)} == sets
        assert number == len(sets) - 1
        for peer in range(n):
            own = next((peers for peers in sets if peer in peers), set())
            expected = EXPOSED if len(own) == 1 else PARTIAL if 0 < len(own) < n - size else TOTAL
            assert level[peer] == expected


@settings(max_examples=40, deadline=None)
@given(n=st.integers(4, 13), s=st.integers(2, 4), seed=st.integers(0, 9), data=st.data())
def test_withstanding_is_what_all_coalitions_in_all_rounds_say(n: int, s: int, seed: int, data: st.DataObject) -> None:
    design = randomized(n, min(s, n), seed, trials=500)
    strength = data.draw(st.integers(1, design.gap))
    collusion = data.draw(st.integers(1, min(3, n - 2)))
    expected = all(
        len(by_definition(design, range(start, start + strength), coalition)) == 1
        for start in range(0, design.gap * strength, strength)
        for coalition in combinations(range(n), collusion)
    )
    assert exhaustive(design, strength, collusion)
    assert withstands(design, strength, collusion) == expected


@pytest.mark.parametrize(("n", "s", "collusion"), [(45, 3, 2), (40, 4, 3), (48, 2, 3), (60, 3, 2), (64, 4, 2)])
def test_the_search_finds_what_all_coalitions_show(n: int, s: int, collusion: int) -> None:
    design = best(n, s)
    for strength in (collusion, collusion + 1, collusion + 2):
        for round in (0, design.rotation(strength) // 2):
            labels = design.used(round, strength)
            every = exposure(n, collusion, evaluate(labels), limit=10**6, effort=0, labels=labels)
            searched = exposure(n, collusion, evaluate(labels), limit=0, effort=900, labels=labels)
            assert every.exhaustive
            assert not searched.exhaustive
            assert (searched.severity > (0, 0)) == (every.severity > (0, 0))


def test_who_learns_about_whom() -> None:
    coalitions = list(combinations(range(12), 2))
    labels = best(12, 3).used(0, 2)
    levels, _ = learned(labels, np.array(coalitions))
    found = exposure(12, 2, evaluate(labels), limit=10**6, effort=0)
    for peer in range(12):
        with_peer = [level for coalition, level in zip(coalitions, levels, strict=True) if peer in coalition]
        assert found.levels[peer].tolist() == np.max(with_peer, axis=0).tolist()
    assert found.breaking == sum(EXPOSED in level for level in levels) > 0


def test_the_last_peer_is_given_away_by_the_total() -> None:
    coalition = np.array([list(range(8))])
    levels, dimension = learned(best(9, 3).labels, coalition)
    assert (levels[0].tolist(), dimension.tolist()) == ([TOTAL] * 8 + [EXPOSED], [0])
    assert evaluate(best(9, 3).labels, 3)(coalition)[0][0, :, 8].tolist() == [EXPOSED] * 3


def test_work_is_bounded_and_rounds_that_are_left_out_are_told() -> None:
    design = best(501, 3)
    reach = extent(design, 4, 3)
    assert all(limit == 0 for limit, _ in reach.values())
    searched = [round for round, (_, effort) in reach.items() if effort]
    assert 0 in searched
    assert len(searched) < design.rotation(4)
    assert reach.keys() == set(range(design.rotation(4)))
    assert not exhaustive(design, 4, 3)
    assert first_and_spread(100, 4) == {0, 1, 33, 66}
    assert first_and_spread(3, 4) == {0, 1, 2}
    assert first_and_spread(100, 1) == {0}


def test_designs_made_of_pieces_are_not_taken_for_whole() -> None:
    # rounds that use only partitions within pieces never mix the peers, whoever colludes
    design = best(120, 3)
    apart = [round for round in range(design.rotation(2)) if len(components(design.used(round, 2), ())) > 1]
    assert 0 < len(apart) < design.rotation(2)
    assert not withstands(design, 2, 1)
    assert strength_for(design, 1) > 2


def test_wishes_that_make_no_sense() -> None:
    design = best(9, 3)
    with pytest.raises(ConfigError, match="cannot be negative"):
        strength_for(design, -1)
    with pytest.raises(ConfigError, match="whole number"):
        strength_for(design, True)
    with pytest.raises(PrivacyError, match="ask for at most 7"):
        strength_for(design, 8)
    with pytest.raises(PrivacyError, match="groups of 2 withstand the most"):
        strength_for(Design.everyone(9), 1)
    with pytest.raises(PrivacyError, match="more partitions than 1"):
        strength_for(best(8, 2).first(1), 1)
    assert strength_for(design, 0) == 1


# The lines of the projective space PG(3,2) in seven spreads: the classical solution for Kirkman's fifteen.
PROJECTIVE = Design(
    [
        [0, 0, 0, 1, 2, 3, 4, 1, 4, 2, 3, 1, 3, 4, 2],
        [0, 1, 2, 0, 0, 3, 4, 1, 3, 1, 4, 4, 2, 2, 3],
        [0, 1, 2, 3, 4, 0, 0, 4, 1, 3, 1, 2, 4, 3, 2],
        [0, 1, 2, 3, 2, 2, 4, 0, 0, 4, 3, 1, 4, 1, 3],
        [0, 1, 2, 2, 3, 4, 2, 4, 3, 0, 0, 3, 1, 4, 1],
        [0, 1, 2, 1, 3, 1, 4, 4, 2, 2, 3, 0, 0, 3, 4],
        [0, 1, 2, 3, 1, 4, 1, 2, 3, 4, 2, 4, 3, 0, 0],
    ]
)


def test_numbers_that_were_found_by_brute_force():
    assert withstands(best(9, 3, 0), 3, 2)
    assert not withstands(best(9, 3, 0), 3, 3)
    PROJECTIVE.verify()
    assert withstands(PROJECTIVE, 7, 6)
    assert not withstands(PROJECTIVE, 7, 7)


# Another of Kirkman's triple systems: nobody is isolated by six colluders, but 14 of the 5005 coalitions cut the
# other nine into three and six. Not every design with seven partitions withstands six.
OTHER = Design(
    [
        [0, 1, 2, 3, 3, 1, 3, 4, 4, 2, 4, 1, 0, 0, 2],
        [0, 0, 1, 1, 0, 2, 2, 3, 1, 2, 4, 3, 3, 4, 4],
        [0, 1, 0, 1, 2, 0, 3, 2, 4, 4, 1, 3, 4, 2, 3],
        [0, 1, 2, 3, 4, 4, 2, 3, 0, 3, 4, 0, 1, 2, 1],
        [0, 1, 1, 0, 2, 3, 4, 1, 3, 2, 4, 2, 4, 3, 0],
        [0, 1, 2, 3, 4, 3, 0, 0, 4, 1, 2, 2, 3, 1, 4],
        [0, 1, 2, 3, 2, 4, 1, 4, 1, 0, 0, 3, 2, 3, 4],
    ]
)


def test_as_many_partitions_as_colluders_is_not_always_enough():
    OTHER.verify()
    coalitions = np.array(list(combinations(range(15), 6)))
    found = coalitions[learned(OTHER.labels, coalitions)[1] > 0]
    assert len(found) == 14
    for coalition in found.tolist():
        assert sorted(map(len, components(OTHER.labels, coalition))) == [3, 6]
    assert strength_for(OTHER, 5) == 6
    with pytest.raises(PrivacyError, match=r"cannot withstand 6 colluders; they withstand 5 \(strength 6\)"):
        strength_for(OTHER, 6)


def test_a_peer_that_sits_out_has_fewer_shares():
    # 99 peers in pairs: too many coalitions of five to try, so the argument must count the peer's real groups
    design = best(99, 2, 0)
    assert not exhaustive(design, 6, 5)
    assert not withstands(design, 6, 5)
    assert strength_for(design, 5) == 7
    alone = next(u for u in range(99) if any(len(design.group(u, i)) == 1 for i in range(6)))
    around = {v for i in range(6) for v in design.group(alone, i)} - {alone}
    assert len(around) == 5
    assert (alone,) in components(design.used(0, 6), around)
