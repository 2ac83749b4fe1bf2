"""From settings to what all peers of a run agree on: how averages are computed, and the rules of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from securedfl.designs import Design
from securedfl.errors import PrivacyError, SecuredFLError
from securedfl.federation.budget.rules import affordable, weigh
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import SECURED, averaging_of, bringing, choose_design
from securedfl.federation.peers.config import FederationConfig
from securedfl.learning.training.common_optimizer import NO_OPTIMIZER, CommonOptimizer
from securedfl.network.core.state import Rules, State, voters
from securedfl.network.data.averages import Averages
from securedfl.network.data.driver import CHUNK, SLICED_CHUNK
from securedfl.network.data.routes import recoverable
from securedfl.parameters import Array, Schema
from securedfl.privacy.absence import Absence
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.protocol import Averaging, by_name
from securedfl.protocols.steps import PeerProtocol
from securedfl.weights import WEIGHT_NUMBERS


def make_averages(
    federation: FederationConfig,
    design: Design,
    schema: Schema,
    optimizer: CommonOptimizer = NO_OPTIMIZER,
    plan: Plan | None = None,
) -> Averages:
    """Return how averages are computed.

    Raises
    ------
    PrivacyError
        The protocol has no perfect masks, and exposure is not allowed.
    """
    config = federation.training
    row = by_name(config.protocol)
    if row.masks != "perfect" and not config.allow_exposure:
        raise PrivacyError(
            f"the protocol {row.name!r} has no perfect masks, so real peers do not use it; choose grouped, shares or "
            "resilient. The setting allow_exposure starts all the same."
        )
    bring = bringing(config, SECURED, design, schema.dtype, plan)

    def model(mean: Array, turn: int, before: Callable[[], Array | None]) -> Array:
        differences = config.differences and turn > 0
        # it is read from disk: only if it is needed
        held = before() if differences or optimizer.moments else None
        base = None if held is None or not differences else optimizer.model(held)
        return optimizer.step(held, bring(turn).model(mean, base))

    return Averages(
        protocol=_protocols(lambda turn: bring(turn).averaging),
        size=schema.size + (WEIGHT_NUMBERS if config.weighted else 0),
        dtype=schema.dtype,
        result_size=optimizer.size(schema.size),
        model=model,
        commit_step=row.commit_step,
        chunk=SLICED_CHUNK if row.sliced else CHUNK,
    )


def make_rules(federation: FederationConfig, design: Design, averages: Averages, plan: Plan | None = None) -> Rules:
    """Return the rules of the log; with a plan of differential privacy, nobody begins what its budget forbids."""
    config = federation.training
    row, n = averaging_of(config, SECURED, design).protocol, config.peers

    # asked again and again while an operator waits
    promises = lru_cache(maxsize=16)(lambda peers: _promises(federation, peers))

    def can_finish(state: State, lost: tuple[int, ...]) -> bool:
        turn = state.round if state.model.round >= 0 else 0
        places = frozenset(state.members.index(peer) for peer in lost)
        return recoverable(averages.protocol(len(state.members), turn), len(state.members), places)

    attendance = Attendance(federation.missing, min(federation.fewest, n))

    def pick(state: State, peers: tuple[int, ...]) -> tuple[int, ...]:
        members = attendance.pick(state, peers)
        return members if affordable(plan, state, members) else ()

    def allows(state: State, members: tuple[int, ...]) -> bool:
        return attendance.allows(state, members) and affordable(plan, state, members)

    return Rules(
        lying=federation.lying,
        can_lose=row.can_lose,
        least=attendance.least,
        window=federation.window,
        pick=pick,
        allows=allows,
        weigh=weigh,
        recoverable=can_finish,
        accepts=lambda roster: promises(len(roster)),
    )


@dataclass(frozen=True)
class Attendance:
    """Who may be the members of an attempt, by what the federation does when peers are ``missing``.

    ``least`` is the fewest members of an average.
    """

    missing: Absence
    least: int

    def pick(self, state: State, peers: tuple[int, ...]) -> tuple[int, ...]:
        """Return who of these peers takes part."""
        places, history = self._places(state)
        numbers = {place: number for number, place in places.items()}
        found = self.missing.pick([places[peer] for peer in peers], history, len(places))
        return tuple(sorted(numbers[place] for place in found))

    def allows(self, state: State, members: tuple[int, ...]) -> bool:
        """Say whether these may be the members."""
        places, history = self._places(state)
        return self.missing.allows([places[peer] for peer in members], history, len(places))

    def _places(self, state: State) -> tuple[dict[int, int], list[frozenset[int]]]:
        """Return the places of peers in the roster, and the members of what was opened in the window, by place.

        Blocks that too few are left of, because peers were removed, are dealt anew: what holds over rounds holds as
        long as the roster stays the same, and nobody else could end the waiting.
        """
        places = {peer.number: place for place, peer in enumerate(state.roster)}
        recent = [members for round, members in state.opened if round >= state.round - self.missing.window]
        history = [frozenset(places[peer] for peer in members if peer in places) for members in recent]
        most = len(self.missing.pick([places[peer] for peer in voters(state)], history, len(places)))
        enough = most >= self.least and 2 * most > len(places)
        return places, history if enough else []


def _promises(federation: FederationConfig, n: int) -> str:
    """Return why a roster of so many peers would promise less than the certificate, or an empty string."""
    config = federation.training
    if n == config.peers:
        return ""
    if config.privacy is not None and n > config.peers:
        return f"differential privacy was planned for {config.peers} peers; start another run for {n}"
    if not by_name(config.protocol).can_lose:
        return f"{config.protocol} needs exactly the {config.peers} peers that it began with; start another run"
    try:
        other = config.model_copy(update={"peers": n})
        pass_gate(other, choose_design(other), federation.missing)
    except SecuredFLError as error:
        return str(error)
    return ""


def _protocols(chosen: Callable[[int], Averaging]) -> Callable[[int, int], PeerProtocol]:
    """Return what gives the averaging of so many members in a round."""

    @lru_cache(maxsize=64)
    def averaging_for(members: int, turn: int) -> Averaging:
        return chosen(turn).among(members)

    def turn(members: int, round: int) -> int:
        # rounds that use the same partitions have the same protocol, so that its plan is made once; round 0 has its own
        first = averaging_for(members, 0)
        return round and (round - 1) % (first.rotation or first.design.gap) + 1

    return lambda members, round: averaging_for(members, turn(members, round))
