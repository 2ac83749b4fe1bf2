"""One campaign in the manner of a real consortium's failures: ``python -m tests.network.campaign.consortium``.

Eight sites, twenty rounds, minutes scaled to seconds: a site that is killed and comes back with a key that is not in
the roster, until its operator puts it right; a slow site; links that drop and come back; a site that stops and is
started again; one that is frozen; one whose disk is full until somebody cleans up. All must finish with the same,
exact model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from securedfl.network.core.entries import Begin, Done, Void
from securedfl.network.wire import keys as certificates
from tests.network.campaign.run import Run
from tests.network.campaign.schedule import Fault, Schedule

SITES, ROUNDS = 8, 20
STALE, SLOW = 6, 7
PUT_RIGHT = 15.0
"""Seconds after which the operator of the site with the stale key has found out and installed the new one."""

FAULTS = (
    *(Fault(0.0, "slow", SLOW, other, 60.0, False) for other in range(SITES - 1)),
    Fault(8.0, "cut", 1, 2, 12.0, True),
    Fault(12.0, "leave", 3, 0, 10.0, False),
    Fault(25.0, "stop", 4, 0, 8.0, False),
    Fault(30.0, "disk full", 5, 0, 12.0, False),
    Fault(40.0, "cut", 0, 1, 10.0, False),
    Fault(20.0, "kill", STALE, 0, 5.0, False),
)


class Consortium(Run):
    """The campaign; ``told_stale`` is what the site with the stale key was told."""

    def __init__(self, schedule: Schedule, folder: Path, tell: Callable[[str], None]) -> None:
        super().__init__(schedule, folder, tell)
        old = folder / "old-keys"
        shutil.copytree(folder / "keys", old)
        for file in old.glob(f"p{STALE}.*"):
            file.unlink()
        self._stale = certificates.issue(old, f"p{STALE}", ["127.0.0.1"])
        self.told_stale = ""
        self._back = 0.0

    def _write(self, k: int, files: object) -> None:
        extra = {"proxy": self._weather.urls[k]}
        self._made.write_peer(k, files, extra=extra, pause=1.0 + 0.3 * (k % 3), size=20_000)

    def _start(self, k: int) -> None:
        if k == STALE and not self._back:
            self._write(k, self._stale)
            self._back = time.monotonic()
        super()._start(k)

    def _start_again(self) -> None:
        """Do what operators do: the one of the site with the stale key reads its log and installs the new one."""
        if self._back and not self.told_stale and time.monotonic() > self._back + PUT_RIGHT:
            lines = (self._made.folder / f"out-p{STALE}" / "peer.log").read_text().splitlines()
            texts = [json.loads(line)["text"] for line in lines]
            self.told_stale = next((text for text in reversed(texts) if "fingerprint" in text), "nothing")
            self._write(STALE, self._made.files[STALE])
            self._say(f"the operator of p{STALE} reads: {self.told_stale}")
            self._processes[STALE].popen.send_signal(signal.SIGTERM)
        super()._start_again()


def main() -> int:
    """Run it, and print what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.network.campaign.consortium", description=__doc__)
    parser.add_argument("--protocol", default="resilient")
    parser.add_argument("--json", type=Path, help="also write what happened to this file")
    given = parser.parse_args()
    folder, told, began = Path(tempfile.mkdtemp(prefix="consortium-")), [], time.monotonic()
    run = Consortium(Schedule(0, SITES, given.protocol, ROUNDS, FAULTS), folder, told.append)
    outcome: dict[str, object] = {"system": "SecureD-FL", "protocol": given.protocol, "sites": SITES, "rounds": ROUNDS}
    try:
        outcome["largest_difference_from_exact_mean"] = run()
        log = max((run._log(name) for name in run._made.names), key=len)
        begins = [entry for entry in log if isinstance(entry, Begin)]
        outcome |= {
            "finished": [f"p{k}" for k in range(SITES)],
            "rounds_done": sum(isinstance(entry, Done) for entry in log),
            "rounds_void": sum(isinstance(entry, Void) for entry in log),
            "attempts": len(begins),
            "attempts_with_all_sites": sum(len(entry.members) == SITES for entry in begins),
            "fewest_members": min(len(entry.members) for entry in begins),
        }
    except AssertionError as error:
        outcome["failed"] = str(error)
    finally:
        run.close()
    outcome |= {"seconds": time.monotonic() - began, "stale_key_was_told": run.told_stale, "events": told}
    print(json.dumps(outcome, indent=1))
    if given.json:
        given.json.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    return "failed" in outcome


if __name__ == "__main__":
    sys.exit(main())
