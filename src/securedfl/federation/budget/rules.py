"""The budget of real peers: a rule of the log, so that all of them stop alike, and nobody votes to overspend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from securedfl.federation.budget.account import spent
from securedfl.network.core.state import State
from securedfl.network.data.averages import RunEndedError
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.budget.words import pair


class BudgetSpentError(RunEndedError):
    """The next round would exceed the budget of differential privacy, even if everybody took part."""


def weigh(round: int, members: Sequence[tuple[int, ...]]) -> int:
    """Return what the log's state keeps of an old round: how many members' noise is in what it tells."""
    return next(iter(spent({round: members})), 0)


def _spent_in(state: State, *members: tuple[int, ...]) -> Counter[int]:
    """Return what the log says was spent, and would be if these averaged the next round too."""
    opened: dict[int, list[tuple[int, ...]]] = {}
    for round, seen in (*state.opened, *((state.round, each) for each in members)):
        opened.setdefault(round, []).append(seen)
    return Counter(spent(opened)) + Counter(dict(state.weights))


def affordable(plan: Plan | None, state: State, members: Iterable[int]) -> bool:
    """Tell whether the budget allows these members to average the next round; a function of the log alone."""
    if plan is None or plan.limit is None or state.model.round < 0:
        # as long as there is no model, what is averaged does not depend on data
        return True
    if not plan.in_average:
        return plan.fits({plan.peers: state.round})
    return plan.fits(_spent_in(state, tuple(members)))


def check_budget(plan: Plan | None, state: State) -> None:
    """Raise `BudgetSpentError` if no next round is within the budget, whoever takes part; the same on all peers."""
    everybody = tuple(peer.number for peer in state.roster)
    if plan is None or state.bound or state.phase != "idle" or affordable(plan, state, everybody):
        return
    now = plan.epsilon(_spent_in(state) if plan.in_average else {plan.peers: state.round - 1})
    raise BudgetSpentError(
        f"the budget of differential privacy is spent after round {state.round - 1}: {pair(now, plan.delta)} of "
        f"epsilon {plan.limit:g}, and a round of {len(everybody)} peers would be too much; all peers stop here"
    )
