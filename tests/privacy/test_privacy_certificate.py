"""Certificates, exposure to coalitions, enforcement and the ledger."""

import json
from dataclasses import replace

import numpy as np
import pytest

import securedfl
from securedfl.designs import best, withstands
from securedfl.designs.coalition_search import exposure
from securedfl.designs.coalitions import exhaustive
from securedfl.errors import ConfigError, PrivacyError
from securedfl.privacy import Audit, Certificate
from securedfl.privacy.certificate import readable_json
from securedfl.privacy.drawing import exposure_svg, exposure_text
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.protocols import Protocol, Schedule, by_name
from securedfl.protocols.admm import interval_widths
from tests.privacy.audits import audit, enforce, own

AFFINE = best(9, 3, 0)


def on(protocol, design, options=None):
    return by_name(protocol).on(design, **(options or {}))


class TestCertificate:
    @pytest.mark.parametrize(
        ("protocol", "options", "verdict", "kind"),
        [
            ("grouped", {}, "only the total", "perfect"),
            ("grouped", {"iterations": 4}, "partial sums", "perfect"),
            ("grouped", {"iterations": 6}, "exposed", "perfect"),
            ("paper", {"rho": 1 / 256}, "only the total", "bounded"),
            ("paper", {"iterations": 4, "rho": 1 / 256}, "partial sums", "bounded"),
            ("classic", {}, "exposed", "bounded"),
            ("plain", {}, "exposed", "none"),
            ("shares", {"strength": 2}, "only the total", "perfect"),
        ],
    )
    def test_verdicts_and_json(self, protocol, options, verdict, kind):
        found = audit(protocol, AFFINE, options).certificate(rounds=20)
        assert (found.verdict, found.kind, found.design) == (verdict, kind, found.design)
        assert Certificate.from_json(found.to_json()) == found
        data = json.loads(found.to_json())
        assert data["sentence"] == found.sentence
        assert set(data) >= {
            "paper_bound", "exposed_by_iteration", "safe_iterations", "verdict", "kind", "worst_coalition",
            "exhaustive",
        }  # fmt: skip

    def test_the_sentence_names_what_matters(self):
        bounded = audit("paper", AFFINE, {"rho": 1 / 256}).certificate(rounds=20)
        assert "interval of width 128 (masks are 256 wide)" in bounded.sentence
        assert "up to 10 times in 20 rounds" in bounded.sentence
        assert "every such coalition" in bounded.sentence
        assert "bits that are finer than the masks" in bounded.sentence
        more = audit("paper", AFFINE, {"rho": 1 / 999, "iterations": 4}).certificate()
        assert "Several messages together narrow it further" in more.sentence
        perfect = audit("shares", AFFINE, {"strength": 3}).certificate(collusion=2)
        assert perfect.sentence.startswith("From one average any 2 peers who pool what they received learn the")
        assert "as far as AES-256 is as good as random" in perfect.sentence
        exposed = audit("classic", AFFINE).certificate()
        assert "do not protect" in exposed.sentence

    def test_a_search_says_that_it_is_one(self):
        found = audit("shares", best(60, 3, 0), {"strength": 8}).certificate(collusion=5)
        assert not found.exhaustive
        assert found.sentence.startswith("As far as was examined")
        assert "Not every such coalition" in found.sentence

    def test_damaged_certificates(self):
        for text in ("{", "[]", "{}"):
            with pytest.raises(PrivacyError, match="not a certificate"):
                Certificate.from_json(text)

    def test_widths_of_the_intervals(self):
        # with a small constant rho, the i-th message leaves 1/i of the mask's width
        widths = interval_widths(Schedule(start=1e-6), 4)
        assert widths == pytest.approx([1e6, 5e5, 1e6 / 3, 2.5e5], rel=1e-5)

    def test_lists_of_numbers_take_one_line(self):
        text = readable_json({"a": [1, 2, 3], "b": {"c": "[1,\n 2]"}, "d": [[1.5, -2], []]})
        assert '"a": [1, 2, 3]' in text
        assert json.loads(text) == {"a": [1, 2, 3], "b": {"c": "[1,\n 2]"}, "d": [[1.5, -2], []]}


class TestExposure:
    def test_the_search_finds_what_all_coalitions_show(self):
        """Where everything can be examined, the directed search finds a coalition that breaks the protocol too."""
        for n, strength, size in ((15, 3, 3), (21, 4, 4)):
            audited = audit("shares", best(n, 3, 0), {"strength": strength})
            labels = audited.averaging.used(0)
            everything = exposure(n, size, audited.evaluate(), limit=10**6, effort=0)
            searched = exposure(n, size, audited.evaluate(), limit=0, effort=600, labels=labels)
            assert everything.exhaustive
            assert not searched.exhaustive
            assert everything.breaking > 0
            assert searched.breaking > 0
            assert searched.exposed_by_iteration <= everything.exposed_by_iteration

    @pytest.mark.parametrize(
        ("n", "s", "collusion"),
        [(15, 3, 6), (27, 3, 1), (45, 3, 2), (99, 2, 5), (120, 3, 1), (56, 3, 3), (130, 2, 3)],
    )
    def test_certificates_find_what_the_choice_of_the_design_found(self, n, s, collusion):
        """Searched or complete: the same coalitions in the same rounds, so that the two can never differ."""
        design = best(n, s, 0)
        for strength in range(collusion, min(collusion + 3, design.gap + 1)):
            audited = audit("shares", design, {"strength": strength})
            found = audited.certificate(collusion=collusion, rounds=design.gap)
            assert (found.verdict == "only the total") == withstands(design, strength, collusion)
            if strength > collusion:
                assert found.exhaustive == exhaustive(design, strength, collusion)

    def test_who_learns_about_whom(self):
        levels = audit("plain", AFFINE).certificate().levels
        assert (levels[0, 1:] == 2).all()
        assert (levels[1:] == 0).all()

    @pytest.mark.parametrize("size", [0, 9, 20])
    def test_impossible_sizes(self, size):
        with pytest.raises(PrivacyError, match="makes no sense"):
            audit("grouped", AFFINE).certificate(collusion=size)

    def test_all_rounds_that_differ_are_examined(self):
        found = audit("grouped", AFFINE, {"iterations": 3}).certificate(rounds=20)
        assert found.rounds_examined == 4
        assert audit("grouped", AFFINE).certificate(rounds=20).rounds_examined == 2


class TestPictures:
    def test_svg_is_well_formed_and_small(self):
        from xml.etree import ElementTree

        for n in (9, 200, 999):
            levels = np.zeros((n, n), dtype=np.int8)
            levels[0] = 2
            levels[3, ::2] = 1
            text = exposure_svg(levels, 'a "title" & more')
            ElementTree.fromstring(text)  # noqa: S314
            assert len(text) < 200_000

    def test_text(self):
        levels = audit("plain", best(9, 3, 0)).certificate().levels
        assert exposure_text(levels).splitlines()[1] == "0 - X X X X X X X X"
        assert exposure_text(np.zeros((99, 99), dtype=np.int8)) == ""


class TestEnforcement:
    def test_safe_settings_pass(self):
        assert enforce(on("grouped", AFFINE)).verdict == "only the total"
        assert enforce(on("grouped", AFFINE, {"iterations": 4})).verdict == "partial sums"

    @pytest.mark.parametrize(
        ("protocol", "options", "collusion", "advice"),
        [
            ("grouped", {"iterations": 8}, 1, "do: 2 iterations (iterations = 2)"),
            ("grouped", {}, 2, "shares of strength 3"),
            ("classic", {}, 1, "protocol = grouped"),
            ("paper", {}, 1, "the same behind perfect masks (protocol = grouped)"),
            ("paper", {"iterations": 6}, 1, "perfect masks (protocol = grouped, iterations = 2)"),
            ("plain", {}, 1, "shares of strength 2"),
            ("shares", {"strength": 2}, 2, "shares of strength 3"),
            ("grouped", {}, 8, "demand less collusion"),
        ],
    )
    def test_unsafe_settings_are_refused_with_advice(self, protocol, options, collusion, advice):
        with pytest.raises(PrivacyError, match="do not protect") as refused:
            enforce(on(protocol, AFFINE, options), collusion=collusion)
        assert advice in str(refused.value)
        assert refused.value.exit_code == 6

    @pytest.mark.parametrize("rho", [1 / 256, 1e-6, Schedule(start=1 / 256, decay=0.5, period=2)])
    def test_masks_far_wider_than_an_update_pass(self, rho):
        found = enforce(on("paper", AFFINE, {"rho": rho}))
        assert not found.narrow
        assert found.told < 0.125
        assert f"masks are {found.width:.3g} wide" in found.sentence

    @pytest.mark.parametrize("rho", [1e9, 4, 1, 1 / 4, 1 / 16, 1 / 64, Schedule(start=1e-3, decay=1e12)])
    def test_masks_in_which_an_update_is_recognised_are_refused(self, rho):
        found = audit("paper", AFFINE, {"rho": rho}).certificate()
        assert (found.verdict, found.narrow, found.meets(1)) == ("only the total", True, False)
        assert not found.meets(1, promise="only the total")
        with pytest.raises(PrivacyError, match="whoever guesses an update can recognise it") as refused:
            enforce(on("paper", AFFINE, {"rho": rho}))
        assert f"masks are only {found.narrowest:.3g} wide" in str(refused.value)

    def test_the_width_of_narrow_masks_is_told_with_its_unit_and_what_it_takes(self):
        found = audit("paper", AFFINE).certificate()
        assert (
            "masks are only 7.88 wide where a message tells most (in units of a parameter's value; to hide an update "
            "they must be 111 wide), so whoever guesses an update can recognise it in a single message, and knows then "
            "that the guess is right"
        ) in found.sentence
        assert not replace(found, narrowest=111.0).narrow
        assert replace(found, narrowest=110.0).narrow

    def test_masks_of_unknown_width_are_refused(self):
        row = Protocol(name="mine", generator=by_name("paper").generator)
        with pytest.raises(PrivacyError, match="masks are of unknown width"):
            enforce(row.on(AFFINE))

    def test_masks_that_cannot_be_perfect_are_an_error(self):
        with pytest.raises(ConfigError, match='set arithmetic to "ring" or "field"'):
            Protocol(name="mine", generator=by_name("paper").generator, masks="perfect")

    def test_advice_after_very_many_iterations_is_two_at_once(self, monkeypatch):
        tried = []

        certificate = Audit.certificate

        def noted(audited, **options):
            tried.append(audited.averaging.settled.parts)
            return certificate(audited, **options)

        monkeypatch.setattr(Audit, "certificate", noted)
        with pytest.raises(PrivacyError, match="do: 2 iterations"):
            enforce(on("grouped", AFFINE, {"iterations": 20}))
        assert max(tried[1:]) == 2

    def test_a_stricter_promise(self):
        found = audit("grouped", AFFINE, {"iterations": 4}).certificate()
        assert (found.meets(1), found.meets(1, promise="only the total")) == (True, False)
        assert enforce(on("grouped", AFFINE)).meets(1, promise="only the total")

    def test_other_group_sizes_are_suggested(self):
        with pytest.raises(PrivacyError, match="group_size = 2"):
            enforce(on("grouped", best(6, 3, 0)))

    def test_unknown_protocols(self):
        with pytest.raises(ConfigError, match="known"):
            on("nonsense", AFFINE)


class TestLedger:
    def test_meetings_over_rounds(self):
        ledger = Ledger(audit("paper", AFFINE)).add(*(Attempt(round=r) for r in range(21)))
        account = ledger.account()
        assert account.averages == account.attempts == 21
        assert account.most_meetings_of_a_pair == 11
        assert account.pairs_by_meetings == {"10": 18, "11": 18}
        assert (ledger.meetings == ledger.meetings.T).all()
        assert account.exposed_so_far == ()
        assert account.interval_after_all_meetings == pytest.approx(7.8769 * 2 / 12, rel=1e-4)
        json.dumps(account.to_dict())

    def test_rounds_do_not_add_up_but_retries_do(self):
        """A protocol that tells peer 0 the sum of two peers, other ones in every round."""

        def telling(me, w, *, round=0, draw):
            first, second = ((1, 2), (2, 3), (1, 3))[round]
            received = yield {first: w} if me == second else {}
            yield {0: w + received[second]} if me == first else {}
            return w

        ledger = Ledger(own("telling", telling, 5))
        rounds = ledger.add(*(Attempt(round=r) for r in range(3)))
        assert rounds.exposed([0]) == ()
        retried = ledger.add(*(Attempt(round=r, parameters=0) for r in range(3)))
        assert retried.exposed([0]) == (1, 2, 3, 4)
        assert retried.account().retries_with_the_same_parameters == 2

    def test_an_aborted_attempt_gives_less_than_a_whole_one(self):
        ledger = Ledger(audit("classic", AFFINE))
        assert ledger.add(Attempt(round=0, steps=1)).exposed([0]) == ()
        assert ledger.add(Attempt(round=0)).exposed([0]) == tuple(range(1, 9))
        assert ledger.add(Attempt(round=0, steps=1), Attempt(round=0)).exposed([0]) == tuple(range(1, 9))

    def test_shares_aborted_before_the_total_and_tried_again(self):
        ledger = Ledger(audit("shares", AFFINE, {"strength": 3}))
        assert ledger.add(Attempt(round=0, steps=1), Attempt(round=0)).exposed([0, 1]) == ()

    def test_differencing(self):
        """Two totals of the same parameters, one without peer 8, give peer 8 away."""
        ledger = Ledger(audit("shares", AFFINE, {"strength": 2}))
        twice = ledger.add(Attempt(round=0), Attempt(round=0, members=tuple(range(8))))
        assert twice.exposed([0]) == (8,)


@pytest.mark.parametrize(("peers", "iterations"), [(5, 3), (7, 4), (9, 3), (9, 5)])
def test_the_fields_of_all_widths_tell_the_same(peers, iterations):
    """Round 0, and vectors of float64, run in the field of 64 bits; a certificate without bits is of that of 32."""
    found = [securedfl.certify(peers, iterations=iterations, bits=bits) for bits in (None, 16, 32, 64)]
    assert len({c.arithmetic for c in found}) == 3
    assert len({(c.verdict, c.exposed_by_iteration, c.dimension_by_iteration) for c in found}) == 1
