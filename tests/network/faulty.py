"""Runs ``securedfl peer`` with a fault at an exact place: ``faulty.py PLACE ROUND MARKER peer FILE --json``.

The fault happens once: the marker file is written just before, so that the peer started again is a healthy one.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

from securedfl.cli import main
from securedfl.network import peer
from securedfl.network.data import driver
from securedfl.network.data.results import Results
from securedfl.network.wire.keys import CertificateInfo
from securedfl.protocols import InsecureSeededDraw


def install(place: str, at: int, marker: Path) -> None:
    """Patch the place so that this process dies there in round ``at``."""

    def die(current: int) -> None:
        if current == at and not marker.exists():
            marker.write_text(place)
            os.kill(os.getpid(), signal.SIGKILL)

    share, finish, store, put = (
        driver.LocalAttempt.share,
        driver.LocalAttempt.finish,
        Results.store,
        driver.LocalAttempt._put,
    )
    sent = {"count": 0, "finishes": 0}

    def patched_share(self):
        current = self._mailbox.place.round
        if place == "before sharing":
            die(current)
        share(self)
        if place == "shared":
            die(current)

    def patched_finish(self, *lost):
        current = self._mailbox.place.round
        sent["finishes"] += current == at
        if place == "committed" or (place == "recovering" and sent["finishes"] == 2):
            die(current)
        result = finish(self, *lost)
        if place == "finished":
            die(current)
        return result

    def patched_store(self, round, attempt, vector):
        if place == "disk full" and round == at:
            # bytes per file, from now on
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        result = store(self, round, attempt, vector)
        if place == "staged":
            die(round)
        return result

    def patched_put(self, receiver, at_place, message):
        if place == "half-way through sending" and at_place.round == at:
            sent["count"] += 1
            if sent["count"] == 2:
                die(at_place.round)
        if place == f"step {at_place.step}" and at_place.round == at:
            sent["count"] += 1
            if sent["count"] == 2:
                die(at_place.round)
        tells = place == "tells only p0" and (at_place.round, at_place.step) == (at, 2)
        if tells and sent.setdefault("told", receiver) != receiver:
            self._streams[sent["told"]].finish(300)
            await_result(Path("out-p0/state/results"), at)
            die(at_place.round)
        put(self, receiver, at_place, message)
        if place == "duplicates":
            put(self, receiver, at_place, message)

    driver.LocalAttempt.share, driver.LocalAttempt.finish, driver.LocalAttempt._put = (
        patched_share,
        patched_finish,
        patched_put,
    )
    Results.store = patched_store
    if place == "ignores expiry":
        CertificateInfo.valid = lambda _self: True
    if place == "brings":
        average = peer.Peer.average

        def recording(self, vector, round):
            if round == at:
                np.save("brought.npy", vector)
            return average(self, vector, round)

        peer.Peer.average = recording
    if place == "reordered":
        install_reordering()
    if place in ("seeded", "duplicates", "reordered"):
        install_seed()


def await_result(folder: Path, round: int) -> None:
    """Wait until another peer holds the result of a round."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not list(folder.glob(f"{round}-*.bin")):
        time.sleep(0.01)


def install_reordering() -> None:
    """Let every stream send messages in pairs, the later one first, where two follow each other at once."""
    put, flip = driver.LocalAttempt._put, random.Random(7)
    run = driver.LocalAttempt._run

    def held_back(self, receiver, place, message):
        waiting = self.__dict__.setdefault("waiting", {}).setdefault(receiver, [])
        waiting.append((place, message.copy() if isinstance(message, np.ndarray) else message))

    def send_all(self):
        for receiver, waiting in self.__dict__.pop("waiting", {}).items():
            flip.shuffle(waiting)
            for item in waiting:
                put(self, receiver, *item)

    def waits(self, waiting):
        send_all(self)
        return wait(self, waiting)

    def runs(self):
        run(self)
        send_all(self)

    wait = driver.LocalAttempt._wait
    driver.LocalAttempt._wait, driver.LocalAttempt._run, driver.LocalAttempt._put = waits, runs, held_back


def install_seed() -> None:
    """Draw masks that the test can repeat."""
    connect = driver.LocalAttempt.connect

    def seeded(self, mailbox, streams):
        connect(self, mailbox, streams)
        peer, round = self._recipe.me, mailbox.place.round
        self._draws = lambda offset: InsecureSeededDraw(5, peer=peer, round=round, offset=offset)

    driver.LocalAttempt.connect = seeded


if __name__ == "__main__":
    install(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    sys.argv = ["securedfl", *sys.argv[4:]]
    main()
