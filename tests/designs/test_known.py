"""The best known designs: every design is valid, and as good as the literature says."""

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import Design, best, constructed, group_sizes, known, upper_bound
from securedfl.designs.algorithm2 import randomized
from securedfl.designs.constructions.catalogue import construction
from securedfl.designs.constructions.resolvable import resolvable
from securedfl.designs.local_search import local_search
from securedfl.errors import DesignError


def check_by_hand(design: Design) -> None:
    """The definition, written with sets and nothing of the package."""
    met: set[frozenset[int]] = set()
    for partition in design.partitions:
        assert sorted(p for group in partition for p in group) == list(range(design.n))
        for group in partition:
            for pair in combinations(group, 2):
                assert frozenset(pair) not in met
                met.add(frozenset(pair))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(3, 90), s=st.integers(2, 9), seed=st.integers(0, 2**70))
def test_every_design_is_valid_and_has_the_promised_groups(n: int, s: int, seed: int) -> None:
    s = min(s, n)
    design = best(n, s, seed)
    check_by_hand(design)
    assert design.n == n
    assert 1 <= design.gap <= design.bound
    assert design.gap >= constructed(n, s).gap
    if len(group_sizes(n, s)) >= s:
        assert set(design.sizes) <= {s - 1, s}
        assert s in design.sizes
    if n % s == 0:
        assert design.sizes == (s,)
    assert 1 not in design.sizes or (s == 2 and n % 2 == 1 and "sits out" in design.method)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(3, 40), s=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_searches_are_valid_too(n: int, s: int, seed: int) -> None:
    s = min(s, n)
    for design in (
        randomized(n, s, seed, trials=2000),
        local_search(n, s, seed, steps=100),
        constructed(n, s, seed),
    ):
        check_by_hand(design)
        assert design.gap <= upper_bound(group_sizes(n, s)) or design.sizes != tuple(sorted(set(group_sizes(n, s))))


@pytest.mark.parametrize("n", [4, 6, 10, 50, 200, 1000])
def test_pairs_meet_everybody(n: int) -> None:
    assert best(n, 2).gap == n - 1


@pytest.mark.parametrize("n", [3, 5, 9, 51, 201, 999])
def test_pairs_of_an_odd_number_let_one_sit_out(n: int) -> None:
    design = best(n, 2)
    assert design.gap == n
    assert design.sizes == (1, 2)


def test_triples_at_the_bound_for_every_kirkman_order_up_to_3000() -> None:
    missing = [n for n in range(9, 3001, 6) if construction(n, 3).gap != (n - 1) // 2]
    assert missing == []


@pytest.mark.parametrize("n", [9, 15, 21, 33, 51, 69, 93, 105, 165, 195, 237, 285, 321, 399])
def test_kirkman_orders_are_built_as_planned(n: int) -> None:
    assert best(n, 3).gap == (n - 1) // 2


def test_nearly_kirkman_orders_up_to_1000() -> None:
    short = {n: n // 2 - 1 - construction(n, 3).gap for n in range(18, 1001, 6)}
    assert sum(value == 0 for value in short.values()) >= 143
    assert max(short.values()) <= 3
    assert [n for n, value in short.items() if value and n < 200] == [132, 174]


@pytest.mark.parametrize("n", [18, 24, 42, 66, 90, 114, 120, 126, 150, 156, 192, 198, 216, 342])
def test_nearly_kirkman_orders_are_built_as_planned(n: int) -> None:
    assert best(n, 3).gap == n // 2 - 1


def test_other_orders_lose_at_most_one_partition_to_deletion() -> None:
    for n in [*range(16, 100), 250, 251, 500, 502, 778, 998, 1000]:
        if n % 3:
            assert best(n, 3).gap >= construction(n + 3 - n % 3, 3).gap - 1


@pytest.mark.parametrize(
    ("s", "values"),
    [
        (3, {9: 4, 12: 4, 15: 7, 18: 8, 21: 10, 24: 11, 27: 13, 30: 14, 33: 16, 36: 17}),
        (4, {12: 1, 16: 5, 20: 5, 24: 7, 28: 9, 36: 11, 40: 13, 44: 14, 48: 15}),
        (
            5,
            {
                15: 1,
                20: 1,
                25: 6,
                30: 6,
                35: 7,
                40: 8,
                45: 9,
                50: 9,
                55: 11,
                60: 12,
                65: 16,
                90: 18,
                70: 14,
                75: 16,
                80: 16,
                85: 21,
                95: 19,
                100: 21,
                110: 19,
                125: 31,
            },
        ),
        (
            4,
            {
                32: 10,
                52: 17,
                56: 18,
                60: 19,
                64: 21,
                72: 23,
                76: 25,
                80: 26,
                84: 27,
                88: 29,
                96: 31,
                112: 37,
                256: 85,
            },
        ),
    ],
)
def test_best_known_values(s: int, values: dict[int, int]) -> None:
    assert {n: best(n, s).gap for n in values} == values


def test_resolvable_quadruples_up_to_500() -> None:
    missing = [n for n in range(16, 501, 12) if resolvable((n - 1) // 3, 4) is None]
    assert missing == [100]
    for n in (16, 28, 64, 136, 172, 196, 232, 280, 304, 388, 400, 484):
        assert constructed(n, 4).gap == (n - 1) // 3


def test_affine_geometries_meet_the_bound() -> None:
    for q, m in ((3, 4), (4, 3), (5, 3), (7, 2), (8, 2), (9, 2), (11, 2)):
        assert best(q**m, q).gap == (q**m - 1) // (q - 1)


def test_never_fewer_than_the_paper_finds() -> None:
    for n, s in ((10, 3), (12, 3), (13, 3), (17, 4), (20, 4), (26, 5), (29, 4), (36, 6), (60, 6)):
        found = max(randomized(n, s, seed, restarts=200).gap for seed in range(12))
        assert best(n, s).gap >= found


@pytest.mark.parametrize(
    ("n", "s", "gap"),
    [(996, 4, 249), (660, 6, 110), (708, 6, 114), (336, 8, 25), (992, 8, 80), (995, 5, 199)],
)
def test_large_designs_of_large_groups(n: int, s: int, gap: int) -> None:
    assert best(n, s).gap >= gap


GOLDEN = {
    (9, 3, 0): "84373621f4394167",
    (15, 3, 0): "87f47f3a59762375",
    (15, 3, 1): "0dda20185ef55e7b",
    (10, 3, 0): "017ab9eed9e938d4",
    (7, 2, 0): "aef74fea194c3732",
    (20, 2, 4): "0a949f627a66c93c",
    (16, 4, 0): "8dc1542978a0a4da",
    (25, 5, 0): "4f0d3b198c95a82e",
    (30, 3, 0): "6301965897c4d9bf",
    (66, 3, 0): "579c7c51e4105369",
    (69, 3, 2): "0fcc211ee3532d09",
    (90, 3, 0): "57a06c1eee5db98a",
    (126, 3, 0): "1038aed82ad38c0f",
    (31, 4, 7): "25fb0888aadc3cb6",
}


@pytest.mark.parametrize("key", GOLDEN)
def test_a_seed_gives_the_same_design_everywhere(key: tuple[int, int, int]) -> None:
    assert best(*key).hash == GOLDEN[key]


def test_searches_give_the_same_design_everywhere() -> None:
    assert randomized(15, 3, 1).hash == "6f18449c9ce4c098"
    assert local_search(14, 3, 1).hash == "dd3a7351f605d606"


def test_other_seeds_give_other_designs_equally_good() -> None:
    designs = [best(27, 3, seed) for seed in range(5)]
    assert len({design.hash for design in designs}) == 5
    assert {design.gap for design in designs} == {13}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((2, 2), "smallest has 3 peers"),
        ((-1, 3), "smallest has 3 peers"),
        ((9, 1), "smallest group size is 2"),
        ((9, 10), "largest group size is 9"),
        ((9.0, 3), "whole number"),
        ((True, 3), "whole number"),
        ((9, 3, "x"), "seed must be a whole number"),
    ],
)
def test_bad_input_names_the_nearest(arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(DesignError, match=words):
        best(*arguments)


@pytest.fixture
def small_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(known, "KEPT_FROM", 20)
    return tmp_path / "securedfl"


def test_large_designs_are_remembered(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = best(21, 3, 5)
    assert len(list(small_cache.iterdir())) == 1
    monkeypatch.setattr(known, "_searched", None)
    again = best(21, 3, 5)
    assert again == first
    assert again.method == first.method


@pytest.mark.parametrize("damage", ["truncate", "garbage", "flip", "other", "empty"])
def test_a_damaged_cache_is_built_again(small_cache: Path, damage: str) -> None:
    first = best(21, 3, 5)
    (path,) = small_cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "garbage":
        content = bytearray(b"not a zip file")
    elif damage == "flip":
        content[len(content) // 3] ^= 0x55
    elif damage == "other":
        best(24, 3, 5)
        content = bytearray(next(p for p in small_cache.iterdir() if p != path).read_bytes())
    else:
        content = bytearray()
    path.write_bytes(bytes(content))
    assert best(21, 3, 5) == first


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    monkeypatch.setattr(known, "KEPT_FROM", 20)
    assert best(21, 3).gap == 10
