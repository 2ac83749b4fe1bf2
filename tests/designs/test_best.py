"""The choice of a design: one rule, whoever asks."""

from itertools import combinations

import numpy as np
import pytest

from securedfl import certify
from securedfl.designs import Design, best, best_design, choose, nearest, randomized, strength_for, withstands
from securedfl.designs.best import GROUP_SIZES
from securedfl.errors import ConfigError, DesignError, PrivacyError


def learns_only_the_total(design: Design, strength: int, coalition: tuple[int, ...], first: int) -> bool:
    honest = [p for p in range(design.n) if p not in coalition]
    reached, todo = {honest[0]}, [honest[0]]
    while todo:
        peer = todo.pop()
        for i in range(first, first + strength):
            group = design.group(peer, i)
            if not set(group) & set(coalition):
                todo += [p for p in group if p not in reached]
                reached.update(group)
    return len(reached) == len(honest)


@pytest.mark.parametrize(("n", "collusion"), [(5, 1), (9, 1), (9, 2), (12, 2), (15, 3), (16, 1)])
def test_the_choice_withstands_every_coalition(n: int, collusion: int) -> None:
    choice = choose(n, collusion=collusion)
    assert choice.exhaustive
    assert choice.collusion == collusion < choice.strength
    for first in range(0, choice.design.gap * choice.strength, choice.strength):
        for coalition in combinations(range(n), collusion):
            assert learns_only_the_total(choice.design, choice.strength, coalition, first)


GOLDEN = {
    (9, 1): "84373621f4394167",
    (9, 2): "84373621f4394167",
    (15, 1): "87f47f3a59762375",
    (15, 6): "87f47f3a59762375",
    (16, 1): "8dc1542978a0a4da",
}


@pytest.mark.parametrize("key", GOLDEN)
def test_the_choice_is_the_same_everywhere(key: tuple[int, int]) -> None:
    assert best_design(key[0], collusion=key[1]).hash == GOLDEN[key]


@pytest.mark.parametrize("n", [4, 6, 10, 16, 21, 26, 27, 40])
@pytest.mark.parametrize("collusion", [1, 2])
def test_no_other_group_size_would_be_preferred(n: int, collusion: int) -> None:
    """Fewer partitions would not do, in groups of any size; and groups of three are taken where they would."""
    choice = choose(n, collusion=collusion)
    designs = {size: best(n, size) for size in GROUP_SIZES if size <= n}
    assert choice.strength == strength_for(choice.design, collusion)
    for design in designs.values():
        for strength in range(collusion + 1, min(choice.strength, design.gap + 1)):
            assert not withstands(design, strength, collusion)
    if designs[3].gap >= choice.strength and withstands(designs[3], choice.strength, collusion):
        assert choice.design == designs[3]


@pytest.mark.parametrize(
    ("n", "collusion", "size"), [(3, 1, 2), (4, 1, 2), (5, 1, 2), (6, 1, 2), (9, 2, 3), (9, 5, 2), (27, 1, 5)]
)
def test_the_group_size_follows_from_the_wish(n: int, collusion: int, size: int) -> None:
    assert best_design(n, collusion=collusion).group_size == size


def test_the_group_size_and_the_maker_may_be_given() -> None:
    assert choose(9, collusion=2, group_size=3).strength == 3
    assert choose(15, collusion=6, group_size=3).strength == 7
    assert choose(9, collusion=0).strength == 1
    assert choose(9, collusion=0).design == best(9, 3)
    own = choose(15, group_size=3, seed=4, make=randomized)
    assert own.design == randomized(15, 3, 4)
    assert choose(9, collusion=2).reason == (
        "groups of 3 with strength 3 withstand 2 colluders (every coalition was tried) at 2.44 vectors per peer"
    )


def test_what_cannot_be_withstood_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(PrivacyError, match="at most 7"):
        choose(9, collusion=8)
    with pytest.raises(PrivacyError, match=r"cannot withstand 5 colluders; they withstand 2 \(strength 3\)"):
        choose(9, collusion=5, group_size=3)
    with pytest.raises(PrivacyError, match="cannot withstand 1 colluder; use smaller groups"):
        choose(9, group_size=9)
    with pytest.raises(ConfigError, match="cannot be negative"):
        choose(9, collusion=-1)
    with pytest.raises(DesignError, match="smallest has 3 peers"):
        choose(2, collusion=0)
    with pytest.raises(DesignError, match="smallest has 3 peers"):
        choose(1)
    with pytest.raises(DesignError, match="must be a whole number, not 'nine'"):
        certify("nine")  # type: ignore[arg-type]
    assert certify(np.int64(9)) == certify(9)  # type: ignore[arg-type]


def test_the_nearest_is_taken_by_those_who_judge_themselves() -> None:
    assert nearest(9, collusion=5, group_size=3) == choose(9, collusion=2, group_size=3)
    assert nearest(9, collusion=8).collusion == 7
    assert nearest(9, group_size=9).collusion == 0
    assert nearest(9, group_size=9).design == best(9, 9)
    assert nearest(9, collusion=2) == choose(9, collusion=2)
