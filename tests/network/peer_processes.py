"""Federations of real processes with real TLS on loopback. Every process is ended by its own handle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import tomli_w

from securedfl.federation.founding.files import free_ports
from securedfl.network.wire import keys as certificates

HERE = Path(__file__).parent
RUN = b"r" * 16
FAST = {"train": 60, "average": 40, "absent": 2, "heartbeat": 0.5}
"""Long where only a starved machine would need it, short where a test waits for it."""


class Process:
    """One peer process and the events that it printed."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self.events: list[dict] = []
        self.errors = ""
        self._changed = threading.Condition()
        self.popen = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        for line in self.popen.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self) -> None:
        for line in self.popen.stderr:
            self.errors += line

    def wait_for(self, timeout: float = 300, **wanted) -> dict:
        """Wait for an event with the given values."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for event in self.events:
                    if wanted.items() <= event.items():
                        return event
                left = deadline - time.monotonic()
                if left <= 0 or (self.popen.poll() is not None and not self._threads[0].is_alive()):
                    raise AssertionError(f"no event {wanted}; events {self.events}; stderr {self.errors}")
                self._changed.wait(min(left, 0.2))

    def end(self, timeout: float = 600) -> int:
        """Wait for the process to end by itself and return its exit code."""
        code = self.popen.wait(timeout)
        for thread in self._threads:
            thread.join(5)
        return code

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(60)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.kill()
        for thread in self._threads:
            thread.join(5)
        self.popen.stdout.close()
        self.popen.stderr.close()


class Federation:
    """Files and processes of one federation."""

    def __init__(self, folder: Path, n: int, *, data=None, deadlines=None, settings=None, **train) -> None:
        self.folder, self.n = folder, n
        self.names = [f"p{k}" for k in range(n)]
        self.keys = folder / "keys"
        certificates.create_authority(self.keys)
        self.files = [certificates.issue(self.keys, name, ["127.0.0.1"]) for name in self.names]
        self.ports = free_ports(n)
        self.values = {
            "name": "test",
            "entry": "toy:make",
            "train": {"rounds": 3, **train},
            "deadlines": {**FAST, **(deadlines or {})},
            **(settings or {}),
            "peers": [
                {
                    "name": name,
                    "address": f"127.0.0.1:{port}",
                    "fingerprint": certificates.describe(files.certificate).fingerprint,
                }
                for name, port, files in zip(self.names, self.ports, self.files, strict=True)
            ],
        }
        self.write()
        (folder / "toy.py").write_text((HERE / "toy.py").read_text())
        for k, files in enumerate(self.files):
            self.write_peer(k, files, **(data or {}).get(k, {}))
        self.processes: list[Process] = []

    def write(self, name: str = "federation.toml", **changes) -> None:
        (self.folder / name).write_text(tomli_w.dumps({**self.values, **changes}))

    def write_peer(self, k: int, files, federation: str = "federation.toml", extra=None, **data) -> Path:
        path = self.folder / f"{self.names[k]}.toml"
        values = {
            "name": self.names[k],
            "federation": federation,
            "out": f"out-{self.names[k]}",
            "key": str(files.key),
            "certificate": str(files.certificate),
            "authority": str(files.authority),
            "data": data,
            **(extra or {}),
        }
        path.write_text(tomli_w.dumps(values))
        return path

    def start(self, k: int, fault: str = "none", at: int = -1, marker: str = "marker") -> Process:
        marker = self.folder / f"{marker}-{k}"
        command = [sys.executable, str(HERE / "faulty.py"), fault, str(at), str(marker)]
        process = Process([*command, "peer", f"{self.names[k]}.toml", "--json"], self.folder)
        self.processes.append(process)
        return process

    def start_all(self, faults=None) -> list[Process]:
        return [self.start(k, *(faults or {}).get(k, ())) for k in range(self.n)]

    def model(self, k: int) -> np.ndarray:
        with np.load(self.folder / f"out-{self.names[k]}" / "model.npz") as file:
            return np.concatenate([file[name].astype(np.float64).reshape(-1) for name in ("a", "b")])

    def rows(self, k: int) -> list[dict]:
        text = (self.folder / f"out-{self.names[k]}" / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def in_threads(work, count):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:  # handed to the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    if errors:
        raise errors[0]


def ends(processes, timeout=600):
    return [process.end(timeout) for process in processes]


def last_line(process) -> str:
    return process.errors.strip().splitlines()[-1]


def await_text(path, text):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        told = path.read_text() if path.exists() else ""
        if text in told:
            return told
        time.sleep(0.1)
    raise AssertionError(f"no {text!r} in {path}")
