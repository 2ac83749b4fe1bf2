"""Debian's Chromium, headless, offline and without a memory; and a federation that can be hurt while it is watched."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.peers.local import LocalPeer, up

PROGRAM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
DESKTOP, PHONE = 1400, 390
HEIGHT = {DESKTOP: 1000, PHONE: 844}


@contextmanager
def browser() -> Iterator[Callable[..., Any]]:
    """Give a function that opens a page of a width and a theme, each in an empty profile of its own."""
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        play = stack.enter_context(sync_playwright())

        def open_page(url: str, *, width: int = DESKTOP, scheme: str = "light") -> Any:
            profile = stack.enter_context(tempfile.TemporaryDirectory())
            context = play.chromium.launch_persistent_context(
                profile,
                executable_path=PROGRAM,
                headless=True,
                args=list(FLAGS),
                viewport={"width": width, "height": HEIGHT[width]},
                color_scheme=scheme,
            )
            stack.callback(context.close)
            page = context.pages[0]
            page.troubles = []
            page.on("console", lambda told: page.troubles.append(told.text) if told.type == "error" else None)
            page.on("pageerror", lambda error: page.troubles.append(str(error)))
            page.on("request", lambda asked: _check(page, asked.url))
            page.goto(url)
            return page

        yield open_page


def _check(page: Any, url: str) -> None:
    """Note whatever a page asks for elsewhere."""
    if not url.startswith(("file:///", "data:", "http://127.0.0.1:")):
        page.troubles.append(f"asks for {url}")


@dataclass
class Trial:
    """A federation of real processes that runs in the background."""

    folder: Path
    peers: list[LocalPeer] = field(default_factory=list)
    error: list[BaseException] = field(default_factory=list)

    def rounds(self) -> int:
        """Return the last round that the first peer has done."""
        return max(self.peers[0].rows, default=-1) if self.peers else -1

    def until(self, round: int, seconds: float = 180.0) -> None:
        """Wait until the first peer has done a round."""
        deadline = time.monotonic() + seconds
        while self.rounds() < round:
            assert not self.error, self.error
            assert time.monotonic() < deadline, f"round {self.rounds()} after {seconds:g} s"
            time.sleep(0.1)


@contextmanager
def trial(folder: Path, **settings: object) -> Iterator[Trial]:
    """Run `securedfl up` in a thread; whatever happens, its processes end with the block, each by its own handle."""
    found = Trial(folder)
    chosen = {"methods": ("secured",), "masks": "secret", "protocol": "resilient", "model": "linear", **settings}

    class Shown(Observer):
        def show(self, peers: Any) -> None:
            found.peers = list(peers)

    def run() -> None:
        try:
            up(TrainConfig.resolve(chosen), folder, Shown(), {"absent": 5.0})
        except BaseException as error:
            found.error.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        for peer in found.peers:
            peer.process.kill()
        thread.join(60)
