"""Skip with a reason where there is no browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import PROGRAM, browser
from tests.reporting.conftest import make_run

__all__ = ["make_run"]


@pytest.fixture(scope="session")
def open_page() -> Iterator[Callable[..., Any]]:
    pytest.importorskip("playwright", reason="playwright is not installed: use `make test-browser`")
    if not Path(PROGRAM).exists():
        pytest.skip("there is no Chromium: apt-get install chromium, or name it in the variable CHROMIUM")
    with browser() as opened:
        yield opened
