"""What happens in one run of the world: everything follows from the seed, and faults can be left out one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from securedfl.privacy.absence import Policy

PROTOCOLS = ("resilient", "shares", "resilient", "shares", "grouped", "plain", "classic")
HEALED = 25.0
"""Virtual seconds after which no fault begins, and all that are there end."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, or that an operator does.

    Attributes
    ----------
    at, lasts
        Virtual seconds.
    kind
        One of `KINDS`.
    peer, other
        Whom it concerns.
    choice
        A random number for the details.
    """

    at: float
    kind: str
    peer: int
    other: int = 0
    lasts: float = 0.0
    choice: float = 0.0

    @property
    def both(self) -> bool:
        """Whether two are killed after a commit, not one."""
        return self.kind == "killed after a commit" and self.choice < 0.5

    def __str__(self) -> str:
        other = f" and {self.other}" if self.kind.startswith("cut") or self.both else ""
        return f"{self.at:7.2f} s  {self.kind} of peer {self.peer}{other}, {self.lasts:.1f} s ({self.choice:.3f})"


KINDS = {
    "crash": 10,
    "crash, write lost": 4,
    "crash, write torn": 4,
    "leave": 3,
    "cut": 6,
    "cut one way": 5,
    "isolation": 4,
    "split": 3,
    "slow links": 3,
    "bad links": 4,
    "disk full": 3,
    "disk lost": 3,
    "update damaged": 1,
    "slow training": 3,
    "restart of all": 1,
    "gone for good": 2,
    "extend": 1,
    "deadlines": 1,
    "add": 1,
    "remove": 1,
    "move": 1,
    "renew": 1,
    "end": 0,
    "killed after a commit": 0,
    "other sums": 0,
    "withheld": 0,
}
"""Kinds of faults and changes, and how often each is drawn; the last ones are drawn apart, at most once."""


@dataclass(frozen=True)
class Schedule:
    """A world and what happens in it.

    Attributes
    ----------
    seed
        Of everything that is random and not written here.
    peers, protocol, rounds
        Of the federation.
    liars
        Peers that lie; the log is sized for as many.
    drop, duplicate, delay
        Of messages: how many are lost, how many come twice, and the usual delay in seconds.
    skew
        How much clocks differ in speed.
    absence
        What the federation does when peers are missing, if the protocol can do without some: go on without them, or
        without them and their blocks, or wait.
    encoded
        Whether every message and record goes through its bytes.
    prompt
        Whether those linked with a process that stops notice it at once, as over TCP, or by its silence.
    faults
        What happens.
    """

    seed: int
    peers: int
    protocol: str
    rounds: int
    liars: tuple[int, ...] = ()
    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.02
    skew: float = 0.0
    absence: Policy = "go on"
    encoded: bool = False
    prompt: bool = False
    faults: tuple[Fault, ...] = field(default=())

    @property
    def lying(self) -> int:
        """How many may lie."""
        return len(self.liars)

    def quorum(self, n: int) -> int:
        """Return how many of n votes decide; counted here by itself, because it judges the core."""
        return (n + self.lying) // 2 + 1

    def __str__(self) -> str:
        lie = "lies" if self.lying == 1 else "lie"
        who = f", of which {', '.join(map(str, self.liars))} {lie}" if self.liars else ""
        weather = f"{self.drop:.1%} lost, {self.duplicate:.1%} twice, {self.delay * 1000:.0f} ms, skew {self.skew:.0%}"
        what = f"{self.protocol}, absence {self.absence!r}, {self.rounds} rounds"
        head = f"seed {self.seed}: {self.peers} peers{who}; {what}; messages: {weather}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = Random(f"schedule {seed}")
    peers = rng.choice((3, 3, 4, 4, 5, 5, 6, 7, 8, 9))
    protocol = rng.choice(PROTOCOLS)
    liars = (rng.randrange(peers),) if peers >= 4 and rng.random() < 0.3 else ()
    faults = []
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6, 8, 12))):
        kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        peer = rng.randrange(peers)
        other = rng.choice([k for k in range(peers) if k != peer])
        lasts = rng.choice((0.1, 1.0, 3.0, 8.0, 15.0, 40.0)) * (0.5 + rng.random())
        faults.append(Fault(rng.uniform(0.5, HEALED), kind, peer, other, lasts, rng.random()))
    bad = rng.random() < 0.4
    schedule = Schedule(
        seed=seed,
        peers=peers,
        protocol=protocol,
        rounds=rng.randrange(2, 6),
        liars=liars,
        drop=rng.choice((0.0, 0.01, 0.05)) if bad else 0.0,
        duplicate=rng.choice((0.0, 0.02, 0.1)) if bad else 0.0,
        delay=rng.choice((0.005, 0.02, 0.1)),
        skew=rng.choice((0.0, 0.0, 0.05, 0.2)),
        encoded=rng.random() < 0.05,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )
    # last, so that what is drawn above stays what it was
    more = tuple(_killed(rng, peers) for _ in range(rng.random() < 0.15))
    more += tuple(_spoiled(Random(f"spoiled {seed}"), liar) for liar in liars)
    prompt = rng.random() < 0.5
    apart = Random(f"second liar {seed}")
    if liars and peers >= 7 and apart.random() < 0.5:
        second = apart.choice([peer for peer in range(peers) if peer not in liars])
        liars, more = (*liars, second), (*more, _spoiled(apart, second))
    absence = _absence(Random(f"absence {seed}"), protocol, peers)
    ended = Random(f"end {seed}")
    if ended.random() < 0.05:
        more += (Fault(ended.uniform(0.5, HEALED), "end", ended.randrange(peers)),)
    return replace(schedule, liars=liars, prompt=prompt, absence=absence, faults=(*schedule.faults, *more))


def _absence(rng: Random, protocol: str, peers: int) -> Policy:
    """Return what happens when peers are missing: blocks are the default from seven peers on, and need six."""
    if protocol not in ("shares", "resilient"):
        return "go on"
    return rng.choice(("blocks", "blocks", "wait", "go on", "go on") if peers >= 6 else ("wait", *["go on"] * 5))


def _spoiled(rng: Random, liar: int) -> Fault:
    """Return what a liar does to the data of averages: other sums to everybody, or none."""
    kind = rng.choice(("other sums", "withheld"))
    return Fault(rng.uniform(0.5, HEALED), kind, liar, lasts=rng.choice((0.0, 2.0, 8.0, 40.0)))


def _killed(rng: Random, peers: int) -> Fault:
    """Return one or two members that are killed right after the next commit."""
    one, other = rng.sample(range(peers), 2)
    return Fault(
        rng.uniform(0.5, HEALED / 2), "killed after a commit", one, other, rng.choice((2.0, 8.0, 40.0)), rng.random()
    )
