"""Certificates, exposure to coalitions, enforcement and the ledger."""

import json

import numpy as np
import pytest

from securedfl.designs import best, withstands
from securedfl.designs.coalition_search import exposure
from securedfl.designs.coalitions import exhaustive
from securedfl.errors import ConfigError, PrivacyError, RunFolderError
from securedfl.privacy import Audit, Certificate, enforce
from securedfl.privacy.certificate import readable_json
from securedfl.privacy.drawing import exposure_svg, exposure_text
from securedfl.privacy.ledger import Attempt, Ledger, load
from securedfl.protocols import Schedule, by_name
from securedfl.protocols.admm import interval_widths
from tests.privacy.audits import audit, own

AFFINE = best(9, 3, 0)


def on(protocol, design, options=None):
    return by_name(protocol).on(design, **(options or {}))


class TestCertificate:
    @pytest.mark.parametrize(
        ("protocol", "options", "verdict", "kind"),
        [
            ("grouped", {}, "only the total", "bounded"),
            ("grouped", {"iterations": 4}, "partial sums", "bounded"),
            ("grouped", {"iterations": 6}, "exposed", "bounded"),
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
        bounded = audit("grouped", AFFINE).certificate(rounds=20)
        assert "interval of width 7.88 (masks are 16 wide)" in bounded.sentence
        assert "up to 10 times in 20 rounds" in bounded.sentence
        assert "every such coalition" in bounded.sentence
        perfect = audit("shares", AFFINE, {"strength": 3}).certificate(collusion=2)
        assert perfect.sentence.startswith("Any 2 peers who pool what they received learn the total")
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

    @pytest.mark.parametrize(
        "rho", [3.0, 4.0, Schedule(start=3.0, decay=3e-4), Schedule(start=3.0, decay=0.5, period=2), 1e-6]
    )
    def test_masks_as_wide_as_the_authors_pass(self, rho):
        found = enforce(on("grouped", AFFINE, {"rho": rho}))
        assert not found.narrow
        assert f"masks are {found.width:.3g} wide" in found.sentence

    @pytest.mark.parametrize("rho", [1e9, 100, 4.1, Schedule(start=1e9, decay=1e-9)])
    @pytest.mark.parametrize("promise", ["partial sums", "only the total"])
    def test_narrow_masks_are_refused(self, rho, promise):
        found = audit("grouped", AFFINE, {"rho": rho}).certificate()
        assert (found.verdict, found.meets(1)) == ("only the total", False)
        with pytest.raises(PrivacyError, match="use rho <= 4") as refused:
            enforce(on("grouped", AFFINE, {"rho": rho}), promise=promise)
        assert f"masks are only {found.width:.3g} wide: every message gives" in str(refused.value)
        assert "do: masks 16 wide, that is rho of at most 4 (rho = 0.0625)" in str(refused.value)

    def test_masks_that_narrow_over_the_iterations_are_refused(self):
        rising = Schedule(start=1e-3, decay=1e12)
        with pytest.raises(PrivacyError, match="later message gives the parameters away to within 1e-09"):
            enforce(on("grouped", AFFINE, {"rho": rising}))

    def test_advice_for_narrow_masks_and_too_many_iterations_mends_both(self):
        with pytest.raises(PrivacyError, match=r"iterations = 2, rho = 0\.0625") as refused:
            enforce(on("grouped", AFFINE, {"rho": 1e9, "iterations": 6}))
        assert "can compute" in str(refused.value)
        assert "Besides, masks are only 1e-09 wide" in str(refused.value)

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
        with pytest.raises(PrivacyError, match="only the total") as refused:
            enforce(on("grouped", AFFINE, {"iterations": 4}), promise="only the total")
        assert "2 iterations" in str(refused.value)

    def test_other_group_sizes_are_suggested(self):
        with pytest.raises(PrivacyError, match="group_size = 2"):
            enforce(on("grouped", best(6, 3, 0)))

    def test_unknown_protocols(self):
        with pytest.raises(ConfigError, match="known"):
            on("nonsense", AFFINE)


class TestLedger:
    def test_meetings_over_rounds(self):
        ledger = Ledger(audit("grouped", AFFINE)).add(*(Attempt(round=r) for r in range(21)))
        data = ledger.to_dict()
        assert data["averages"] == data["attempts"] == 21
        assert data["most_meetings_of_a_pair"] == 11
        assert data["pairs_by_meetings"] == {"10": 18, "11": 18}
        assert (ledger.meetings == ledger.meetings.T).all()
        assert data["exposed_so_far"] == []
        assert data["interval_after_all_meetings"] == pytest.approx(7.8769 * 2 / 12, rel=1e-4)
        json.dumps(data)

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
        assert retried.to_dict()["retries_with_the_same_parameters"] == 2

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

    def test_reading(self, tmp_path):
        with pytest.raises(RunFolderError, match="cannot read"):
            load(tmp_path)
        for text in ("{", "[]", "{}", '{"secured": 1}', "3"):
            (tmp_path / "ledger.json").write_text(text)
            with pytest.raises(RunFolderError, match="ledger"):
                load(tmp_path)
        (tmp_path / "ledger.json").write_text(json.dumps(Ledger(audit("grouped", AFFINE)).to_dict()))
        assert load(tmp_path)["attempts"] == 0
