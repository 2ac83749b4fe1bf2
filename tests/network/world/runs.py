"""Running schedules: one, many, and as few faults as show a violation."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.network.world.checks import ViolationError
from tests.network.world.schedule import Schedule, draw
from tests.network.world.world import World


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule.

    Attributes
    ----------
    schedule
        Which.
    kind, what
        Of the violation; empty if there was none.
    counts
        Faults, lies and messages by kind; rounds, entries and averages.
    """

    schedule: Schedule
    kind: str = ""
    what: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def run(schedule: Schedule, story: Callable[[str], None] | None = None) -> Outcome:
    """Let a schedule happen."""
    world = World(schedule, story)
    kind = what = ""
    try:
        world.run()
    except ViolationError as violation:
        kind, what = violation.kind, str(violation)
    except Exception as error:  # an error inside the core is a violation too
        kind, what = type(error).__name__, "".join(traceback.format_exception(error, limit=-4))
    counts = world.counts.copy()
    counts["entries decided"] = len(world.checks.log)
    counts["averages checked"] = world.checks.averages
    counts["virtual seconds"] = int(world.now)
    return Outcome(schedule, kind, what, counts)


def run_seed(seed: int) -> Outcome:
    """Let the schedule of a seed happen."""
    return run(draw(seed))


def shrink(outcome: Outcome) -> Outcome:
    """Return a smaller schedule with a violation of the same kind."""
    best = outcome
    while True:
        for smaller in _smaller(best.schedule):
            tried = run(smaller)
            if tried.kind == outcome.kind:
                best = tried
                break
        else:
            return best


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Return schedules with less in them, those with much less first."""
    faults = schedule.faults
    size = len(faults) // 2
    while size:
        for first in range(0, len(faults), size):
            yield replace(schedule, faults=faults[:first] + faults[first + size :])
        size //= 2
    named = {peer for fault in faults for peer in (fault.peer, fault.other)} | set(schedule.liars)
    for peers in range(max(3, 3 * schedule.lying + 1, max(named, default=0) + 1), schedule.peers):
        yield replace(schedule, peers=peers)
    for plainer in ({"drop": 0.0}, {"duplicate": 0.0}, {"skew": 0.0}, {"rounds": 1}):
        if getattr(schedule, next(iter(plainer))) not in plainer.values():
            yield replace(schedule, **plainer)


def options(schedule: Schedule) -> str:
    """Return the options of the command that replays a schedule, as far as it differs from its seed's."""
    original = draw(schedule.seed)
    words = [f"--replay {schedule.seed}"]
    if schedule.faults != original.faults:
        kept = [str(k) for k, fault in enumerate(original.faults) if fault in schedule.faults]
        words.append(f"--faults {','.join(kept) or 'none'}")
    for name in ("peers", "drop", "duplicate", "skew", "rounds"):
        if getattr(schedule, name) != getattr(original, name):
            words.append(f"--{name} {getattr(schedule, name)}")
    return " ".join(words)
