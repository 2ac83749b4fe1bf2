"""live.json: what a running process says about itself once a second, for whoever watches. Names and counts only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.files import LIVE
from securedfl.federation.run_folder.metrics import Row
from securedfl.storage import look_at_types

EVERY = 1.0
"""Seconds between two times that something is told."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """What is going on now.

    Attributes
    ----------
    time
        When it was said, as a Unix time. Who has not said anything for long is lost.
    phase, round, rounds
        What is done in which round, of how many; ``done``, ``stopped`` or ``failed`` at the end.
    method, trained
        Of a simulation: which method, and how many peers have trained in the round.
    name, roster
        Of a real peer: its name, and those of all peers in the order of their numbers.
    present, ready
        Of the roster: who is there, and who has trained for the round.
    links
        Of a real peer: whom it has a link to, each with whom it goes through; empty if it is direct.
    bytes_in, bytes_out
        Since the start.
    """

    time: float
    phase: str
    round: int = 0
    rounds: int = 0
    method: str = ""
    trained: int = 0
    name: str = ""
    roster: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0


def write_live(folder: Path, live: Live) -> None:
    """Replace live.json. It is gone with a crash, and trouble of its own, such as a full disk, stops no run."""
    temporary = folder / f".{LIVE}.tmp"
    with suppress(OSError):
        temporary.write_text(json.dumps(asdict(live)), encoding="utf-8")
        temporary.replace(folder / LIVE)


def read_live(folder: Path) -> Live | None:
    """Read live.json; None if there is none that can be read: it is for watching, and nothing depends on it."""
    try:
        return msgspec.json.decode((folder / LIVE).read_bytes(), type=Live)
    except (OSError, msgspec.MsgspecError):
        return None


@contextmanager
def every_second(act: Callable[[], None]) -> Iterator[None]:
    """Act once a second, in a thread, until the end."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(EVERY):
            act()

    thread = threading.Thread(target=beat, name="securedfl-live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


@contextmanager
def beating(folder: Path, now: Callable[[], Live]) -> Iterator[None]:
    """Write once a second what ``now`` says, and at the end how it ended."""
    write_live(folder, now())
    end = "done"
    try:
        with every_second(lambda: write_live(folder, now())):
            yield
    except Exception:
        end = "failed"
        raise
    except BaseException:  # Ctrl-C
        end = "stopped"
        raise
    finally:
        write_live(folder, replace(now(), phase=end))


class Simulation(Observer):
    """Follows a simulation, and tells another observer all that it hears."""

    def __init__(self, config: TrainConfig, other: Observer) -> None:
        self._config, self._other = config, other
        self._live = Live(time=0.0, phase="starting", rounds=config.rounds)

    def now(self) -> Live:
        """Return what is going on."""
        return replace(self._live, time=time.time())

    def started(self, folder: Path, config: TrainConfig, workers: int) -> None:
        """Pass it on."""
        self._other.started(folder, config, workers)

    def method_started(self, method: str, after: int | None) -> None:
        """Hear which method trains from now on."""
        phase, round = ("averaging", 0) if after is None else ("training", after + 1)
        self._live = replace(self._live, method=method, phase=phase, round=round, trained=0)
        self._other.method_started(method, after)

    def peers_trained(self, count: int) -> None:
        """Hear that peers have trained; when all have, they average."""
        phase = "averaging" if count >= self._config.members else "training"
        self._live = replace(self._live, trained=count, phase=phase)
        self._other.peers_trained(count)

    def round_finished(self, row: Row) -> None:
        """Hear that a round is done, and the next one begins, if there is one."""
        sent = self._live.bytes_out + round(row.bytes_per_peer)
        following = min(row.round + 1, self._config.rounds)
        self._live = replace(self._live, phase="training", round=following, trained=0, bytes_out=sent)
        self._other.round_finished(row)

    def method_finished(self, method: str) -> None:
        """Pass it on."""
        self._other.method_finished(method)


look_at_types(Live)
