"""Who is sent what: every peer about as much as it sends, because all wait for the busiest line."""

from itertools import chain

import pytest

from securedfl.designs import best, best_design
from securedfl.network.data.routes import find_routes
from securedfl.protocols import by_name
from securedfl.protocols.shares.layout import layout_for

SIZE = 5040 * 11
"""Divides by all sizes of groups and numbers of peers here."""


def lines(protocol, n, design, turn, collusion=1):
    """Return the bytes that each peer is sent and sends before the commit, in parts of a vector of float32."""
    averaging = by_name(protocol).on(design, collusion=collusion)
    before = averaging.protocol.commit_step
    routes = [one[:before] for one in find_routes(averaging.at(turn), n, SIZE, "float32")]
    received = [sum(spec.nbytes for step in one for spec in step.values()) for one in routes]
    sent = [0] * n
    for sender, spec in chain.from_iterable(step.items() for one in routes for step in one):
        sent[sender] += spec.nbytes
    return [[round(count / (4 * SIZE), 2) for count in each] for each in (received, sent)]


@pytest.mark.parametrize(("n", "collusion"), [*((n, 1) for n in range(3, 16)), *((n, 2) for n in (4, 5, 9, 10, 15))])
def test_nobody_is_sent_more_than_one_vector_before_the_commit(n, collusion):
    """With the design that a federation takes by default."""
    design = best_design(n, collusion=collusion)
    for turn in range(design.gap):
        received, sent = lines("resilient", n, design, turn, collusion)
        # seeds are some bytes more
        assert max(received) == max(sent) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("n", [7, 8, 10, 11, 13, 14, 16])
def test_groups_of_two_sizes_are_sent_no_more_than_those_of_one(n):
    """Of a group of three, two slices of a third; the share with the least to send was up to 1.17 vectors for some."""
    design = best(n, 3, 0)
    assert set(design.sizes) == {2, 3}
    for turn in range(design.gap):
        received, sent = lines("shares", n, design, turn)
        assert max(received) <= 0.68
        assert max(sent) <= 0.68


@pytest.mark.parametrize("n", [3, 5, 7, 9, 15])
@pytest.mark.parametrize("strength", [2, 3])
def test_the_choice_is_one_of_a_peers_shares_and_the_same_for_all_lengths(n, strength):
    design = best(n, 3 if n >= 7 else 2, 0)
    at = design.turns(1, strength)
    layouts = [layout_for(design, at, size) for size in (0, 1, 17, 5040, 5041)]
    for u, i in enumerate(layouts[0].remainder):
        assert i in layouts[0].groups[u]
    assert all(layout.remainder == layouts[0].remainder for layout in layouts)


def test_a_peer_that_is_never_in_a_group_has_no_share():
    design = best(3, 2, 0)
    layout = layout_for(design, design.turns(0, 1), 12)
    alone = [u for u, groups in enumerate(layout.groups) if not groups]
    assert len(alone) == 1
    assert [u for u, i in enumerate(layout.remainder) if i == -1] == alone
