"""One system goes through one hour: processes are started, faults happen, operators do what operators do."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from .hour import PUT_RIGHT, Fault
from .system import System

READY = 240.0
"""Seconds within which the first site must begin to train."""
REST = 2.0
"""Seconds after which a service manager starts a process again that has ended."""
STALLED = 120.0
"""Seconds without a new model at any site after which the operator of the whole begins the work again."""
AFTERWARDS = 8.0
"""Seconds that sites have for what they do after the work is over."""


class Campaign:
    """One system and one hour.

    Parameters
    ----------
    system
        Not yet prepared.
    """

    def __init__(self, system: System) -> None:
        self.system, self.place = system, system.place
        self.events: list[str] = []
        self.starts: Counter[int] = Counter()
        self.acts: list[str] = []
        self.told_stale = ""
        self.put_right = False
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._services: list[subprocess.Popen[str]] = []
        self._absent: dict[int, float] = {}
        self._left: set[int] = set()
        self._stale: dict[int, float] = {}
        self._frozen: set[int] = set()
        self._began, self.began_at = time.monotonic(), time.time()
        self._ended = threading.Event()

    def __call__(self) -> float:
        """Let it happen, and return after how many seconds it was over."""
        place = self.place
        place.notes.mkdir(parents=True)
        self.system.prepare()
        for number, command in enumerate(self.system.services()):
            self._services.append(self._open(0, f"service-{number}", command))
        self.system.admit()
        for k in range(place.hour.sites):
            self._start(k)
        self.system.submit()
        ready = time.monotonic() + READY
        while not self._trained():
            if time.monotonic() > ready:
                raise TimeoutError(f"no site began to train within {READY:g} s")
            self._look_after()
            time.sleep(0.1)
        self._began, self.began_at = time.monotonic(), time.time()
        return self._faults()

    def _trained(self) -> bool:
        return any('"trains"' in path.read_text() for path in self.place.notes.glob("site-*.jsonl"))

    def _faults(self) -> float:
        faults = self.place.hour.faults
        todo = [(fault.at, 1, fault) for fault in faults] + [(fault.at + fault.lasts, 0, fault) for fault in faults]
        todo.sort(key=lambda item: item[:2])
        # looking takes long in some systems, and faults do not wait
        operator = threading.Thread(target=self._operate, daemon=True)
        operator.start()
        while (now := time.monotonic() - self._began) < self.place.hour.most:
            while todo and todo[0][0] <= now:
                _, begins, fault = todo.pop(0)
                (self._begin if begins else self._end)(fault)
            self._look_after()
            if self._over():
                break
            time.sleep(0.1)
        over = time.monotonic() - self._began
        self._ended.set()
        operator.join(60)
        if self.system.stays:
            time.sleep(AFTERWARDS)
        self.system.collect()
        return over

    def _operate(self) -> None:
        moved = time.time()
        while not self._ended.wait(1.0):
            act = self.system.tend()
            moved = max([moved, *(path.stat().st_mtime for path in self.place.notes.glob("model-*.npy"))])
            if not act and time.time() > moved + STALLED:
                act = self.system.anew()
                moved = time.time()
            if act:
                self.acts.append(act)
                self._say(act)

    def _say(self, text: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:7.1f}  {text}")

    def _open(self, k: int, name: str, command: list[str]) -> subprocess.Popen[str]:
        with (self.place.folder / f"{name}.log").open("a", encoding="utf-8") as output:
            return self.place.machines.start(k, command, output, self.system.variables(k))

    def _start(self, k: int) -> None:
        self.starts[k] += 1
        self._running[k] = self._open(k, f"site-{k}", self.system.site(k, stale=k in self._stale))

    def _stop(self, k: int) -> None:
        """End everything on a machine, as a service manager does: politely first."""
        machines = self.place.machines
        machines.signal(k, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._running[k].wait(5)
        machines.signal(k, signal.SIGKILL)

    def _begin(self, fault: Fault) -> None:
        k, machines = fault.site, self.place.machines
        other = self._far_end(fault)
        if why := self.system.without.get(fault.kind):
            return self._say(f"{fault}: does not apply: {why}")
        self._say(str(fault))
        until = self._began + fault.at + fault.lasts
        match fault.kind:
            case "slow":
                machines.line.slow = True
            case "break" | "silent":
                machines.cut(k, other, breaks=fault.kind == "break")
            case "leave" | "kill":
                self._absent[k] = until
                self._left.add(k)
                machines.signal(k, signal.SIGTERM if fault.kind == "leave" else signal.SIGKILL)
            case "freeze":
                self._frozen.add(k)
                machines.signal(k, signal.SIGSTOP)
            case "full":
                self._absent[k] = until
                machines.fill(k)
        return None

    def _end(self, fault: Fault) -> None:
        k, machines = fault.site, self.place.machines
        if fault.kind in self.system.without:
            return
        match fault.kind:
            case "slow":
                machines.line.slow = False
            case "break" | "silent":
                machines.mend(k, self._far_end(fault), breaks=fault.kind == "break")
            case "freeze":
                machines.signal(k, signal.SIGCONT)
                self._frozen.discard(k)
            case "full":
                machines.clean(k)
            case "kill" if fault.stale and "stale" not in self.system.without:
                self._stale[k] = time.monotonic() + PUT_RIGHT

    def _far_end(self, fault: Fault) -> int:
        """Return the other end of a link: where sites talk to a server only, that is the server at site 0."""
        return 0 if self.system.server else fault.other

    def _look_after(self) -> None:
        """Start again what has ended and should run; put a stale key right when its time has come."""
        now = time.monotonic()
        for k, right in list(self._stale.items()):
            if now > right:
                del self._stale[k]
                self.told_stale, self.put_right = self.system.told(k), True
                self._say(f"the operator of site {k} puts the key right")
                self._stop(k)
                self._left.add(k)
        for k, process in self._running.items():
            code = process.poll()
            if code is None or now < self._absent.get(k, 0.0):
                continue
            if code == 0 and k not in self._left and not self.system.stays:
                continue
            if k not in self._left:
                self._say(f"site {k} has ended with code {code}")
                self._absent[k] = now + REST
                self._left.add(k)
                continue
            # what a killed process leaves behind would hold ports
            if k:
                self.place.machines.signal(k, signal.SIGKILL)
            self._left.discard(k)
            self._say(f"site {k} is started again")
            self._start(k)

    def _over(self) -> bool:
        if self.system.stays:
            return self.system.ended()
        return all(process.poll() == 0 and k not in self._left for k, process in self._running.items())

    def close(self) -> None:
        """End everything."""
        self.place.machines.close()
        for process in (*self._running.values(), *self._services):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)


def rows_of(notes: Path) -> list[dict]:
    """Return what all sites noted, in order of time; a line that a killed site left torn is left out."""
    rows = []
    for path in notes.glob("site-*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return sorted(rows, key=lambda row: row["time"])
