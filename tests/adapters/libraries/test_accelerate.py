"""The real Accelerator, in a loop written for accelerate's LocalSGD, in three processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from securedfl.adapters.accelerate import FederatedSGD
from securedfl.errors import ConfigError
from tests.network.peer_processes import Federation

SITE = Path(__file__).with_name("accelerate_site.py")


def run(folder, batches):
    """Run all sites; return what each printed."""
    commands = [[sys.executable, str(SITE), str(folder / f"p{k}.toml"), str(k), str(batches)] for k in range(3)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands]
    try:
        outputs = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait(10)
    assert [process.returncode for process in started] == [0, 0, 0], outputs
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def test_the_manner_of_local_sgd(tmp_path):
    Federation(tmp_path, 3, protocol="shares", group_size=2, rounds=3)
    # the common start is 1; two steps of k each, averaged; one more step, averaged at the end
    for k, found in enumerate(run(tmp_path, 6)):
        assert found["seen"] == pytest.approx([1, 1 + k, 1 + k, 3, 3, 3 + k], abs=1e-3)
        assert found["last"] == pytest.approx(4, abs=1e-3)
        assert (found["ended"], found["round"]) == ("", 3)
    # after a restart: from 4; the run is over after two steps, and so is the loop
    for k, found in enumerate(run(tmp_path, 20)):
        assert found["seen"] == pytest.approx([4, 4 + k, 4 + k, 6], abs=1e-3)
        assert "all rounds of this run are done" in found["ended"]


def test_without_join():
    with pytest.raises(ConfigError, match="not a peer"):
        FederatedSGD(Accelerator(cpu=True), torch.nn.Linear(1, 1), "peer.toml", 4)
