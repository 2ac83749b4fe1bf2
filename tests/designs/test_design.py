"""The value class: checks, hash and files."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securedfl.designs import Design, best, group_sizes, upper_bound
from securedfl.errors import DesignError


def test_groups_and_partitions_agree() -> None:
    design = best(15, 3)
    for i in range(2 * design.gap):
        for peer in range(15):
            group = design.group(peer, i)
            assert peer in group
            assert group in design.partition(i)
            assert group == tuple(sorted(group))
    assert design.partitions == tuple(design.partition(i) for i in range(design.gap))


def test_verify_names_the_pair_and_where() -> None:
    bad = Design.from_partitions([[(0, 1, 2), (3, 4, 5)], [(0, 3), (1, 4), (2, 5)], [(0, 5), (1, 2), (3, 4)]])
    with pytest.raises(DesignError, match="peers 1 and 2 meet twice: in partition 0 and in partition 2"):
        bad.verify()


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], "at least one partition"),
        ([[(0, 1), (1, 2)]], "peer 1 twice"),
        ([[(0, 1), (2, 7)]], "peer 7"),
        ([[(0, 1), (2, 3)], [(0, 2)]], "leaves out peer 1"),
        ([[(0, 1), ()]], "empty group"),
        ([[(0, 1.5)]], "whole numbers"),
    ],
)
def test_bad_partitions_are_refused(partitions: list[list[tuple[int, ...]]], words: str) -> None:
    with pytest.raises(DesignError, match=words):
        Design.from_partitions(partitions)


@pytest.mark.parametrize("labels", [np.zeros(3, int), np.zeros((0, 3), int), np.zeros((2, 3)), np.zeros((2, 1), int)])
def test_bad_labels_are_refused(labels: object) -> None:
    with pytest.raises(DesignError):
        Design(labels)


@given(st.lists(st.integers(-3, 40), min_size=2, max_size=30))
def test_labels_are_renumbered_by_the_smallest_member(row: list[int]) -> None:
    design = Design([row])
    seen = list(dict.fromkeys(row))
    assert design.labels[0].tolist() == [seen.index(value) for value in row]
    assert Design(np.array([row]) * 1000 - 17) == design


def test_files_keep_the_design_and_notice_damage(tmp_path: Path) -> None:
    design = best(10, 3)
    path = tmp_path / "design.json"
    design.save(path)
    assert Design.load(path) == design
    assert set(json.loads(path.read_text())) == {
        "peers",
        "group_size",
        "method",
        "gap",
        "bound",
        "partitions",
        "hash",
    }
    path.write_text(path.read_text().replace(design.hash, "0" * 16))
    with pytest.raises(DesignError, match="hash"):
        Design.load(path)
    path.write_text("{}")
    with pytest.raises(DesignError, match=r"design\.json: not a design.*securedfl design PEERS --out"):
        Design.load(path)
    with pytest.raises(DesignError, match=r"missing\.json: No such file or directory; .*--out"):
        Design.load(tmp_path / "missing.json")


def test_bounds() -> None:
    assert Design.everyone(9).bound == 1
    assert best(9, 3).bound == 4
    assert best(15, 3).bound == 7
    assert best(9, 2).bound == 9
    assert upper_bound((3, 2)) == 1
    assert upper_bound((4, 4, 4)) == 1


@given(n=st.integers(3, 400), s=st.integers(2, 20))
def test_group_sizes_are_as_even_as_promised(n: int, s: int) -> None:
    s = min(s, n)
    sizes = group_sizes(n, s)
    assert sum(sizes) == n
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 2 or (s == 2 and n % 2 and sizes.count(1) == 1)
    if n % s == 0:
        assert set(sizes) == {s}
