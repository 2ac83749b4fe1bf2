"""The question that users ask: what any coalition of so many peers can learn."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

from securedfl.designs import Design
from securedfl.errors import ConfigError, whole_number
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import Certificate
from securedfl.protocols.protocol import Protocol, averaging, by_name


def certify(
    peers: int | None = None,
    *,
    protocol: str | Protocol = "grouped",
    design: Design | None = None,
    group_size: int | Literal["auto"] = "auto",
    collusion: int = 1,
    rounds: int = 1,
    seed: int = 0,
    **options: Any,
) -> Certificate:
    """Tell exactly what any coalition of peers can learn about the others, by running the protocol on symbols.

    Parameters
    ----------
    peers
        How many; may be left away if a design is given.
    protocol, **options
        As for `average`.
    design, group_size, seed
        Who meets whom, as for `average`.
    collusion
        Members of a coalition.
    rounds
        Of federated learning; partitions rotate.

    Returns
    -------
    Certificate
        The answer; its ``sentence`` is for people.

    Raises
    ------
    ConfigError, DesignError
        Unknown or impossible options.
    PrivacyError
        A protocol that is not linear, so that it cannot be audited.

    Examples
    --------
    >>> import securedfl
    >>> securedfl.certify(9).verdict
    'only the total'
    >>> securedfl.certify(9, protocol="classic").exposed
    (1, 2, 3, 4, 5, 6, 7, 8)
    """
    if peers is None and design is None:
        raise ConfigError("say how many peers there are, or give a design")
    if isinstance(peers, Integral):
        # numpy's too
        peers = int(peers)
    collusion, rounds = whole_number(collusion, "collusion", least=0), whole_number(rounds, "number of rounds", least=1)
    row = by_name(protocol)
    row.check_names(options, certify.__kwdefaults__ or ())
    chosen = averaging(
        row,
        getattr(design, "n", 0) if peers is None else peers,
        design=design,
        group_size=group_size,
        collusion=None if options.get("strength") is not None else collusion,
        seed=seed,
        options=options,
    )
    return Audit(chosen).certificate(collusion=collusion, rounds=rounds)
