"""One run with real processes: faults at their times, then all must finish with the exact mean."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from securedfl.network.core.entries import Begin, Done, Entry, Void
from securedfl.network.core.messages import Decided, decode_record
from securedfl.storage import read_records
from tests.network import toy
from tests.network.campaign.schedule import Fault, Schedule
from tests.network.campaign.weather import Weather
from tests.network.peer_processes import Federation, Process

PATIENCE = 300.0
"""Seconds after the last fault within which all must have finished."""
DEADLINES = {"train": 60, "average": 8, "absent": 15, "heartbeat": 0.5}
ALONE = 45.0
"""Seconds after which the operator of a peer that came back too late asks another one to start again.

It is longer than a peer that has finished stays for others.
"""
ENDS = {0: "finished", 8: "disk full", 130: "left", -signal.SIGTERM: "left at once", -signal.SIGKILL: "killed"}
"""Exit codes that a schedule explains."""


class FailedError(AssertionError):
    """A promise was broken: ``dead``, ``stuck``, ``fork`` or ``wrong mean``."""


class Run:
    """The processes of a schedule.

    Parameters
    ----------
    schedule
        What happens.
    folder
        Where the federation's files are.
    tell
        Told what happens.
    """

    def __init__(self, schedule: Schedule, folder: Path, tell: Callable[[str], None]) -> None:
        self.schedule, self._tell = schedule, tell
        n = schedule.peers
        self._made = Federation(
            folder,
            n,
            protocol=schedule.protocol,
            group_size=2,
            rounds=schedule.rounds,
            allow_exposure=True,
            deadlines=DEADLINES,
        )
        self._weather = Weather({port: k for k, port in enumerate(self._made.ports)})
        for k, files in enumerate(self._made.files):
            pause = 1.0 + 0.7 * ((k + schedule.seed) % 3)
            self._made.write_peer(k, files, extra={"proxy": self._weather.urls[k]}, pause=pause, size=20_000)
        self._processes: list[Process] = []
        self._absent: dict[int, float] = {}
        self._full: set[int] = set()
        self._began = self._alone = time.monotonic()

    def close(self) -> None:
        """End every process."""
        for process in self._made.processes:
            process.close()
        self._weather.close()

    def __call__(self) -> float:
        """Let it happen; return by how much the models differ from the exact mean at most."""
        self._processes = self._made.start_all()
        self._processes[0].wait_for(event="phase", phase="averaging", round=0)
        self._began = time.monotonic()
        todo = [(fault.at, "begin", fault) for fault in self.schedule.faults]
        todo += [(fault.at + fault.lasts, "end", fault) for fault in self.schedule.faults]
        todo.sort(key=lambda item: (item[0], item[1]))
        over = max(at for at, _, _ in todo) + PATIENCE
        while todo or not self._finished():
            now = time.monotonic() - self._began
            if now > over:
                raise FailedError(f"stuck: {self._where()}")
            while todo and todo[0][0] <= now:
                _, what, fault = todo.pop(0)
                (self._begin if what == "begin" else self._end)(fault)
            self._start_again()
            time.sleep(0.1)
        return self._check()

    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began:7.1f}  {text}")

    def _begin(self, fault: Fault) -> None:
        process, running = self._processes[fault.peer], self._processes[fault.peer].popen.poll() is None
        self._say(str(fault).strip())
        ends = self._began + fault.at + fault.lasts
        match fault.kind:
            case "kill" | "leave" if running:
                self._absent[fault.peer] = max(ends, self._absent.get(fault.peer, 0.0))
                process.popen.send_signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
            case "stop" if running:
                process.popen.send_signal(signal.SIGSTOP)
            case "cut" | "cut one way":
                self._weather.change("break" if fault.breaks else "hold", self._ways(fault), 1)
            case "slow":
                self._weather.change("slow", self._ways(fault), 1)
            case "disk full" if running:
                self._absent[fault.peer] = max(ends, self._absent.get(fault.peer, 0.0))
                self._limit(process, 0)

    def _end(self, fault: Fault) -> None:
        process = self._processes[fault.peer]
        match fault.kind:
            case "stop":
                process.popen.send_signal(signal.SIGCONT)
            case "cut" | "cut one way":
                self._weather.change("break" if fault.breaks else "hold", self._ways(fault), -1)
            case "slow":
                self._weather.change("slow", self._ways(fault), -1)
            case "disk full" if process.popen.poll() is None:
                self._limit(process, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(process: Process, size: int) -> None:
        """Let no file of a process grow beyond a size."""
        _, hard = resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (size if size < 1 << 40 else hard, hard))

    @staticmethod
    def _ways(fault: Fault) -> list[tuple[int, int]]:
        there, back = (fault.peer, fault.other), (fault.other, fault.peer)
        return [there] if fault.kind == "cut one way" else [there, back]

    def _start_again(self) -> None:
        """Start peers whose absence is over; one that came back after all others had finished needs one of them."""
        now = time.monotonic()
        for k, process in enumerate(self._processes):
            code = process.popen.poll()
            if code not in (None, 0):
                self._explained(k, process.end())
                if now >= self._absent.get(k, 0.0):
                    self._start(k)
        finished = [k for k, process in enumerate(self._processes) if process.popen.poll() == 0]
        if not finished or len(finished) == self.schedule.peers:
            self._alone = now
        elif now - self._alone > ALONE:
            self._start(finished[0])
            self._alone = now

    def _start(self, k: int) -> None:
        self._say(f"p{k} starts again")
        self._processes[k] = self._made.start(k)

    def _explained(self, k: int, code: int) -> None:
        errors = self._processes[k].errors
        if code not in ENDS or "Traceback" in errors:
            raise FailedError(f"dead: p{k} ended with exit code {code}: {errors}")

    def _finished(self) -> bool:
        codes = [process.popen.poll() for process in self._processes]
        for k, code in enumerate(codes):
            if code is not None:
                self._explained(k, code)
        return codes == [0] * len(codes)

    def _where(self) -> str:
        tails = []
        for name, process in zip(self._made.names, self._processes, strict=True):
            log = (self._made.folder / f"out-{name}" / "peer.log").read_text().splitlines()
            tails.append(f"{name} (exit code {process.popen.poll()}):\n" + "\n".join(log[-12:]))
        return "\n".join(tails)

    def _check(self) -> float:
        """Compare all logs, and every model with the mean over the members that the log names."""
        logs = [self._log(name) for name in self._made.names]
        longest = max(logs, key=len)
        if any(one != longest[: len(one)] for one in logs):
            raise FailedError("fork: two peers have different logs")
        expected = exact(longest, self.schedule.peers, 20_000)
        found = [self._made.model(k) for k in range(self.schedule.peers)]
        worst = max(float(np.abs(model - expected).max()) for model in found)
        if worst > 1e-4:
            raise FailedError(f"wrong mean: a model differs by {worst:g}")
        if any(not np.array_equal(model, found[0]) for model in found):
            raise FailedError("wrong mean: two peers have different models")
        return worst

    def _log(self, name: str) -> list[Entry]:
        data, _ = read_records(self._made.folder / f"out-{name}" / "state" / "journal")
        return [record.entry for record in map(decode_record, data) if isinstance(record, Decided)]


def exact(log: list[Entry], peers: int, size: int) -> np.ndarray:
    """Return the model at the end of a log, computed from what each member brings."""
    members: tuple[int, ...] = ()
    held: list[np.ndarray] | None = None
    for entry in log:
        match entry:
            case Begin():
                members = entry.members
            case Done(round, _, _):
                brought = []
                for k in members:
                    model, data, update = toy.make({"name": f"p{k}", "size": size})
                    values = list(model.values())
                    if held is not None:
                        for value, before in zip(values, held, strict=True):
                            value[...] = before
                        update(model, data, round)
                    brought.append(values)
                held = [np.mean([values[i] for values in brought], axis=0, dtype=np.float64) for i in range(2)]
            case Void():
                pass
    assert held is not None
    return np.concatenate([value.reshape(-1) for value in held])
