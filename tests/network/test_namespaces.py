"""Peers on machines of their own: network namespaces, and a link that is cut while they train."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from securedfl.network.wire import keys as certificates
from tests.network.peer_processes import HERE, Process
from tests.network.test_peers import check_equal


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)


@pytest.fixture
def machines():
    """Four namespaces on one switch; skipped where the system does not allow it."""
    prefix = f"sdfl{os.getpid() % 100_000}"
    made: list[str] = []
    try:
        if shutil.which("ip") is None:
            pytest.skip("the command ip is missing")
        try:
            ip("netns", "add", f"{prefix}-hub")
            made.append(f"{prefix}-hub")
            ip("-n", made[0], "link", "add", "switch", "type", "bridge")
            ip("-n", made[0], "link", "set", "switch", "up")
            for k in range(4):
                name = f"{prefix}-{k}"
                ip("netns", "add", name)
                made.append(name)
                ip(
                    "-n",
                    made[0],
                    "link",
                    "add",
                    f"port{k}",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    name,
                )
                ip("-n", made[0], "link", "set", f"port{k}", "master", "switch", "up")
                ip("-n", name, "addr", "add", f"10.213.0.{k + 1}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', error)!r}")
        yield made
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=10)


def test_a_cut_link(federation, machines):
    """The three peers that still reach each other go on; the one that is cut off waits, and says for whom."""
    made = federation(4, protocol="shares", group_size=2, rounds=4, deadlines={"absent": 4})
    for k, entry in enumerate(made.values["peers"]):
        entry["address"] = f"10.213.0.{k + 1}:7443"
    made.write()
    for k, name in enumerate(made.names):
        files = certificates.issue(made.keys, name, [f"10.213.0.{k + 1}"], renew=True)
        made.values["peers"][k]["fingerprint"] = certificates.describe(files.certificate).fingerprint
        # in round 2 the peer to be cut off takes its time, so that the link is down when it wants to average
        made.write_peer(k, files, **({"slow_round": 2, "slow_seconds": 4} if k == 3 else {}))
    made.write()
    processes = []
    for k, name in enumerate(made.names):
        command = [
            "ip",
            "netns",
            "exec",
            machines[k + 1],
            sys.executable,
            str(HERE / "faulty.py"),
            "none",
            "-1",
        ]
        processes.append(
            Process([*command, str(made.folder / "marker"), "peer", f"{name}.toml", "--json"], made.folder)
        )
        made.processes.append(processes[-1])
    processes[3].wait_for(event="phase", phase="training", round=2)
    ip("-n", machines[0], "link", "set", "port3", "down")
    assert [process.end() for process in processes[:3]] == [0, 0, 0], [p.errors for p in processes]
    processes[3].wait_for(event="waiting", missing=["p0", "p1", "p2"])
    check_equal(made, [0, 1, 2])
    assert made.rows(0)[-1]["members"] == ["p0", "p1", "p2"]
