"""Each construction by itself, against the bound that its theorem states."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs.constructions.arithmetic import divisors, factors, field, prime_power
from securedfl.designs.constructions.base_blocks import round_robin, shipped
from securedfl.designs.constructions.catalogue import construction
from securedfl.designs.constructions.construction import Classes, delete, labels_of, strangers
from securedfl.designs.constructions.difference_matrices import (
    difference_matrices,
    orders,
    partial_transversal,
)
from securedfl.designs.constructions.field_designs import (
    affine_geometry,
    thrice,
    thrice_plus_one,
    twice_plus_one,
)
from securedfl.designs.constructions.nearly_kirkman import doubled, from_frame
from securedfl.designs.constructions.pairwise_balanced import (
    completed,
    inflated,
    thirty_four,
    truncated,
    with_rows,
)
from securedfl.designs.constructions.resolvable import block_design, resolvable
from securedfl.designs.constructions.transversal import (
    cyclic,
    row_limit,
    transversal,
    truncated_and_filled,
)
from securedfl.designs.design import Design


def checked(classes: Classes) -> Design:
    design = Design(labels_of(classes))
    design.verify()
    assert design.sizes == (classes.shape[2],)
    return design


@pytest.mark.parametrize("q", [2, 3, 4, 5, 8, 9, 16, 25, 27, 49])
def test_fields_are_fields(q: int) -> None:
    numbers = field(q)
    elements = range(q)
    assert numbers.add(1, numbers.exponential((q - 1) // 2 if q % 2 else 0)) == 0
    for a in elements:
        assert sorted(numbers.add(a, elements).tolist()) == list(elements)
        if a:
            assert sorted(numbers.multiply(a, elements).tolist()) == list(elements)
        for b in (1, q - 1):
            for c in (1, q // 2):
                left = numbers.multiply(a, numbers.add(b, c))
                assert left == numbers.add(numbers.multiply(a, b), numbers.multiply(a, c))


@given(st.integers(2, 5000))
def test_factors(v: int) -> None:
    product = 1
    for p, exponent in factors(v):
        product *= p**exponent
    assert product == v
    assert all(v % d == 0 for d in divisors(v))
    assert (prime_power(v) is not None) == (len(factors(v)) == 1)


def test_a_field_needs_a_prime_power() -> None:
    with pytest.raises(ValueError, match="not a prime power"):
        field(6)


@pytest.mark.parametrize(("m", "q"), [(2, 2), (2, 3), (3, 3), (2, 4), (2, 9), (3, 5)])
def test_affine_geometry(m: int, q: int) -> None:
    assert checked(affine_geometry(m, q)).gap == (q**m - 1) // (q - 1)


@settings(max_examples=30, deadline=None)
@given(v=st.integers(2, 40), k=st.integers(2, 8))
def test_transversal_designs(v: int, k: int) -> None:
    if k <= row_limit(v):
        design = checked(transversal(k, v))
        assert (design.gap, design.n) == (v, k * v)
    if modular := cyclic(k * v, k):
        assert checked(modular.build()).gap == modular.gap


@pytest.mark.parametrize("order", sorted(orders()))
def test_orthogonal_squares_of_eulers_orders(order: int) -> None:
    assert order % 4 == 2
    assert checked(transversal(3, order)).gap == order
    assert checked(transversal(3, 5 * order)).gap == 5 * order


@pytest.mark.parametrize("order", sorted(difference_matrices()))
def test_difference_matrices(order: int) -> None:
    rows = difference_matrices()[order][1].shape[1]
    assert row_limit(order) == rows >= 5
    assert checked(transversal(rows, order)).gap == order


@pytest.mark.parametrize(("v", "rows"), [(21, 4), (24, 4), (50, 6), (58, 5), (66, 5), (249, 4), (110, 6), (94, 7)])
def test_wilsons_recursion(v: int, rows: int) -> None:
    assert row_limit(v) >= rows
    assert checked(transversal(rows, v)).gap == v


def test_wilsons_recursion_leaves_few_orders_without_transversal_designs() -> None:
    assert [v for v in range(4, 1000) if row_limit(v) < 4] == [6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46]
    assert max(v for v in range(5, 1000) if row_limit(v) < 5) == 74


@pytest.mark.parametrize(("n", "s", "gap"), [(330, 6, 51), (370, 5, 74), (574, 7, 78), (608, 8, 73)])
def test_holes_cost_few_partitions(n: int, s: int, gap: int) -> None:
    incomplete = truncated_and_filled(n, s, lambda points: construction(points, s))
    assert incomplete is not None
    assert checked(incomplete.build()).gap == incomplete.gap >= gap


def test_holes_are_for_orders_without_a_transversal_design() -> None:
    assert truncated_and_filled(996, 4, lambda points: construction(points, 4)) is None
    assert truncated_and_filled(220, 6, lambda points: construction(points, 6)) is None


@pytest.mark.parametrize(("k", "v", "gap"), [(5, 14, 11), (5, 18, 15), (6, 30, 21), (8, 60, 38)])
def test_partial_transversal_designs(k: int, v: int, gap: int) -> None:
    assert checked(partial_transversal(k, v)).gap >= gap


@pytest.mark.parametrize("q", [7, 13, 19, 25, 31, 37, 43, 49])
def test_kirkman_from_fields(q: int) -> None:
    assert checked(twice_plus_one(q)).gap == q
    assert checked(thrice(q)).gap == (3 * q - 1) // 2


@pytest.mark.parametrize("q", [5, 9, 13, 17, 25, 29, 37, 49, 81])
def test_quadruples_from_fields(q: int) -> None:
    assert checked(thrice_plus_one(q)).gap == q


@pytest.mark.parametrize(
    ("r", "parts"),
    [
        (34, thirty_four()),
        (28, with_rows(4, 7, extra=False)),
        (37, with_rows(4, 9, extra=True)),
        (40, completed(block_design(13, 3))),
        (12 * 5 + 3 * 2 + 1, truncated(3, 5, 2)),
        (20 * 5 + 1, truncated(4, 5, 0)),
        (82, inflated(block_design(9, 4), 3)),
    ],
)
def test_pairwise_balanced_designs_cover_every_pair_once(r: int, parts: list[Classes]) -> None:
    pairs = [
        (min(a, b), max(a, b))
        for part in parts
        for block in part.tolist()
        for i, a in enumerate(block)
        for b in block[:i]
    ]
    assert len(pairs) == len(set(pairs)) == r * (r - 1) // 2
    assert max(b for _, b in pairs) == r - 1


@pytest.mark.parametrize(
    ("r", "s"), [(16, 3), (22, 3), (34, 3), (52, 3), (67, 3), (82, 3), (142, 3), (45, 4), (105, 4)]
)
def test_closure(r: int, s: int) -> None:
    assert checked(block_design(r, s)).gap == r


def test_an_unknown_block_design_is_refused() -> None:
    assert resolvable(11, 5) is None
    with pytest.raises(ValueError, match="no resolvable block design"):
        block_design(11, 5)


@pytest.mark.parametrize("u", [9, 15, 21, 33, 45, 18])
def test_doubling(u: int) -> None:
    base = construction(u, 3)
    double = doubled(base)
    assert checked(double.build()).gap == double.gap == 2 * base.gap - base.gap % 2


@pytest.mark.parametrize("n", [66, 90, 114, 156])
def test_frames(n: int) -> None:
    frame = from_frame(n, lambda points: construction(points, 3))
    assert frame is not None
    assert checked(frame.build()).gap == frame.gap == n // 2 - 1


def test_starters_are_valid() -> None:
    for (n, s), starter in shipped("starters").items():
        design = checked(starter.build())
        assert (design.n, design.group_size, design.gap) == (n, s, starter.gap)


def test_rotational_designs_meet_every_pair() -> None:
    for (n, s), design in shipped("rotational").items():
        built = checked(design.build())
        assert (built.n, built.group_size) == (n, s)
        assert built.gap * (s - 1) == n - 1


@pytest.mark.parametrize("n", [2, 4, 8, 30])
def test_round_robin(n: int) -> None:
    assert checked(round_robin(n)).gap == n - 1


def test_deletion_costs_nothing_among_strangers_and_one_partition_otherwise() -> None:
    nearly = labels_of(construction(24, 3).build())
    assert delete(nearly, 2).shape == (11, 22)
    kirkman = labels_of(construction(21, 3).build())
    assert strangers(kirkman, 2) is None
    assert delete(kirkman, 2).shape == (9, 19)
    assert delete(kirkman, 1).shape == (10, 20)
    assert delete(kirkman, 0) is kirkman
    for labels, count in ((nearly, 2), (kirkman, 2), (kirkman, 1)):
        design = Design(delete(labels, count))
        design.verify()
        assert design.sizes == (2, 3)


def test_constructions_know_what_they_build() -> None:
    for n, s in ((36, 3), (48, 3), (54, 3), (60, 4), (64, 4), (90, 5), (70, 5), (84, 6), (98, 7), (63, 3)):
        planned = construction(n, s)
        assert checked(planned.build()).gap == planned.gap
