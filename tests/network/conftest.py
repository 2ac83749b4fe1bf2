"""Fixtures of real processes."""

from __future__ import annotations

import pytest

from tests.network.peer_processes import Federation


@pytest.fixture
def federation(tmp_path):
    made: list[Federation] = []

    def make(n: int, **settings) -> Federation:
        made.append(Federation(tmp_path, n, **settings))
        return made[-1]

    yield make
    for item in made:
        for process in item.processes:
            process.close()
