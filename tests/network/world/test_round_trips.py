"""Round trips of an average, in virtual time: every message takes half of one, and nothing else takes any."""

from __future__ import annotations

import pytest

from securedfl.network.core import events as ev
from tests.network.world.schedule import Schedule
from tests.network.world.world import World

TRIP = 0.02


class Even(World):
    """A world in which all messages take the same time; it notes when updates were ready and results applied."""

    def __init__(self, schedule):
        super().__init__(schedule)
        self.ready, self.applied = {}, {}
        applies = self.checks.applies

        def noted(site, round, *rest):
            self.applied[round] = self.now
            applies(site, round, *rest)

        self.checks.applies = noted
        for site in self.sites:
            site.happen = self.noting(site.happen)

    def noting(self, happen):
        def noted(event):
            if isinstance(event, ev.Update):
                self.ready[event.round] = self.now
            happen(event)

        return noted

    def delay(self):
        return TRIP / 2


@pytest.mark.parametrize(("protocol", "most"), [("shares", 5.5), ("resilient", 6.0), ("grouped", 4.0)])
@pytest.mark.parametrize("peers", [3, 9])
def test_an_average_takes_few_round_trips(protocol, most, peers):
    """From the moment when the last update is ready to the moment when the last peer applies the result."""
    world = Even(Schedule(seed=3, peers=peers, protocol=protocol, rounds=6))
    world.run()
    trips = [(world.applied[round] - world.ready[round]) / TRIP for round in world.applied]
    assert len(trips) >= 6
    assert max(trips) <= most + 1e-6
