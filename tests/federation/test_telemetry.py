"""Watching a peer: logs whose disk is full, and what the health endpoint says."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from securedfl.errors import RunFolderError
from securedfl.federation.peers.telemetry import Metric, logging_to, prometheus, serve_metrics


def test_a_log_that_cannot_be_written_disturbs_nobody(capfd):
    before = list(logging.getLogger("securedfl").handlers)
    with logging_to(Path("/dev/full")):
        logging.getLogger("securedfl.peer").error("no space for this")
    assert logging.getLogger("securedfl").handlers == before
    assert "Traceback" not in capfd.readouterr().err


def test_a_log_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "peer.log").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*peer\.log"), logging_to(tmp_path / "peer.log"):
        pass


def test_labels_and_health():
    text = prometheus([Metric("peer_linked", "gauge", "Linked.", {"p1": 1}, "peer")])
    assert text.splitlines()[-1] == 'securedfl_peer_linked{peer="p1"} 1'
    trouble = [""]
    server = serve_metrics("127.0.0.1:0", list, lambda: trouble[0])
    try:
        url = f"http://127.0.0.1:{server.server_port}/healthz"
        with urllib.request.urlopen(url, timeout=5) as reply:
            assert reply.read() == b"ok\n"
        trouble[0] = "the disk is full"
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(url, timeout=5)
        assert refused.value.read() == b"the disk is full\n"
        refused.value.close()
    finally:
        server.shutdown()
        server.server_close()
