"""Reports and the live page in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from securedfl.designs import best
from securedfl.federation.run_folder.summary import Data, write_data
from securedfl.learning.training.task import PeerSamples
from securedfl.reporting.live.server import serving
from securedfl.reporting.report import write_report
from tests.browser.chromium import DESKTOP, PHONE, trial
from tests.reporting.test_report import CERTIFICATE, LEDGER
from tests.reporting.test_sections import tried

Open = Callable[..., Any]
LOOKS = [(width, scheme) for width in (DESKTOP, PHONE) for scheme in ("light", "dark")]
SECONDS = 90_000
"""Milliseconds that a page gets on a busy machine."""

SMALLEST = """() => Math.min(...[...document.querySelectorAll("svg text")]
  .filter((text) => text.textContent.trim() && text.getClientRects().length)
  .map((text) => text.getBBox().height * Math.hypot(text.getScreenCTM().c, text.getScreenCTM().d)))"""
"""The height of the smallest text in a drawing, in pixels."""


def fits(page: Any, width: int) -> None:
    """Check that nothing sticks out, nothing went wrong and nothing is too small to read."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.troubles == []
    assert page.evaluate(SMALLEST) >= 9
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness < 80) == dark


def until(page: Any, expression: str) -> None:
    """Wait for something on a page; its policy forbids that the page itself evaluates text."""
    deadline = time.monotonic() + SECONDS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(100)


@pytest.fixture(params=[3, 9, 99])
def report(make_run: Callable[..., Path], request: pytest.FixtureRequest) -> str:
    """Return the address of a report with every section, of so many peers."""
    peers = request.param
    folder = make_run(peers=peers, samples={"train": 100 * peers, "test": 10 * peers}, design=None)
    best(peers, 3).save(folder / "design.json")
    write_data(folder, Data(peers=tuple(PeerSamples(100, 10, (p % 4,) * 10) for p in range(peers)), averaged=650))
    with (folder / "metrics.jsonl").open("a") as file:
        for round in range(7):
            file.write(
                json.dumps(tried(round, (tuple(range(peers - round % 2)), True)) | {"epsilon": 0.3 * round}) + "\n"
            )
    kinds = {"secured": CERTIFICATE, "shares": CERTIFICATE | {"kind": "perfect"}}
    (folder / "certificate.json").write_text(json.dumps(kinds))
    (folder / "ledger.json").write_text(json.dumps({"secured": LEDGER, "shares": LEDGER}))
    return write_report(folder).resolve().as_uri()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_report_can_be_read(open_page: Open, report: str, width: int, scheme: str) -> None:
    page = open_page(report, width=width, scheme=scheme)
    fits(page, width)
    for section in ("data", "accuracy", "rounds", "averaging", "design", "privacy", "repeat"):
        assert page.is_visible(f"section#{section}")
    # the ledger is there as a whole, without scrolling sideways
    assert page.evaluate(
        "[...document.querySelectorAll('.results')].every(t => t.scrollWidth <= t.parentNode.clientWidth + 1)"
    )


def test_training_is_watched_to_its_end(open_page: Open, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from securedfl.cli import main; main()", "train", "--watch", "--model", "linear"]
    options = ["--rounds", "120", "--methods", "local,secured", "--out", str(tmp_path / "run")]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        pages = [(width, open_page(url, width=width, scheme=scheme)) for width, scheme in LOOKS]
        for width, page in pages:
            # whichever is trained, or that it is done: on a busy machine a page opens late
            page.get_by_text(re.compile("Local-Only: |SecureD-FL: |done")).first.wait_for(timeout=SECONDS)
            fits(page, width)
        process.stdout.read()
        assert process.wait(60) == 0
    for _, page in pages:
        until(page, "document.title == 'run: done'")
        assert not page.is_visible("#gone")
        assert page.get_by_text("120 of 120").first.is_visible()


def test_a_peer_is_killed_while_it_is_watched(open_page: Open, tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    with serving(folder) as url, trial(folder, peers=7, rounds=400) as federation:
        pages = [(width, open_page(url, width=width, scheme=scheme)) for width, scheme in LOOKS]
        federation.until(3)
        own = tmp_path / "trial" / "federation" / "peer-0" / "state"
        with serving(own) as own_url:
            inside = open_page(own_url, width=PHONE)
            for page in (*(page for _, page in pages), inside):
                page.wait_for_selector('[data-peer="peer-3"][data-here="yes"]', timeout=SECONDS)
            federation.peers[3].process.kill()
            for page in (*(page for _, page in pages), inside):
                page.wait_for_selector('[data-peer="peer-3"][data-here="no"]', timeout=SECONDS)
                assert page.get_by_text("Lost: peer-3").is_visible()
            fits(inside, PHONE)
            # the others go on, and the page with them
            federation.until(federation.rounds() + 4)
            shown = f"Number(document.querySelector('progress').value) >= {federation.rounds()}"
            until(pages[0][1], shown)
        for width, page in pages:
            fits(page, width)
    # what was served here is gone, and the page says so
    pages[0][1].wait_for_selector("#gone", state="visible", timeout=SECONDS)
