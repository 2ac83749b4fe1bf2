"""A federation of real peers on loopback, each in a thread of its own."""

from __future__ import annotations

import threading
import time

import pytest

import securedfl
from tests.network.peer_processes import Federation

DEADLINE = 300.0
"""Seconds after which a test has failed, whatever it waits for."""


@pytest.fixture
def sites(tmp_path):
    """Run work(k, peer) at all sites at the same time; return what each returned. A second call goes on."""

    def run(work, count=3, **settings):
        path = tmp_path / "federation"
        if not path.exists():
            path.mkdir()
            Federation(path, count, **{"protocol": "shares", "group_size": 2, **settings})
        results, errors = [None] * count, []

        def guarded(k):
            try:
                with securedfl.join(path / f"p{k}.toml") as peer:
                    results[k] = work(k, peer)
            except BaseException as error:  # handed to the test
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(k,), daemon=True) for k in range(count)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + DEADLINE
        for thread in threads:
            while thread.is_alive() and not errors:
                thread.join(0.1)
                assert time.monotonic() < deadline, f"the sites did not end within {DEADLINE:g} s"
        if errors:
            # the others wait for the one that failed, in threads that end with the tests
            raise errors[0]
        return results

    return run
