"""What a run has spent of its budget, from the attempts that were opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from securedfl.privacy.budget.plan import Plan, most_rounds

Opened = Mapping[int, Sequence[tuple[int, ...]]]
"""The members of the attempts of every round whose sums may have been seen, void rounds included."""


def spent(opened: Opened) -> dict[int, int]:
    """Return how many rounds were opened, by the number of members whose noise is in them.

    Round 0 averages first parameters, which do not depend on data. A second sum of the same updates over other members
    would leave the noise of those few alone in which the two differ, so the fewest count.
    """
    found = Counter(fewest(members) for round, members in opened.items() if round > 0 and members)
    return dict(found)


def fewest(members: Iterable[Sequence[int]]) -> int:
    """Return how many peers the smallest sum is over that sums over these members tell, whatever is subtracted."""
    sets = list({frozenset(each) for each in members})
    everybody = frozenset[int]().union(*sets)
    alike = Counter(tuple(peer in each for each in sets) for peer in everybody)
    return min(alike.values(), default=0)


def epsilon_by_round(plan: Plan, opened: Opened) -> dict[int, float]:
    """Return epsilon after each round that was opened."""
    rounds = sorted(round for round in opened if opened[round])
    if not plan.in_average:
        # a site goes on from steps that were never opened, so that all rounds count in which it may have trained
        return {round: plan.epsilon({plan.peers: round}) for round in rounds}
    counted, found = Counter[int](), dict[int, float]()
    for round in rounds:
        counted.update(spent({round: opened[round]}))
        found[round] = plan.epsilon(counted)
    return found


def at_the_end(plan: Plan, opened: Opened, rounds: int, peers: int) -> float:
    """Return epsilon after so many rounds, if all peers that there are now take part in those that are left.

    At most the budget.
    """
    done = max((round for round in opened if opened[round]), default=0)
    if plan.in_average:
        counted = Counter(spent(opened))
        counted[min(plan.peers, peers)] += max(0, rounds - done)
    else:
        counted = Counter({plan.peers: max(rounds, done)})
    found = plan.epsilon(+counted)
    return found if plan.limit is None else min(found, plan.limit)


def last_round(plan: Plan | None, rounds: int) -> int:
    """Return the last round of a simulated run, in which everybody takes part: the planned one, or an earlier one."""
    if plan is None or plan.limit is None:
        return rounds
    return min(rounds, most_rounds(plan, plan.limit))
