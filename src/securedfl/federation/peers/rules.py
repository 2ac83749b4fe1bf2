"""From settings to the rules of a session: protocol, design, certificate, retries."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import combinations
from math import comb
from typing import Any

from securedfl.designs import Design, best_design
from securedfl.errors import PrivacyError
from securedfl.federation.certify import certify
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import OPTIONS, choose_design
from securedfl.federation.peers.config import FederationConfig
from securedfl.network.core.rules import Rules
from securedfl.network.driver import CHUNK, SLICED_CHUNK
from securedfl.network.routes import PeerProtocol
from securedfl.parameters import Schema
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.privacy.scenario import scenario
from securedfl.protocols import by_name
from securedfl.protocols.shares.holding import SHARING_STEPS, holding
from securedfl.protocols.shares.resilient import LEAST_PEERS

COMMIT_STEP = {"shares": 1, "resilient": SHARING_STEPS}
"""The first step in which sums leave; of protocols that are not named here, that is the first of all."""

CAN_LOSE = frozenset(COMMIT_STEP)
"""Protocols that can average over fewer peers without a certificate of its own for every subset of them."""

MOST_COALITIONS = 500
"""How many coalitions are tried before a retry; the peers are waiting meanwhile."""


def federation_design(config: TrainConfig) -> Design:
    """Return the design of all peers: a pure function of the settings, so that all of them find the same."""
    return choose_design(config)


def protocol_options(config: TrainConfig) -> dict[str, Any]:
    """Return the protocol's options."""
    if config.protocol in OPTIONS:
        return OPTIONS[config.protocol](config)
    return {"collusion": config.collusion} if config.protocol in CAN_LOSE else {}


def make_rules(federation: FederationConfig, design: Design, schema: Schema) -> Rules:
    """Return the rules that all peers follow, after the certificate has been checked.

    Raises
    ------
    PrivacyError
        The settings do not withstand the colluders, and exposure is not allowed.
    """
    config = federation.training
    by_name(config.protocol)
    can_lose = config.protocol in CAN_LOSE
    n = config.peers
    least = federation.min_peers or (max(LEAST_PEERS, n // 2 + 1) if can_lose else n)
    return Rules(
        protocol=_protocols(config, design),
        size=schema.size + config.weighted,
        dtype=schema.dtype,
        commit_step=COMMIT_STEP.get(config.protocol, 0),
        can_lose=can_lose,
        stand_ins=config.protocol == "resilient",
        least=min(least, n),
        retries=federation.retries,
        chunk=SLICED_CHUNK if can_lose else CHUNK,
        deadlines=federation.deadlines.deadlines(),
        may_retry=partial(_may_retry, config, design),
    )


def certificate_of(config: TrainConfig, design: Design) -> dict[str, Any]:
    """Return the certificate of a federation, or raise `PrivacyError` if it promises too little."""
    return certify(config, design)


def _protocols(config: TrainConfig, design: Design) -> Callable[[int, int], PeerProtocol]:
    options = protocol_options(config)
    # real peers agree by consensus about who takes part, so they run `resilient` without its own agreement
    generator = holding if config.protocol == "resilient" else by_name(config.protocol)

    @lru_cache(maxsize=8)
    def design_for(members: int) -> Design:
        if members == design.n:
            return design
        # fewer peers meet in a design of their own, which must withstand as many colluders
        return best_design(members, collusion=config.collusion, seed=config.seed)

    @lru_cache(maxsize=64)
    def protocol_for(members: int, turn: int) -> PeerProtocol:
        return partial(generator, design=design_for(members), round=turn, **options)

    # rounds that use the same partitions have the same protocol, so that its plan is made once
    return lambda members, round: protocol_for(members, round % design_for(members).gap)


def _may_retry(config: TrainConfig, design: Design, round: int, tries: int) -> str:
    """Return why parameters must not be averaged once more after so many abandoned attempts.

    Masks of shares are perfect: the same total again says nothing new. Bounded masks add up, so the ledger decides.
    """
    if config.protocol in ("shares", "resilient", "plain") or config.allow_exposure:
        return ""
    if not config.collusion:
        return ""
    case = scenario(config.protocol, design, protocol_options(config))
    ledger = Ledger(case).add(*[Attempt(round=round)] * (tries + 1))
    size = min(config.collusion, design.n - 1)
    if comb(design.n, size) > MOST_COALITIONS:
        return f"there are too many coalitions of {size} to tell what another attempt would give away"
    try:
        exposed = any(ledger.exposed(coalition) for coalition in combinations(range(design.n), size))
    except PrivacyError as error:
        return str(error)
    if exposed:
        who = "single peers" if size == 1 else f"{size} colluding peers"
        return f"another attempt with the same parameters would let {who} compute those of others"
    return ""
