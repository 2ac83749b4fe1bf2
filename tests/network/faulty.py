"""Runs ``securedfl peer`` with a fault at an exact place: ``faulty.py PLACE ROUND MARKER peer FILE --json``.

The fault happens once: the marker file is written just before, so that the peer started again is a healthy one.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from securedfl.cli import main
from securedfl.network import driver
from securedfl.network.core import session, settlement
from securedfl.network.wire.keys import CertificateInfo
from securedfl.network.wire import outlet
from securedfl.network.wire.outlet import StreamOutlet
from securedfl.protocols import InsecureSeededDraw


def install(place: str, at: int, marker: Path) -> None:
    """Patch the place so that this process dies there in round ``at``."""

    def die(current: int) -> None:
        if current == at and not marker.exists():
            marker.write_text(place)
            os.kill(os.getpid(), signal.SIGKILL)

    share, finish = driver.Attempt.share, driver.Attempt.finish
    settle, put = settlement.Settlement.settle, StreamOutlet.put
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

    def patched_settle(self, round, epoch, result):
        if place == "disk full" and round == at:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # bytes per file, from now on
        if result is not None and place == "staged":
            self._results.stage(round, epoch, result)
            die(round)
        return settle(self, round, epoch, result)

    def patched_put(self, at_place, message):
        if place == "half-way through sending" and at_place.step >= self._mailbox.place.step:
            sent["count"] += at_place.round == at
            if sent["count"] == 2:
                die(at_place.round)
        if place == f"step {at_place.step}" and at_place.round == at:
            sent["count"] += 1
            if sent["count"] == 2:
                die(at_place.round)
        if place == "tells only p0" and (at_place.round, at_place.step) == (at, 2):
            sent.setdefault("teller", self)
            if sent["teller"] is not self:
                sent["teller"].finish(30)
                await_result(Path("out-p0/state/pending.bin"), at)
                die(at_place.round)
        put(self, at_place, message)
        if place == "duplicates":
            put(self, at_place, message)

    driver.Attempt.share, driver.Attempt.finish = patched_share, patched_finish
    settlement.Settlement.settle, StreamOutlet.put = patched_settle, patched_put
    if place == "ignores expiry":
        CertificateInfo.valid = lambda _self: True
    if place == "brings":
        average = session.Session.average

        def recording(self, vector, round):
            if round == at:
                np.save("brought.npy", vector)
            return average(self, vector, round)

        session.Session.average = recording
    if place == "reordered":
        install_reordering()
    if place in ("seeded", "duplicates", "reordered"):
        install_seed()


def await_result(path: Path, round: int) -> None:
    """Wait until another peer holds the result of a round."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError), path.open("rb") as file:
            if json.loads(file.readline())["round"] == round:
                return
        time.sleep(0.01)


def install_reordering() -> None:
    """Let every stream send what waits in its queue in random order."""
    bundle, shuffle = outlet.bundle, random.Random(7)

    def shuffled(items):
        items = list(items)
        shuffle.shuffle(items)
        return bundle(items)

    outlet.bundle = shuffled


def install_seed() -> None:
    """Draw masks that the test can repeat."""
    start = session.Session.__init__

    def seeded(self, endpoint, *args, **options):
        def draws(round, offset):
            return InsecureSeededDraw(5, peer=endpoint.me, round=round, offset=offset)

        start(self, endpoint, *args, **{**options, "draws": draws})

    session.Session.__init__ = seeded


if __name__ == "__main__":
    install(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    sys.argv = ["securedfl", *sys.argv[4:]]
    main()
