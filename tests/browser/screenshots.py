"""Make the pictures of pages that the docs show: `python -m tests.browser.screenshots docs/pictures`.

`python -m tests.browser.screenshots --site build/site` makes those of the site's start page, to be looked at, in the
folder above the site.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import securedfl
from securedfl.reporting.live.server import serving
from securedfl.reporting.report import write_report
from tests.browser.chromium import DESKTOP, PHONE, browser, trial

COLOURS = 96
"""Of a picture: enough for pages, and small files."""


def keep(page: Any, path: Path, selector: str | None = None, *, whole: bool = False) -> None:
    """Write what is seen of a page, the whole page, or one part of it, as a small PNG."""
    if selector is None:
        page.screenshot(path=path, full_page=whole)
    else:
        page.locator(selector).screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(out: Path) -> None:
    """Train, watch, hurt, and take pictures."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, browser() as open_page:
        folder = Path(temporary)
        settings: dict[str, Any] = {"dealing": "dirichlet", "alpha": 0.3, "held_back": 0.3, "rounds": 15}
        securedfl.train(methods="local,fedavg,secured,shares", out=folder / "digits", **settings)
        page = write_report(folder / "digits").resolve().as_uri()
        keep(open_page(page, width=DESKTOP), out / "report-desktop.png")
        keep(open_page(page, width=PHONE, scheme="dark"), out / "report-phone.png")
        securedfl.train(peers=99, rounds=1, model="linear", methods="secured", out=folder / "many")
        many = open_page(write_report(folder / "many").resolve().as_uri(), width=DESKTOP)
        keep(many, out / "design-99.png", "section#design figure")
        (folder / "trial").mkdir()
        with serving(folder / "trial") as url, trial(folder / "trial", peers=7, rounds=60) as federation:
            pages = [open_page(url, width=DESKTOP), open_page(url, width=PHONE, scheme="dark")]
            federation.until(8)
            federation.peers[3].process.kill()
            for page in pages:
                page.wait_for_selector('[data-peer="peer-3"][data-here="no"]', timeout=90_000)
            federation.until(20)
            keep(pages[0], out / "live-desktop.png", whole=True)
            keep(pages[1], out / "live-phone.png")


def site(folder: Path) -> None:
    """Take pictures of the start page of the site that `make docs` made."""
    with browser() as open_page:
        for name, width, scheme in (("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")):
            page = open_page((folder / "start.html").resolve().as_uri(), width=width, scheme=scheme)
            keep(page, folder.parent / f"start-{name}.png")


if __name__ == "__main__":
    if sys.argv[1] == "--site":
        site(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
