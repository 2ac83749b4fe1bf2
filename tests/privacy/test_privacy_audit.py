"""The audit: the numbers of the corrected theorem, fast paths against the slow one, planted leaks."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import lcm
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import Design, best
from securedfl.designs.algorithm2 import randomized
from securedfl.designs.coalitions import learned
from securedfl.errors import PrivacyError
from securedfl.privacy import observe
from securedfl.privacy.audit import knowledge
from securedfl.privacy.symbolic.algebra import TwoAdic
from securedfl.protocols import Schedule, by_name, paper
from securedfl.protocols.fixedpoint import Symbols
from securedfl.protocols.shares.layout import layout_for
from securedfl.protocols.shares.resilient import resilient
from securedfl.protocols.shares.shares import shares
from tests.privacy.audits import audit, own

AFFINE, KIRKMAN = best(9, 3, 0), best(15, 3, 0)

SCHEDULES = {  # the authors' own: rho_0, decay, period per number of iterations
    2: (3, "3e-4", 1), 3: (7, "0.01", 1), 4: (70, "7e-6", 2),
    5: (50, "7e-6", 3), 6: (100, "7e-6", 3), 7: (100, "7e-6", 4),
}  # fmt: skip


def by_iteration(design, iterations, protocol="grouped", **options):
    found = audit(protocol, design, {"iterations": iterations, **options}).certificate()
    assert found.exhaustive
    return list(found.exposed_by_iteration)


def whole_shares(me, w, design, *, strength, draw):
    """Shares as the theory has them: every member of a group sees the whole share, and every group's sum is public."""
    masks = [draw(w) for _ in range(strength - 1)]
    parts = [*masks, w - sum(masks[1:], masks[0])] if masks else [w]
    sums = []
    for i, part in enumerate(parts):
        group, partition = design.group(me, i), design.partition(i)
        received = yield {u: part for u in group if u != me}
        mine = sum(received.values(), part)
        received = yield {u: mine for u in range(design.n) if u not in group}
        heads = [h[0] for h in partition if h != group]
        sums.append(sum((received[u] for u in heads), mine))
    return sum(sums[1:], sums[0])


class TestNumbers:
    def test_affine_plane_of_nine(self):
        assert (AFFINE.n, AFFINE.gap) == (9, 4)
        assert by_iteration(AFFINE, 8) == [0, 0, 0, 0, 2, 8, 8, 8]

    def test_the_paper_calls_seven_iterations_safe_and_four_are(self):
        found = audit("grouped", AFFINE, {"iterations": 8}).certificate()
        assert (found.paper_bound, found.safe_iterations) == (7, 4)

    def test_from_three_iterations_a_lone_peer_learns_functions_of_several_peers(self):
        found = audit("grouped", AFFINE, {"iterations": 8}).certificate()
        assert found.dimension_by_iteration == (0, 0, 2, 5, 6, 7, 7, 7)

    def test_every_lone_peer_and_every_round_gives_the_same_numbers(self):
        for round in range(4):
            view = audit("grouped", AFFINE, {"iterations": 6}).view(round)
            for peer in range(9):
                exposed = [len(view.knowledge([peer], 2 * i).exposed) for i in range(1, 7)]
                assert exposed == [0, 0, 0, 0, 2, 8]

    @pytest.mark.parametrize(("design", "gap"), [(KIRKMAN, 7), (KIRKMAN.first(5), 5)])
    def test_fifteen_peers_are_all_exposed_at_iteration_six(self, design, gap):
        assert design.gap == gap
        assert by_iteration(design, 6) == [0, 0, 0, 0, 0, 14]

    def test_all_to_all_exposes_everybody_at_iteration_two(self):
        assert by_iteration(AFFINE, 3, "classic") == [0, 8, 8]

    def test_two_colluders_and_two_iterations(self):
        found = audit("grouped", AFFINE).certificate(collusion=2)
        assert (found.examined, found.breaking, found.exhaustive) == (36, 18, True)
        slow = audit("grouped", AFFINE, shortcut=False).certificate(collusion=2)
        assert (slow.examined, slow.breaking) == (36, 18)

    @pytest.mark.parametrize("iterations", SCHEDULES)
    def test_the_authors_schedules_expose_no_less(self, iterations):
        start, decay, period = SCHEDULES[iterations]
        rho = Schedule(start=start, decay=Fraction(decay), period=period)
        assert by_iteration(AFFINE, iterations, protocol="paper", rho=rho) == [0, 0, 0, 0, 2, 8, 8, 8][:iterations]

    @pytest.mark.parametrize("rho", [0.0625, 1.0, 3.0, Fraction(1, 3)])
    @pytest.mark.parametrize("finish", ["exact", "literal"])
    def test_neither_rho_nor_the_finish_changes_the_numbers(self, rho, finish):
        assert by_iteration(AFFINE, 5, protocol="paper", rho=rho, finish=finish) == [0, 0, 0, 0, 2]

    def test_plain_exposes_everybody_to_the_server_alone(self):
        view = audit("plain", AFFINE).view()
        assert view.knowledge([0]).exposed == tuple(range(1, 9))
        assert all(view.knowledge([peer]).exposed == () for peer in range(1, 9))

    def test_shares_of_strength_three_among_nine(self):
        found = audit("shares", AFFINE, {"strength": 3}).certificate(collusion=2, rounds=20)
        assert (found.verdict, found.kind, found.exhaustive) == ("only the total", "perfect", True)
        slow = audit("shares", AFFINE, {"strength": 3}, shortcut=False).certificate(collusion=2)
        assert slow.verdict == "only the total"

    def test_shares_of_strength_seven_among_fifteen(self):
        found = audit("shares", KIRKMAN, {"strength": 7}).certificate(collusion=6)
        assert (found.verdict, found.examined, found.exhaustive) == ("only the total", 5005, True)

    def test_not_every_kirkman_system_withstands_six_colluders(self):
        """There are seven of order 15; in this one 8 of 5005 coalitions learn the sum of three peers, but of no one."""
        rows = [
            "012340203414213", "012232341401034", "001012343314422", "010213410342324",
            "012344024330121", "012331144042302", "011203224133440",
        ]  # fmt: skip
        design = Design([[int(label) for label in row] for row in rows])
        design.verify()
        found = audit("shares", design, {"strength": 7}).certificate(collusion=6)
        assert (found.verdict, found.examined, found.breaking) == ("partial sums", 5005, 0)
        assert sorted(map(len, found.partial_sums)) == [3, 6]
        coalitions = np.array(list(combinations(range(15), 6)))
        _, dimension = learned(design.labels, coalitions)
        assert (dimension > 0).sum() == 8
        assert audit("shares", design, {"strength": 7}).certificate(collusion=5).verdict == "only the total"


class TestFastPaths:
    @given(st.integers(4, 13), st.integers(2, 4), st.integers(0, 5), st.integers(0, 3), st.data())
    @settings(max_examples=60, deadline=None)
    def test_two_iterations_are_components(self, n, s, seed, round, data):
        design = randomized(n, min(s, n - 1), seed, trials=2000)
        coalition = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=min(4, n - 1)))
        audited = audit("grouped", design)
        assert replace(audited, shortcut=False).learns(tuple(coalition), round) == audited.learns(
            tuple(coalition), round
        )

    @given(st.integers(4, 10), st.integers(2, 4), st.integers(0, 5), st.data())
    @settings(max_examples=40, deadline=None)
    def test_whole_shares_are_components(self, n, s, seed, data):
        design = randomized(n, min(s, n - 1), seed, trials=2000)
        strength = data.draw(st.integers(1, design.gap))
        coalition = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=min(4, n - 1)))
        view = observe(partial(whole_shares, design=design, strength=strength), n, ring=TwoAdic())
        assert view.knowledge(coalition) == knowledge(design.labels[:strength], coalition)

    @pytest.mark.parametrize("strength", [1, 2, 3, 4])
    def test_the_share_protocol_reveals_no_more_than_components(self, strength):
        view = audit("shares", AFFINE, {"strength": strength}).view()
        for coalition in [*combinations(range(9), 1), *combinations(range(9), 3)]:
            exact, bound = (
                view.knowledge(coalition),
                knowledge(AFFINE.labels[:strength], coalition),
            )
            assert set(exact.exposed) <= set(bound.exposed)
            if bound.dimension == 0:
                assert exact.dimension == 0

    @pytest.mark.parametrize(("n", "strength"), [(9, 2), (9, 3), (10, 2)])
    def test_the_share_protocol_is_components_per_slice(self, n, strength):
        """At a coordinate, a group is watched if its owner colludes, and sums are seen by the segment's owner only."""
        design = best(n, 3, 0)
        audited = audit("shares", design, {"strength": strength})
        view, size = audited.view(), audited.places
        layout = layout_for(design, design.turns(0, strength), size)
        for coalition in [*combinations(range(n), 2), *list(combinations(range(n), 3))[::3]]:
            found = set()
            for at in range(size):
                if _owner(range(n), layout.reduction.segments.__getitem__, at) not in coalition:
                    continue
                found |= _alone(design, layout, coalition, strength, at)
            assert set(view.knowledge(coalition).exposed) == found

    def test_the_resilient_protocol_withstands_the_same(self):
        call = partial(resilient, design=AFFINE, collusion=2, codec=Symbols())
        view = observe(call, 9, coordinates=9, ring=TwoAdic())
        assert all(view.knowledge(pair).dimension == 0 for pair in combinations(range(9), 2))
        assert audit("resilient", AFFINE, {"collusion": 2}).certificate(collusion=2).verdict == "only the total"

    def test_large_federations_take_seconds(self):
        found = audit("grouped", best(999, 3, 0)).certificate()
        assert (found.verdict, found.examined, found.exhaustive) == ("only the total", 999, True)


def _owner(members, interval, at):
    return next(u for u in members if interval(u)[0] <= at < interval(u)[1])


def _alone(design, layout, coalition, strength, at):
    """Return honest peers whose component at one coordinate is just themselves."""
    joined = {u: {u} for u in range(design.n)}
    for i in range(strength):
        for group in design.partition(i):
            ordered = tuple(sorted(group, key=layout.order.index))
            if len(group) > 1 and _owner(group, lambda u, g=ordered: layout.slice_of(g, u), at) not in coalition:
                honest = [u for u in group if u not in coalition]
                merged = set().union(*(joined[u] for u in honest))
                for u in merged:
                    joined[u] = merged
    return {u for u in range(design.n) if u not in coalition and joined[u] == {u}}


class TestAnyProtocol:
    def test_a_planted_leak_is_found(self):
        def leaky(me, w, round=0, *, draw):
            steps = paper(me, w, AFFINE, rho=Fraction(1, 16), draw=draw)
            inbox = None
            for step in range(100):
                try:
                    outbox = next(steps) if inbox is None else steps.send(inbox)
                except StopIteration as stop:
                    return stop.value
                if me == 5 and step == 3:  # peer 5 sends its first mate a second y in the clear
                    outbox = {**outbox, 2: w * 3}
                inbox = yield outbox

        sound = own("sound", partial(paper, design=AFFINE, rho=Fraction(1, 16)), 9).certificate()
        broken = own("leaky", leaky, 9).certificate()
        assert (sound.verdict, broken.verdict) == ("only the total", "exposed")
        assert (broken.worst_coalition, broken.exposed, broken.breaking) == ((2,), (5,), 1)

    def test_a_mask_used_twice_is_found(self):
        def reuse(me, w, *, round=0, draw):
            mask = draw(w)
            yield {(me + 1) % 4: w + mask}
            yield {(me + 1) % 4: mask}
            return w

        assert own("reuse", reuse, 4).learns((1,)).exposed == (0,)

    def test_a_leak_in_one_slice_only_is_found(self):
        def slice_leak(me, w, *, round=0, draw):
            hidden = w + draw(w)
            hidden[3:] = w[3:]
            yield {(me + 1) % 4: hidden}
            return w

        assert observe(slice_leak, 4, coordinates=1).knowledge((1,)).exposed == ()
        found = observe(slice_leak, 4, coordinates=5).knowledge((1,))
        assert (found.exposed, found.dimension) == ((0,), 2)

    def test_differences_are_functions_but_not_sums(self):
        def difference(me, w, *, round=0, draw):
            mask = draw(w)
            received = yield {1: mask} if me == 0 else {}
            yield {2: w + mask} if me == 0 else {2: w + received[0]} if me == 1 else {}
            return w

        found = own("difference", difference, 4).learns((2,))
        assert (found.exposed, found.sums, found.dimension) == ((), (), 1)

    def test_products_and_foreign_objects_are_refused(self):
        def squared(me, w, *, round=0, draw):
            yield {(me + 1) % 3: w * w}
            return w

        def named(me, w, *, round=0, draw):
            yield {(me + 1) % 3: "secret"}
            return w

        with pytest.raises(PrivacyError, match="not linear"):
            own("squared", squared, 3).view()
        with pytest.raises(PrivacyError, match="str"):
            own("named", named, 3).view()

    def test_a_message_that_never_comes_is_an_error(self):
        def waiting(me, w, *, round=0, draw):
            received = yield {}
            return received[(me + 1) % 3]

        with pytest.raises(PrivacyError, match="waits for a message"):
            own("waiting", waiting, 3).view()

    @pytest.mark.parametrize("coalition", [[], [9], [-1], list(range(9))])
    def test_impossible_coalitions(self, coalition):
        with pytest.raises(PrivacyError, match="no coalition"):
            audit("grouped", AFFINE).view().knowledge(coalition)

    def test_the_last_honest_peer_is_given_away_by_the_total(self):
        for name in ("grouped", "paper", "shares"):
            assert audit(name, AFFINE).learns(tuple(range(8))).exposed == (8,)
        assert audit("grouped", AFFINE, shortcut=False).learns(tuple(range(8))).exposed == (8,)

    def test_generators_are_used_as_they_are(self):
        for protocol in ("classic", "paper", "plain"):
            assert observe(by_name(protocol).on(AFFINE), 9).steps >= 1
        size = lcm(9, 3)
        sharing = partial(shares, design=AFFINE, strength=2, codec=Symbols())
        assert observe(sharing, 9, coordinates=size, ring=TwoAdic()).steps == 3


def test_the_documented_snippet_works_as_written(capsys):
    text = (Path(__file__).parents[2] / "docs" / "guides" / "privacy.md").read_text(encoding="utf-8")
    snippet = text.split("```python\n")[1].split("```")[0]
    exec(compile(snippet, "docs/guides/privacy.md", "exec"), {})  # noqa: S102
    assert "private parameters of 7 other peers" in capsys.readouterr().out
