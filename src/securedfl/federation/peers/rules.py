"""From settings to the rules of a session: protocol, design, certificate, retries."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import combinations
from math import comb

from securedfl.designs import Design
from securedfl.errors import PrivacyError
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averaging, bringing
from securedfl.federation.peers.config import FederationConfig
from securedfl.network.core.rules import Rules
from securedfl.network.driver import CHUNK, SLICED_CHUNK
from securedfl.parameters import WEIGHT_NUMBERS, Array, Schema
from securedfl.privacy.audit import Audit
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.protocols.protocol import LEAST_PEERS, Averaging
from securedfl.protocols.steps import PeerProtocol

METHOD = "secured"
"""What real peers do."""

MOST_COALITIONS = 500
"""How many coalitions are tried before a retry; the peers are waiting meanwhile."""


def make_rules(federation: FederationConfig, design: Design, schema: Schema) -> Rules:
    """Return the rules that all peers follow, after the certificate has been checked.

    Raises
    ------
    PrivacyError
        The settings do not withstand the colluders, and exposure is not allowed.
    """
    config = federation.training
    chosen = averaging(config, METHOD, design)
    assert chosen is not None  # noqa: S101 - the method of real peers communicates
    row, n = chosen.protocol, config.peers
    least = federation.min_peers or (max(LEAST_PEERS, n // 2 + 1) if row.can_lose else n)
    if row.masks != "perfect" and not config.allow_exposure:
        raise PrivacyError(
            f"the protocol {row.name!r} has no perfect masks, so real peers do not use it; choose grouped, shares or "
            "resilient. The setting allow_exposure starts all the same."
        )
    bring = bringing(config, METHOD, design, schema.dtype)

    def model(mean: Array, round: int, before: Array | None) -> Array:
        return bring(round).model(mean, before if config.differences and round else None)

    return Rules(
        protocol=_protocols(lambda round: bring(round).averaging),
        size=schema.size + (WEIGHT_NUMBERS if config.weighted else 0),
        dtype=schema.dtype,
        result_size=schema.size,
        model=model,
        commit_step=row.commit_step,
        can_lose=row.can_lose,
        least=min(least, n),
        retries=federation.retries,
        chunk=SLICED_CHUNK if row.sliced else CHUNK,
        deadlines=federation.deadlines.deadlines(),
        may_retry=partial(_may_retry, config, chosen),
        window=federation.window,
        pick=lambda ready, history: tuple(sorted(federation.missing.pick(ready, history, n))),
        allows=lambda members, history: federation.missing.allows(members, history, n),
    )


def _protocols(chosen: Callable[[int], Averaging]) -> Callable[[int, int], PeerProtocol]:
    """Return what gives the averaging of so many members in a round."""

    @lru_cache(maxsize=64)
    def averaging_for(members: int, turn: int) -> Averaging:
        return chosen(turn).among(members)

    def turn(members: int, round: int) -> int:
        # rounds that use the same partitions have the same protocol, so that its plan is made once; round 0 has its own
        gap = averaging_for(members, 0).design.gap
        return round and (round - 1) % gap + 1

    return lambda members, round: averaging_for(members, turn(members, round))


def _may_retry(config: TrainConfig, chosen: Averaging, round: int, tries: int) -> str:
    """Return why parameters must not be averaged once more after so many abandoned attempts.

    Behind perfect masks the same total again says nothing new. Bounded masks add up, so the ledger decides.
    """
    if chosen.protocol.masks != "bounded" or config.allow_exposure or not config.collusion:
        return ""
    ledger = Ledger(Audit(chosen)).add(*[Attempt(round=round)] * (tries + 1))
    n, size = chosen.n, min(config.collusion, chosen.n - 1)
    if comb(n, size) > MOST_COALITIONS:
        return f"there are too many coalitions of {size} to tell what another attempt would give away"
    try:
        exposed = any(ledger.exposed(coalition) for coalition in combinations(range(n), size))
    except PrivacyError as error:
        return str(error)
    if exposed:
        who = "single peers" if size == 1 else f"{size} colluding peers"
        return f"another attempt with the same parameters would let {who} compute those of others"
    return ""
