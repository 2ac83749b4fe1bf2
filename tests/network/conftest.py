"""Fixtures of real processes and endpoints."""

from __future__ import annotations

import pytest

from securedfl.network.wire import keys as certificates
from securedfl.network.wire import tls
from securedfl.network.wire.endpoint import Endpoint
from tests.network.peer_processes import Federation, free_ports


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


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    certificates.create_authority(folder)
    names = [f"p{k}" for k in range(9)]
    return folder, [certificates.issue(folder, name, ["127.0.0.1"]) for name in names]


@pytest.fixture
def endpoints(keys):
    made = []

    def make(n):
        files = keys[1][:n]
        roster = [
            tls.Member(f"p{k}", "127.0.0.1", port, certificates.describe(files[k].certificate).fingerprint)
            for k, port in enumerate(free_ports(n))
        ]
        made.extend(Endpoint(roster, k, files[k]) for k in range(n))
        return made

    yield make
    for endpoint in made:
        endpoint.close()
