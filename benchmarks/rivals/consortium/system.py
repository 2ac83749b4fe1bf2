"""What a campaign asks of a system that is put through the bad hour; each system answers in a file of `systems/`."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from .hour import Hour
from .machines import Machines
from .training import NOTES, PAUSE, SITE, hold, newest_round

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Where a system runs: its machines, a folder for what the observer keeps, and the Python of its environment."""

    machines: Machines
    folder: Path
    python: Path
    hour: Hour

    @property
    def notes(self) -> Path:
        """The folder of the notes that sites leave."""
        return self.folder / "notes"

    @property
    def bin(self) -> Path:
        """The folder of the environment's commands."""
        return self.python.parent


class System:
    """One system, as a competent user would set it up; what stands here suits most of them.

    Attributes
    ----------
    name, environment
        Its name in tables; the name of its environment (none: this one).
    settings
        What was chosen and why, for the page.
    packages
        Whose versions are told.
    server
        Whether sites talk to a server only, so that links between sites do not exist.
    stays
        Whether a site's process stays when the work is done.
    refusal
        A pattern for what logs say of a stale key.
    patience, alone
        How many times as long as others it is given; whether it is also put through each fault alone.
    without
        Faults that do not exist in this system, and why.
    """

    name = ""
    environment = ""
    settings = ""
    packages: tuple[str, ...] = ()
    server = False
    stays = False
    refusal = ""
    patience = 1.0
    alone = True
    without: ClassVar[dict[str, str]] = {}

    def __init__(self, place: Place) -> None:
        self.place = place

    def prepare(self) -> None:
        """Write keys and files."""

    def services(self) -> list[list[str]]:
        """Return the commands of what stands at site 0 beside the site itself."""
        return []

    def admit(self) -> None:
        """Make sites known to the services, before they are started."""

    def site(self, k: int, *, stale: bool) -> list[str]:
        """Return the command of a site, with the key that is good or with the stale one."""
        raise NotImplementedError

    def submit(self) -> None:
        """Begin the work, once services and sites have been started."""

    def tend(self) -> str | None:
        """Do what an operator of the whole does who looks at it now and then; return what it was, if anything."""
        return None

    def anew(self) -> str | None:
        """Begin the work again where it stood, because nothing moves any more; return what was done, if anything."""
        return None

    def ended(self) -> bool:
        """Whether the work is over though sites stay."""
        return False

    def collect(self) -> None:
        """Take note, after the end, of models that sites did not note themselves."""

    def told(self, k: int) -> str:
        """Return what somebody reads about the stale key of a site, in its log and in those of services."""
        found: list[str] = []
        for name in (f"site-{k}", "service-0"):
            lines = re.findall(self.refusal, self.log(name)) if self.refusal else []
            found += [f"{name}: {line[:200]}" for line in lines[-1:]]
        return "; ".join(found)

    def variables(self, k: int) -> dict[str, str]:
        """Return variables for the processes of a site."""
        hour = self.place.hour
        path = os.pathsep.join((str(self.place.bin), os.environ["PATH"]))
        own = {SITE: str(k), NOTES: str(self.place.notes), PAUSE: str(hour.pause + 0.3 * (k % 3))}
        own |= {"CONSORTIUM_ROUNDS": str(hour.rounds), "CONSORTIUM_SITES": str(hour.sites)}
        return {**own, "PATH": path, "PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}

    def run(self, *command: str, k: int = 0, timeout: float = 120) -> str:
        """Run a command at a site to its end, and return what it printed."""
        machines = self.place.machines
        ended = subprocess.run(
            ["ip", "netns", "exec", f"m{k}", *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=machines.disks[k],
            env={**os.environ, "HOME": str(machines.disks[k] / "home"), **self.variables(k)},
        )
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()[-2000:]}")
        return ended.stdout

    def keep(self, site: int, model: np.ndarray, path: Path) -> int:
        """Take note of a model that a site (-1: the server) has left in a file; return the round that it is of."""
        hour = self.place.hour
        round = newest_round(model, hour.sites, hour.rounds)
        hold(site, round, model, self.place.notes, path.stat().st_mtime)
        return round

    def log(self, name: str) -> str:
        """Return what a site or service printed."""
        path = self.place.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
