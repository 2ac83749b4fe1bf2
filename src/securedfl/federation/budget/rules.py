"""The budget of real peers: a rule of the log, so that all of them stop alike, and nobody votes to overspend."""

from __future__ import annotations

from collections.abc import Iterable

from securedfl.federation.budget.account import spent
from securedfl.network.core.state import State
from securedfl.network.data.averages import RunEndedError
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.budget.words import pair

FOREVER = 2**40
"""Rounds for which the log's state keeps whose sums may have been seen: all of them count."""


class BudgetSpentError(RunEndedError):
    """The next round would exceed the budget of differential privacy, even if everybody took part."""


def opened_in(state: State) -> dict[int, list[tuple[int, ...]]]:
    """Return the members of all attempts whose sums may have been seen, by round."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for round, members in state.opened:
        found.setdefault(round, []).append(members)
    return found


def affordable(plan: Plan | None, state: State, members: Iterable[int]) -> bool:
    """Tell whether the budget allows these members to average the next round; a function of the log alone."""
    if plan is None or plan.limit is None or state.model.round < 0:
        # as long as there is no model, what is averaged does not depend on data
        return True
    if not plan.in_average:
        return plan.fits({plan.peers: state.round})
    opened = opened_in(state)
    opened.setdefault(state.round, []).append(tuple(members))
    return plan.fits(spent(opened))


def check_budget(plan: Plan | None, state: State) -> None:
    """Raise `BudgetSpentError` if no next round is within the budget, whoever takes part; the same on all peers."""
    everybody = tuple(peer.number for peer in state.roster)
    if plan is None or state.bound or state.phase != "idle" or affordable(plan, state, everybody):
        return
    now = plan.epsilon(spent(opened_in(state)) if plan.in_average else {plan.peers: state.round - 1})
    raise BudgetSpentError(
        f"the budget of differential privacy is spent after round {state.round - 1}: {pair(now, plan.delta)} of "
        f"epsilon {plan.limit:g}; all peers stop here"
    )
