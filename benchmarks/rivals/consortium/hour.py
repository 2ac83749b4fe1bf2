"""The bad hour: who is hit by what, and when. Minutes are scaled to seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

PUT_RIGHT = 15.0
"""Seconds after which the operator of the site with the stale key has found out and installed the right one."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    at, lasts
        Seconds since the first site began to train, and how long.
    kind
        ``slow`` line, ``leave`` (SIGTERM) or ``kill`` (SIGKILL) and be started again, ``freeze`` (SIGSTOP), ``full``
        disk; ``break`` a link so that it is refused, or make it ``silent``.
    site, other
        Whom it concerns; ``other`` is the far end of a link.
    stale
        Whether the site comes back with a key that is no longer good.
    """

    at: float
    kind: str
    site: int
    lasts: float
    other: int = -1
    stale: bool = False

    def __str__(self) -> str:
        link = f" to {self.other}" if self.other >= 0 else ""
        stale = ", comes back with a stale key" if self.stale else ""
        return f"{self.kind}: site {self.site}{link}, {self.lasts:g} s{stale}"


@dataclass(frozen=True)
class Hour:
    """So many sites, rounds and faults.

    Attributes
    ----------
    pause
        Seconds that a round's training takes; a site needs up to 0.6 s more, depending on its number.
    most
        Seconds after which it is over, whoever has finished.
    """

    name: str
    sites: int
    rounds: int
    faults: tuple[Fault, ...]
    pause: float = 3.0
    most: float = 900.0


FIRST = 8.0
SLOW = 7
BAD = Hour(
    "bad hour",
    8,
    20,
    (
        Fault(0.0, "slow", SLOW, 60.0),
        Fault(8.0, "break", 2, 12.0, other=1),
        Fault(12.0, "leave", 3, 10.0),
        Fault(20.0, "kill", 6, 5.0, stale=True),
        Fault(25.0, "freeze", 4, 8.0),
        Fault(30.0, "full", 5, 12.0),
        Fault(40.0, "silent", 1, 10.0, other=0),
    ),
)
"""The faults of tests/network/campaign/consortium.py, at the same moments."""
SMOKE = Hour("smoke", 3, 3, (Fault(2.0, "leave", 2, 5.0),), pause=1.0, most=240.0)


def alone(fault: Fault) -> Hour:
    """Return a shorter hour with one fault only, early."""
    early = replace(fault, at=fault.at and FIRST)
    return replace(BAD, name=f"{fault.kind} alone", rounds=10, faults=(early,), most=BAD.most / 2)


ALONE = {fault.kind: alone(fault) for fault in BAD.faults}
HOURS = {"bad": BAD, "quiet": replace(BAD, name="quiet hour", faults=()), **ALONE, "smoke": SMOKE}
"""All hours, by the names that commands have for them."""
