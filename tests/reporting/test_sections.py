"""Who holds what, and who took part when: pictures and words of run folders."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from securedfl.federation.run_folder.reader import read_run
from securedfl.federation.run_folder.summary import Data, joined, read_data, write_data
from securedfl.learning.training.task import PeerSamples
from securedfl.reporting.report import report, write_report
from securedfl.reporting.sections import data, timeline

MakeRun = Callable[..., Path]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))  # noqa: S314


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in drawn(svg).iter(f"{SVG}title")]


def test_data_survives_the_file(tmp_path: Path) -> None:
    held = (PeerSamples(5, 1, (3, 2)), PeerSamples(4, None, None, "site-b"))
    write_data(tmp_path, Data(peers=held, common=7, averaged=100, at_home=3))
    assert read_data(tmp_path) == Data(peers=held, common=7, averaged=100, at_home=3)
    assert read_data(tmp_path / "absent") is None


def test_sites_tell_each_other_nothing_but_a_trial_joins_them() -> None:
    one, other = PeerSamples(5, name="a"), PeerSamples(6, name="b")
    parts = [Data(peers=(one,), averaged=9), Data(peers=(other,), common=20, averaged=9)]
    assert joined(parts) == Data(peers=(one, other), common=20, averaged=9)
    assert joined([]) is None


def test_every_peer_and_class_is_in_the_picture(make_run: MakeRun) -> None:
    folder = make_run(samples={"train": 900, "test": 90})
    (folder / "config.toml").write_text('dealing = "dirichlet"\nalpha = 0.1\nmodel = "cnn-small"\n')
    held = tuple(PeerSamples(100, 10, (60 + peer, 40 - peer, 0)) for peer in range(9))
    write_data(folder, Data(peers=held, averaged=53450, at_home=12))
    run = read_run(folder)
    told = titles(data.held_svg(run))
    assert "peer 4: 100 training samples" in told
    assert "peer 4, class 1: 36" in told
    assert not any("class 2" in title for title in told)
    facts = data.facts(run)
    assert facts["Samples"] == "900 for training and 90 for testing, at 9 peers"
    assert facts["Dealing"].startswith("Dirichlet with alpha 0.1")
    assert facts["Model"] == "cnn-small: 53,450 parameters that are averaged, and 12 more that stay with each peer"
    assert "Who holds what" in report(run)


@pytest.mark.parametrize("peers", [1, 3, 99, 1000])
def test_the_picture_scales(make_run: MakeRun, peers: int) -> None:
    folder = make_run()
    write_data(folder, Data(peers=tuple(PeerSamples(p % 7, 1, (p % 3,) * 62) for p in range(peers))))
    svg = data.held_svg(read_run(folder))
    assert len(svg) < 900_000
    assert drawn(svg).get("viewBox", "").startswith("0 0 340 ")


def test_an_older_run_folder_has_no_picture_and_still_a_report(make_run: MakeRun) -> None:
    run = read_run(make_run())
    assert run.data is None
    assert data.held_svg(run) == ""
    assert "Who holds what" not in report(run)
    assert timeline.moments(run) == []
    assert 'id="rounds"' not in report(run)


def tried(round: int, *attempts: tuple[tuple[int, ...], bool], void: bool = False) -> dict[str, Any]:
    told = [{"epoch": 0, "attempt": i, "members": m, "opened": o} for i, (m, o) in enumerate(attempts)]
    row = {"method": "secured", "round": round, "accuracy": 0.9, "bytes_per_peer": 1000.0 * (round + 1)}
    return row | {"tried": told} | ({"void": True} if void else {})


ALL = (0, 1, 2)


@pytest.fixture
def trial(make_run: MakeRun) -> Path:
    """Return a run of three real peers: peer 2 is lost in round 1, away in round 2, and round 3 is void."""
    folder = make_run(methods=("secured",), rounds=4, peers=3, roster={"0": "a", "1": "b<", "2": "c"})
    rows = [
        tried(0, (ALL, True)),
        tried(1, (ALL, False), ((0, 1), True)),
        tried(2, ((0, 1), True)),
        tried(3, (ALL, False), void=True),
        tried(4, (ALL, True)),
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_who_was_in_who_was_lost_and_what_was_tried_again(trial: Path) -> None:
    run = read_run(trial)
    found = timeline.moments(run)
    assert [moment.members for moment in found] == [ALL, (0, 1), (0, 1), (), ALL]
    assert [moment.lost for moment in found] == [(), (2,), (), ALL, ()]
    assert [moment.absent for moment in found] == [(), (), (2,), (), ()]
    assert [moment.retries for moment in found] == [0, 1, 0, 0, 0]
    assert [moment.void for moment in found] == [False, False, False, True, False]
    assert timeline.sentence(found) == "5 rounds, 1 retry, void: 3, 3 peers were missing at times."
    told = titles(timeline.timeline_svg(run, found))
    assert "round 1, c: lost during the round" in told
    assert "round 2, c: absent" in told
    assert "round 2, b<: in the average" in told
    assert "round 3, a: no average: the round was void" in told
    assert "round 4: 5 kB sent per peer" in told
    words = timeline.rounds_table(run, found).rows
    assert list(words[1][:6]) == ["1", "2", "c", "–", "1", "2 kB"]
    assert 'id="rounds"' in report(run)


def test_a_peers_own_folder_or_its_state_gives_the_same_report(trial: Path) -> None:
    (trial / "state").mkdir()
    (trial / "state" / "journal").write_bytes(b"")
    assert write_report(trial / "state") == trial / "report.html"
