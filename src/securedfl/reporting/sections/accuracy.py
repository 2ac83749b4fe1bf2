"""How accurate methods are, on which test data, and how sure that is.

Peers may hold different labels, and a model that knows few of them does well on test data that has no others. So an
accuracy always says on which test data it was measured: one that all share, where there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.reader import MethodResult, Run
from securedfl.reporting.units import NONE, percent
from securedfl.sureness import Pair, compare, newcombe, wilson

FEW = 1000
"""Test samples below which a report says that they are few."""


@dataclass(frozen=True)
class Tested:
    """One kind of test data.

    Attributes
    ----------
    name, where, told
        The head of a column, where something was measured, and what it is in a sentence.
    samples
        How many there are; 0 if that is not known.
    """

    name: str
    where: str
    told: str
    samples: int


@dataclass(frozen=True)
class Best:
    """The best round of a method, by the view that is measured in every round."""

    accuracy: float
    round: int
    view: Tested


def views(run: Run) -> list[Tested]:
    """Return the kinds of test data on which some method was measured, the most telling one first."""
    found = [_common(run), _all(run), _own(run)]
    kept = [view for view in found if any(math.isfinite(reached(run, m, view)) for m in run.methods)]
    together, own = (next((view for view in kept if view.name == name), None) for name in ("All", "Own"))
    # where every method has one model for all peers, the two are the same
    if together and own and all(_one_model(run, m) for m in run.methods):
        kept.remove(own)
    return kept


def reached(run: Run, method: MethodResult, view: Tested) -> float:
    """Return the accuracy of a method after its last round; not a number if it was not measured."""
    if not method.rounds:
        return math.nan
    last = method.rounds[-1]
    if view.name == "All" and last.all_accuracy:
        return sum(last.all_accuracy) / len(last.all_accuracy)
    if view.name == "Own":
        return method.final_accuracy
    if view.name == "All":
        return method.final_accuracy if _one_model(run, method) and not run.site else math.nan
    return _measured(run, method, last, view)


def best(run: Run, method: MethodResult, view: Tested) -> Best | None:
    """Return the best round, in the given view if that is measured in every round, else on the peers' own test data."""
    for each in (view, _own(run)):
        found = [(_measured(run, method, row, each), -row.round) for row in method.rounds]
        if finite := [pair for pair in found if math.isfinite(pair[0])]:
            accuracy, earliest = max(finite)
            return Best(accuracy, -earliest, each)
    return None


def _measured(run: Run, method: MethodResult, row: Row, view: Tested) -> float:
    """Return what a row says in a view."""
    if view.name == "Common":
        return math.nan if row.common_accuracy is None else row.common_accuracy
    if view.name == "All" and (run.site or not _one_model(run, method)):
        return math.nan
    return row.accuracy


def difference(run: Run, first: MethodResult, second: MethodResult, view: Tested) -> tuple[float, float] | None:
    """Return the 95 % interval of how much more accurate a method is than another; None if samples were not counted.

    Where it was kept which predictions were right they are compared in pairs, else by the two shares alone.
    """
    one, other = (run.correct.get(method.name) for method in (first, second))
    # what is kept is of each peer's own test data, which is that of all if all peers hold the same model
    same = view.name == "All" and _one_model(run, first) and _one_model(run, second)
    if same and one and other and np.array_equal(one.tested.samples, other.tested.samples):
        found = compare([Pair.of(one.right, other.right, one.tested.users, one.tested.samples)])
        return found.low / 100, found.high / 100
    return newcombe(reached(run, first, view), reached(run, second, view), view.samples) if view.samples else None


def interval(share: float, view: Tested) -> str:
    """Return the interval in words, "96.9 to 99.9"; empty where samples were not counted."""
    if not view.samples or not math.isfinite(share):
        return ""
    low, high = wilson(share, view.samples)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def with_interval(share: float, view: Tested) -> str:
    """Return an accuracy and its interval."""
    between = interval(share, view)
    return percent(share) + (f" ({between})" if between else "") if math.isfinite(share) else NONE


def explained(shown: list[Tested]) -> str:
    """Say in one sentence what the views are, and why there are several."""
    if len(shown) == 1:
        return f"Measured {shown[0].where}."
    told = "; ".join(f"{view.name} is {view.told}" for view in shown)
    return f"{told}." if told else ""


def sureness(shown: list[Tested]) -> str:
    """Say what the intervals are, and that there are few samples where there are."""
    counted = [view for view in shown if view.samples]
    if not counted:
        return ""
    told = "In brackets: 95 % intervals (Wilson), for the choice of test samples only, not of seeds."
    if counted[0].samples < FEW:
        low, high = wilson(0.95, counted[0].samples)
        told += (
            f" {counted[0].samples:,} test samples are few: near 95 %, an accuracy of theirs is known to within about "
            f"{50 * (high - low):.1f} percentage points."
        )
    return told


def _one_model(run: Run, method: MethodResult) -> bool:
    """Tell whether all peers hold the same model after an average."""
    return method.name != "local" and not run.settings.get("local")


def _common(run: Run) -> Tested:
    counted = 0 if run.data is None else run.data.common or 0
    return Tested("Common", "on the common test set", "on test data that no peer holds", counted)


def _all(run: Run) -> Tested:
    told = "each peer's model on the test data of all peers together, which is what counts if it meets data of others"
    last = [m.rounds[-1] for m in run.methods if m.rounds]
    there = max((len(row.peer_accuracy) for row in last), default=0)
    whose = "all peers" if there in (0, run.peers) else f"the {there} peers that were there"
    return Tested("All", f"on the test data of {whose}", told, run.samples.test)


def _own(run: Run) -> Tested:
    if run.site:
        return Tested("Own", f"on {run.site}'s own test data", f"on the test data of {run.site} only", run.samples.test)
    told = "each peer's model on its own test data, where a model that knows few labels can do well if others are rare"
    return Tested("Own", "on the peers' own test data", told, run.samples.test)
