"""Members over rounds: in blocks, nobody's parameters follow from totals; the ledger says what does."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from securedfl.designs import best_design
from securedfl.privacy.absence import Absence
from securedfl.privacy.ledger import Attempt, Ledger
from tests.privacy.audits import audit


def exposed(history, n, coalition):
    """Return the honest peers whose parameters follow from totals, if parameters stood still; by rank."""
    honest = [peer for peer in range(n) if peer not in coalition]
    seen = [[peer in members for peer in honest] for members in history]
    rows = np.array(seen, dtype=float).reshape(len(history), len(honest))
    rank = np.linalg.matrix_rank(rows) if len(rows) else 0
    units = np.eye(len(honest))
    return [p for p, unit in zip(honest, units, strict=True) if np.linalg.matrix_rank(np.vstack([rows, unit])) == rank]


@given(st.integers(4, 12), st.integers(1, 2), st.integers(0, 9999))
@example(4, 2, 3457)  # too few are ever there for an average
@settings(max_examples=60, deadline=None)
def test_nobody_follows_from_the_totals_of_blocks_whoever_comes_and_goes(n, collusion, seed):
    choose = random.Random(seed)
    absence = Absence(policy="blocks", block=collusion + 2)
    history = []
    for _ in range(8):
        present = [peer for peer in range(n) if choose.random() < 0.8]
        members = absence.pick(present, history, n)
        assert members <= set(present)
        assert absence.allows(members, history, n)
        if members:
            history.append(members)
    for coalition in combinations(range(n), collusion):
        assert exposed(history, n, coalition) == []


def test_blocks_take_as_many_as_they_can():
    absence = Absence(policy="blocks", block=3)
    everybody = frozenset(range(9))
    assert absence.pick(range(9), [everybody], 9) == everybody
    # one is missing: two more stay out with it
    six = absence.pick(range(8), [everybody], 9)
    assert six == frozenset(range(6))
    # it comes back, and so do they; alone they do not
    assert absence.pick(range(8), [everybody, six], 9) == six
    assert absence.pick(range(9), [everybody, six], 9) == everybody
    # nothing was averaged yet, so nothing can be subtracted
    assert absence.pick(range(7), [], 9) == frozenset(range(7))


def test_an_offer_that_singles_somebody_out_is_refused():
    absence, everybody = Absence(policy="blocks", block=3), frozenset(range(9))
    assert not absence.allows(range(8), [everybody], 9)
    assert absence.allows(range(6), [everybody], 9)
    assert not absence.allows(range(1, 9), [frozenset(range(6))], 9)
    waiting = Absence(policy="wait")
    assert (waiting.allows(range(8), [], 9), waiting.allows(range(9), [], 9)) == (False, True)
    assert waiting.pick(range(8), [], 9) == frozenset()
    assert Absence(policy="go on").allows(range(8), [everybody], 9)


@pytest.mark.parametrize(
    ("policy", "peers", "collusion", "can_lose", "chosen", "words"),
    [
        (None, 7, 1, True, "blocks", "blocks of at least 3"),
        (None, 6, 1, True, "go on", "tell that peer's update"),
        (None, 5, 1, True, "go on", "tell that peer's update"),
        # three members are the fewest, so nobody can be missing
        (None, 3, 1, True, "go on", "over all peers"),
        ("go on", 4, 2, True, "go on", "over all peers"),
        (None, 9, 3, True, "go on", "tell that peer's update"),
        (None, 9, 2, True, "blocks", "2 peers who pool what they received can compute sums over two or more other"),
        ("wait", 9, 1, True, "wait", "as long as the roster stays the same"),
        ("go on", 9, 1, True, "go on", "tell that peer's update"),
        ("blocks", 9, 1, False, "wait", "over all peers"),
    ],
)
def test_the_default_is_blocks_where_there_are_two(policy, peers, collusion, can_lose, chosen, words):
    found = Absence.chosen(policy, peers=peers, collusion=collusion, can_lose=can_lose)
    assert (found.policy, found.block) == (chosen, collusion + 2)
    assert words in found.sentence


def test_a_liar_can_choose_who_is_missing_and_the_certificate_says_so():
    told = [
        Absence.chosen(policy, peers=9, collusion=1, can_lose=True, lying=lying).sentence
        for policy in ("go on", "blocks", "wait")
        for lying in (0, 1)
    ]
    assert ["A peer that lies can bring it about" in text for text in told] == [False, True, *[False] * 4]


class TestLedger:
    @pytest.mark.parametrize(
        ("members", "smallest"),
        [
            ([None, None], range(1, 9)),
            # peer 8 is left out of one round: the difference of two totals is its parameters
            ([None, tuple(range(8))], [8]),
            # a block of three, of which none is the coalition
            ([None, tuple(range(6))], [6, 7, 8]),
            ([tuple(range(6)), tuple(range(3, 9))], [1, 2, 3, 4, 5]),
        ],
    )
    def test_the_smallest_sum_that_follows_from_all_rounds(self, members, smallest):
        design = best_design(9, collusion=1)
        ledger = Ledger(audit("shares", design)).add(
            *(Attempt(round=round, members=who) for round, who in enumerate(members))
        )
        assert list(ledger.smallest_sum((0,))) == list(smallest)

    @pytest.mark.parametrize(
        ("members", "coalition", "smallest"),
        [
            # two peers are lost at once: each of them subtracts its own update, and has the other's
            ([None, tuple(range(7))], (7,), (8,)),
            # a member of the block that stays out has the sum of the other two
            ([None, tuple(range(6))], (6,), (7, 8)),
        ],
    )
    def test_whoever_was_left_out_subtracts_its_own(self, members, coalition, smallest):
        ledger = Ledger(audit("resilient", best_design(9, collusion=1))).add(
            *(Attempt(round=round, members=who) for round, who in enumerate(members))
        )
        told = ledger.account((0,))
        assert (told.coalition, told.coalition_over_rounds) == ((0,), coalition)
        assert told.smallest_sum_over_rounds == smallest

    @given(st.integers(4, 7), st.integers(1, 2), st.integers(1, 4), st.integers(0, 9999))
    @settings(max_examples=25, deadline=None)
    def test_no_coalition_of_the_size_computes_a_smaller_sum(self, n, collusion, rounds, seed):
        """Brute force: all coalitions, all sets of honest peers, by rank over the rationals."""
        choose = random.Random(seed)
        history = [tuple(sorted(choose.sample(range(n), choose.randint(collusion + 2, n)))) for _ in range(rounds)]
        ledger = Ledger(audit("resilient", best_design(n, collusion=collusion), {"collusion": collusion})).add(
            *(Attempt(round=round, members=who) for round, who in enumerate(history))
        )
        sizes = []
        for coalition in combinations(range(n), collusion):
            honest = [peer for peer in range(n) if peer not in coalition]
            rows = np.array([[peer in members for peer in honest] for members in history], dtype=float)
            rank = np.linalg.matrix_rank(rows)
            sizes += [
                size
                for size in range(1, len(honest) + 1)
                for peers in combinations(range(len(honest)), size)
                if np.linalg.matrix_rank(np.vstack([rows, np.isin(range(len(honest)), peers)])) == rank
            ]
        found = ledger.account(tuple(range(collusion))).smallest_sum_over_rounds
        assert len(found) == min(sizes)

    def test_many_averages_are_judged_by_who_was_in_the_same_ones(self):
        """Where there are too many sums to try all combinations, the ledger says too much rather than too little."""
        choose = random.Random(5)
        members = [tuple(sorted(choose.sample(range(40), 30))) for _ in range(20)]
        ledger = Ledger(audit("resilient", best_design(40, collusion=1))).add(
            *(Attempt(round=round, members=who) for round, who in enumerate(members))
        )
        assert len(ledger.smallest_sum((0,))) == 1

    def test_a_large_federation_without_one_peer_is_accounted_for(self):
        """By one column per peer: a column per peer and slice would not fit into memory."""
        ledger = Ledger(audit("resilient", best_design(99, collusion=1)))
        told = ledger.add(Attempt(round=1), Attempt(round=1, members=tuple(range(98)))).account((0,))
        assert (told.exposed_so_far, told.smallest_sum_over_rounds) == ((98,), (98,))

    def test_a_void_round_counts_if_it_was_opened(self):
        """After it everybody trains again from the same model, so the next total without a peer tells its update."""
        ledger = Ledger(audit("shares", best_design(9, collusion=1)))
        lost = ledger.add(Attempt(round=1), Attempt(round=2, members=tuple(range(8))))
        harmless = ledger.add(Attempt(round=1, steps=1), Attempt(round=2, members=tuple(range(8))))
        assert lost.smallest_sum((0,)) == (8,)
        assert harmless.smallest_sum((0,)) == tuple(range(1, 8))

    def test_with_more_iterations_the_code_tells(self):
        ledger = Ledger(audit("grouped", best_design(9, collusion=1, group_size=3), {"iterations": 6})).add(
            Attempt(round=0)
        )
        assert len(ledger.smallest_sum((0,))) == 1

    @pytest.mark.parametrize("iterations", [2, 3])
    def test_who_was_not_drawn_knows_the_total_of_those_who_were(self, iterations):
        """With three iterations the code is run on symbols, in which nobody of the coalition may take part."""
        audited = audit("grouped", best_design(6, collusion=1), {"iterations": iterations})
        ledger = Ledger(audited, peers=12).add(Attempt(round=0, members=(6, 7, 8, 9, 10, 11)))
        assert ledger.exposed((0,)) == ()
        assert ledger.smallest_sum((0,)) == (6, 7, 8, 9, 10, 11)
