"""The report says what the run folder says, in one file that needs nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import securedfl
from securedfl.errors import MissingDependencyError, RunFolderError
from securedfl.privacy.account import Account
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.reporting.report import write_report

MakeRun = Callable[..., Path]
CERTIFICATE = RunCertificate(
    certificate=replace(securedfl.certify(9, protocol="grouped"), kind="bounded"),
    sentence="A single participant learns the average and nothing else.",
).to_dict()
LEDGER = Account(
    peers=9,
    protocol="grouped",
    kind="bounded",
    averages=3,
    attempts=4,
    retries_with_the_same_parameters=1,
    irregular_averages=[],
    most_meetings_of_a_pair=2,
    pairs_by_meetings={"1": 18, "2": 18},
    coalition=(0,),
    exposed_so_far=(),
    coalition_over_rounds=(0,),
    smallest_sum_over_rounds=(),
    mask_width=16.0,
    interval_after_one_message=16.0,
    interval_after_all_meetings=5.2512,
    meetings=[[0, 2], [2, 0]],
).to_dict()


class Page(HTMLParser):
    """Collect text, ids, tags and references of a page, and fail on tags that do not nest."""

    VOID = frozenset({"meta", "img", "br", "path", "use"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.words = source, ""
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for key, value in attrs:
            if key == "id":
                self.ids.append(str(value))
            if key in ("href", "src", "xlink:href"):
                self.links.append(str(value))
            assert not key.startswith("on")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.words += " " + " ".join(data.split())


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def test_shows_result_table_figures_and_how_to_repeat(make_run: MakeRun) -> None:
    folder = make_run()
    page = page_of(folder)
    assert write_report(folder) == folder / "report.html"
    told = "With 9 peers on digits, SecureD-FL ended at 95.79 % on the test data of all peers after round 6"
    assert f"{told}: the same as FedAvg." in page.words
    for shown in ("Local-Only", "3.2 × 10⁻¹⁵", "480 kB", "6.00 s", "1.75 s", "finished", "demo"):
        assert shown in page.words
    for shown in ("securedfl train config.toml", "Seed 17", "numpy 2.0.0", 'finish = "exact"'):
        assert shown in page.words
    assert "With the exact finish only rounding remains." in page.words
    assert "No certificate was computed" in page.words
    assert "unfinished" not in page.words
    charts = ("accuracy", "loss", "peers", "error", "traffic", "time")
    assert all(f"{chart}-figure_1" in page.ids for chart in charts)
    assert "groups of 3" in page.words


def test_needs_nothing_from_elsewhere(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "exposure.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    page = page_of(folder)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"https?://|@import|@font-face", page.source)
    assert page.tags["script"] == page.tags["link"] == page.tags["iframe"] == 0
    assert "Exposure Computed from the messages" in re.sub(" +", " ", page.words)


def test_ids_are_unique_and_every_reference_has_its_target(make_run: MakeRun) -> None:
    page = page_of(make_run(methods=("local", "fedavg", "secured", "shares")))
    assert len(page.ids) == len(set(page.ids))
    referred = re.findall(r"url\(#([^)]+)\)", page.source) + [k[1:] for k in page.links if k[0] == "#"]
    assert set(referred) <= set(page.ids)
    assert len(referred) > 10


def test_same_files_give_the_same_bytes(make_run: MakeRun) -> None:
    folder = make_run()
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.toml",
        "design.json",
        "metrics.jsonl",
        "report.html",
        "summary.json",
    ]


def test_figures_have_a_text_alternative_and_tables_headers(make_run: MakeRun) -> None:
    source = page_of(make_run()).source
    labels = re.findall(r'<svg viewBox="[^"]+" role="img" aria-label="([^"]+)"', source)
    assert len(labels) >= 6
    assert any("SecureD-FL ends at 95.79 %" in text for text in labels)
    assert all('alt="' in image for image in re.findall(r"<img [^>]+>", source))
    assert source.count('scope="row"') >= 3
    assert '<html lang="en">' in source


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "$x^2$ & </svg>"])
def test_escapes_whatever_the_user_wrote(make_run: MakeRun, evil: str) -> None:
    folder = make_run(methods=("secured", evil), dataset=evil, versions={evil: evil})
    (folder / "config.toml").write_text(f"name = '''{evil}'''\n")
    (folder / "certificate.json").write_text(
        json.dumps(CERTIFICATE | {"sentence": evil, "remark": evil, "protocol": evil, evil: evil})
    )
    (folder / "ledger.json").write_text(json.dumps({evil: LEDGER | {"protocol": evil, evil: evil}}))
    page = page_of(folder)
    assert page.tags["script"] == 0
    assert page.tags["img"] == sum(link.startswith("data:") for link in page.links)
    assert evil[:9] in page.words


def test_missing_jinja2_is_a_clear_error(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'securedfl\[learn\]'"):
        write_report(make_run())


def test_repeating_never_writes_into_the_same_folder(make_run: MakeRun) -> None:
    folder = make_run(name="my run")
    (folder / "config.toml").write_text('out = "my run"\n')
    assert "securedfl train config.toml --out ../'my run-again'" in page_of(folder).words


def test_certificate_that_only_the_summary_has(make_run: MakeRun) -> None:
    assert CERTIFICATE["sentence"] in page_of(make_run(certificate=CERTIFICATE)).words


def test_a_method_nobody_knows_is_shown_by_its_name(make_run: MakeRun) -> None:
    page = page_of(make_run(methods=("fedavg", "_gossip", "名前", "x" * 80)))
    assert page.words.count("_gossip") >= 3
    assert "名前" in page.words
    assert "x" * 39 + "…" in page.words


def test_unfinished_run_is_labelled_and_readable(make_run: MakeRun) -> None:
    folder = make_run(done=2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secured", "rou')
    page = page_of(folder)
    assert "unfinished: 2 of 6 rounds" in page.words
    assert "Rounds done, of 6: Local-Only 2, FedAvg 2, SecureD-FL 2." in page.words
    assert "--resume" in page.words
    assert "SecureD-FL stands at" in page.words


@pytest.mark.parametrize("before", ["round 0", "empty", "missing"])
def test_run_without_a_finished_round(make_run: MakeRun, before: str) -> None:
    folder = make_run(done=0, methods=("local", "secured"))
    if before == "empty":
        (folder / "metrics.jsonl").write_text("")
    if before == "missing":
        (folder / "metrics.jsonl").unlink()
    page = page_of(folder)
    assert "No round has finished yet" in page.words
    assert "unfinished: 0 of 6 rounds" in page.words
    assert "groups of 3" in page.words


def test_run_without_methods_or_design(make_run: MakeRun) -> None:
    folder = make_run(done=0, methods=(), design=None)
    (folder / "design.json").unlink()
    page = page_of(folder)
    assert "This run used no design." in page.words
    assert "No method has finished a round." in page.words


def test_numbers_that_do_not_exist_are_left_out(make_run: MakeRun) -> None:
    folder = make_run()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["round"] == 3 and row["method"] == "secured":
            row["accuracy"] = row["loss"] = float("nan")
            row["peer_accuracy"] = [None] * 9
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(folder)
    assert not re.search(r"\bnan\b", page.source)
    assert "3 76.51 % 91.72 % –" in re.sub(" +", " ", page.words)


def test_certificate_is_shown_with_its_sentence(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "certificate.json").write_text(json.dumps(CERTIFICATE))
    (folder / "ledger.json").write_text(json.dumps(LEDGER))
    page = page_of(folder)
    assert "Only the total exactly, but messages tell more" in page.words
    assert "A single participant learns the average and nothing else." in page.words
    assert "Averages 3 in 4 attempts" in page.words
    assert "Exposure was allowed" not in page.words


def test_the_ledger_is_a_table_per_method(make_run: MakeRun) -> None:
    folder = make_run()
    shares = {
        "protocol": "shares",
        "kind": "perfect",
        "exposed_so_far": [3, 4],
        "interval_after_all_meetings": None,
    }
    (folder / "ledger.json").write_text(json.dumps({"secured": LEDGER, "shares": LEDGER | shares}))
    words = page_of(folder).words
    assert "So far SecureD-FL SecureD-FL shares" in words
    assert "Averages 3 in 4 attempts" in words
    assert "Any two peers met 1 to 2 times" in words
    assert "Worst coalition peer 0" in words
    assert "It has computed nobody's parameters parameters of peers 3, 4" in words
    assert "5.25 wide (masks: 16) none: messages are uniformly random" in words
    assert "Meetings" not in words

    (folder / "ledger.json").write_text(json.dumps(LEDGER))
    assert "So far SecureD-FL Averages" in page_of(folder).words
    assert "Ledger of the whole run" in page_of(folder).words
    (folder / "ledger.json").write_text(json.dumps(dict.fromkeys(LEDGER, "?")))
    with pytest.raises(RunFolderError, match=r"ledger\.json is damaged \(not a ledger: .*restore it from a copy"):
        write_report(folder)


def test_one_peers_update_over_rounds_stands_beside_the_badge_and_has_a_name(make_run: MakeRun) -> None:
    folder = make_run(roster={"0": "north", "2": "south"})
    (folder / "certificate.json").write_text(json.dumps(CERTIFICATE | {"kind": "perfect"}))
    told = {"coalition_over_rounds": [0], "smallest_sum_over_rounds": [2, 3]}
    (folder / "ledger.json").write_text(json.dumps(LEDGER | told))
    words, warning = page_of(folder).words, "Over rounds one peer's update may be told"
    assert warning not in words
    assert "Smallest sum over all rounds of south, peer 3, computed by north" in words
    (folder / "ledger.json").write_text(json.dumps(LEDGER | told | {"smallest_sum_over_rounds": [2]}))
    words = page_of(folder).words
    assert f"Only the total can be learned perfect masks ⚠ {warning}" in words
    assert "Over rounds north may compute the update of south" in words
    assert "Worst coalition north" in words


def test_what_only_one_method_has_is_in_the_ledger_too(make_run: MakeRun) -> None:
    """For instance of a run that passes messages now and then, which the paper's own averages cannot do without."""
    folder, some = make_run(), {"rounds_with_messages": [0, 1, 3]}
    for ledgers in ({"paper": LEDGER, "secured": LEDGER | some}, {"secured": LEDGER | some, "paper": LEDGER}):
        (folder / "ledger.json").write_text(json.dumps(ledgers))
        told = "0, 1, 3 –" if next(iter(ledgers)) == "secured" else "– 0, 1, 3"
        assert f"Rounds whose messages were passed {told}" in page_of(folder).words


def test_the_exposure_picture_names_its_method(make_run: MakeRun) -> None:
    folder = make_run()
    both = {"secured": CERTIFICATE, "shares": CERTIFICATE}
    (folder / "certificate.json").write_text(json.dumps(both))
    (folder / "exposure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert "Exposure with SecureD-FL, SecureD-FL shares Computed" in page_of(folder).words


def test_certificates_of_several_methods(make_run: MakeRun) -> None:
    folder = make_run()
    perfect = CERTIFICATE | {"kind": "perfect"}
    both = {"secured": perfect, "shares": CERTIFICATE | {"verdict": "exposed"}}
    (folder / "certificate.json").write_text(json.dumps(both))
    words = page_of(folder).words
    assert "Only the total can be learned perfect masks" in words
    assert "SecureD-FL shares ✗ Parameters can be exposed" in words


@pytest.mark.parametrize("place", ["summary", "summary certificate", "certificate", "config"])
def test_allowed_exposure_is_a_warning_nobody_overlooks(make_run: MakeRun, place: str) -> None:
    summaries = {
        "summary": {"config": {"allow_exposure": True}},
        "summary certificate": {"certificate": CERTIFICATE | {"allow_exposure": True}},
    }
    folder = make_run(**summaries.get(place, {}))
    if place == "certificate":
        (folder / "certificate.json").write_text(json.dumps(CERTIFICATE | {"allow_exposure": True}))
    if place == "config":
        (folder / "config.toml").write_text("allow_exposure = true\n")
    page = page_of(folder)
    assert "Exposure was allowed in this run." in page.words
    assert page.source.index('class="banner bad" role="alert"') < page.source.index("<main>")
