"""What happens to the processes of one run: everything but the timing of the machine follows from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

PROTOCOLS = ("resilient", "shares", "resilient", "shares", "grouped", "plain")
KINDS = ("kill", "leave", "stop", "cut", "cut one way", "slow", "disk full")


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    at, lasts
        Seconds since the first round, and how long.
    kind
        One of `KINDS`: SIGKILL, SIGTERM, SIGSTOP; a link that is cut, in one direction or both, or is slow; no more
        bytes on disk.
    peer, other
        Whom it concerns.
    breaks
        Whether a cut link is broken, and not just silent.
    """

    at: float
    kind: str
    peer: int
    other: int
    lasts: float
    breaks: bool

    def __str__(self) -> str:
        link = f" and p{self.other}" if self.kind in ("cut", "cut one way", "slow") else ""
        how = " (breaks)" if self.breaks and self.kind.startswith("cut") else ""
        return f"{self.at:5.1f} s  {self.kind}{how} p{self.peer}{link}, {self.lasts:.1f} s"


@dataclass(frozen=True)
class Schedule:
    """One run."""

    seed: int
    peers: int
    protocol: str
    rounds: int
    faults: tuple[Fault, ...]


def draw(seed: int, peers: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = Random(f"campaign {seed}")
    protocol, rounds = rng.choice(PROTOCOLS), rng.randrange(5, 9)
    faults = []
    for _ in range(rng.randrange(3, 8)):
        peer = rng.randrange(peers)
        other = rng.choice([k for k in range(peers) if k != peer])
        lasts = rng.choice((0.5, 2.0, 5.0, 10.0, 20.0)) * rng.uniform(0.7, 1.3)
        faults.append(Fault(rng.uniform(0, 20), rng.choice(KINDS), peer, other, lasts, rng.random() < 0.5))
    return Schedule(seed, peers, protocol, rounds, tuple(sorted(faults, key=lambda fault: fault.at)))
