"""The list of protocols: everything that anybody may ask about one.

Drivers, audit, gate, federation, command line and report read these rows and know no protocol by name. Whoever adds a
protocol writes one file and one row, or passes a `Protocol` of its own where a name is expected, or announces one as
an entry point of the group ``securedfl.protocols``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, signature
from itertools import chain
from typing import Any, Literal

from securedfl.designs.best import GroupSize, Make, best_design, nearest
from securedfl.designs.coalition_search import Labels
from securedfl.designs.design import Design
from securedfl.designs.known import best
from securedfl.errors import ConfigError, DesignError, unknown
from securedfl.plugins import find
from securedfl.protocols import admm
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint, Symbols, codec_of
from securedfl.protocols.grouped import grouped
from securedfl.protocols.grouped import settle as settle_grouped
from securedfl.protocols.plain import plain
from securedfl.protocols.shares import shares as sharing
from securedfl.protocols.shares.resilient import resilient
from securedfl.protocols.shares.shares import DEFAULT_COLLUSION
from securedfl.protocols.steps import Array, Draw, Options, Settled, Steps

Masks = Literal["perfect", "bounded", "none"]
"""``perfect``: uniform over the ring, so that a message says nothing; ``bounded``: of bounded width, so that a message
narrows a value down to an interval; ``none``: parameters travel as they are."""

Arithmetic = Literal["reals", "ring", "field"]
"""In which a protocol calculates: with floats, modulo 2^b, or modulo a prime of `securedfl.protocols.field`."""

PLUGINS = "securedfl.protocols"
"""The group of entry points that announces further protocols."""

LEAST_PEERS = 3
"""A total over two peers gives each the other's parameters."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One averaging protocol.

    Parameters
    ----------
    name, label
        What settings and tables call it.
    generator
        What a peer does: ``generator(me, w, design, *, round, draw, **options)`` (`securedfl.protocols.steps`).
    passes_on
        Functions to which it passes further options, that are named only there.
    masks
        Of what kind they are.
    arithmetic
        In which it calculates, so that the audit does so too; perfect masks need a ring or a field.
    in_groups
        Whether peers meet in the groups of a design. If not, everybody meets everybody.
    partitions
        How many partitions of the design an average uses, by which the design is chosen; None if its strength says.
    commit_step
        The first step in which sums leave, if the protocol is in two parts, so that it can go on without peers that
        were lost before; 0 if sums leave at once, so that all peers are needed.
    sliced
        Whether slices of the parameters are treated differently.
    adds_codes
        Whether the average is what the sum of the members' codes stands for, bit for bit, so that a simulation of very
        many may add them up and run the messages in some rounds only.
    symbolic
        Options with which the generator runs on symbols instead of numbers.
    settle
        What follows from the options on a design; options that make no average are a `ConfigError`.

    Examples
    --------
    >>> from securedfl.protocols import Protocol
    >>> def in_the_clear(me, w, design, *, round, draw):
    ...     received = yield {peer: w for peer in range(design.n) if peer != me}
    ...     return sum(received.values(), w) / design.n
    >>> import numpy as np, securedfl
    >>> mine = Protocol(name="mine", generator=in_the_clear, masks="none", in_groups=False)
    >>> securedfl.average([np.ones(2), np.zeros(2)], protocol=mine).tolist()
    [0.5, 0.5]
    """

    name: str
    generator: Callable[..., Steps] = field(compare=False)
    passes_on: tuple[Callable[..., Any], ...] = field(default=(), compare=False)
    label: str = ""
    masks: Masks = "bounded"
    arithmetic: Arithmetic = "reals"
    in_groups: bool = True
    partitions: int | None = None
    commit_step: int = 0
    sliced: bool = False
    adds_codes: bool = False
    symbolic: Options = field(default_factory=dict, compare=False)
    settle: Callable[[Design, Options], Settled] = field(
        default=lambda _design, options: Settled(options=options), compare=False
    )

    def __post_init__(self) -> None:
        if self.masks == "perfect" and self.arithmetic == "reals":
            raise ConfigError(
                f"the protocol {self.name!r} says that its masks are perfect, which they cannot be over the real "
                'numbers; set arithmetic to "ring" or "field"'
            )

    @property
    def can_lose(self) -> bool:
        """Whether an average goes on without peers that are lost before anything is added up."""
        return self.commit_step > 0

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The names of its options."""
        fixed = ("me", "w", "design", "round", "draw")
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        every = chain(*(signature(function).parameters.values() for function in (self.generator, *self.passes_on)))
        return tuple(one.name for one in every if one.kind in named and one.name not in fixed)

    def check_names(self, options: Iterable[str], also: Iterable[str] = ()) -> None:
        """Raise `ConfigError` for an option that it does not have; ``also`` are names that may have been meant."""
        for name in options:
            if name not in self.options:
                raise unknown(f"option of the protocol {self.name!r}:", name, self.options, also)

    def on(self, design: Design, *, seed: int = 0, **options: Any) -> Averaging:
        """Return the protocol on a design with its options; an unknown option is an error that names the nearest."""
        self.check_names(options)
        made = Averaging(self, design if self.in_groups else Design.everyone(design.n), options, seed=seed)
        # options that make no average are an error here, before any work is lost
        _ = made.settled
        return made


@dataclass(frozen=True, eq=False)
class Averaging:
    """A protocol on a design with its options: what drivers run and audits examine.

    Attributes
    ----------
    protocol, design, given
        What was put together.
    seed
        Of the designs for fewer members.
    round
        Of federated learning; each round goes on with the partitions after those of the round before.
    """

    protocol: Protocol
    design: Design
    given: Options = field(default_factory=dict)
    seed: int = 0
    round: int = 0

    def __call__(self, me: int, w: Array, *, draw: Draw) -> Steps:
        """Return the running protocol of one peer."""
        return self.protocol.generator(me, w, self.design, round=self.round, draw=draw, **self.options)

    @property
    def n(self) -> int:
        """The number of peers."""
        return self.design.n

    @cached_property
    def settled(self) -> Settled:
        """What follows from the options."""
        return self.protocol.settle(self.design, self.given)

    @property
    def options(self) -> Options:
        """The options, checked and completed."""
        return self.settled.options

    @property
    def codec(self) -> FixedPoint | None:
        """How values become elements of its ring or field; None for floats, and for a codec of the caller's own."""
        if self.protocol.arithmetic == "reals" or self.options.get("codec") is not None:
            return None
        kind = FieldPoint if self.protocol.arithmetic == "field" else FixedPoint
        return kind(bits=self.options.get("bits"), range=self.options.get("range"))

    @property
    def adds_codes(self) -> bool:
        """Whether the sum of the members' codes gives the same bits as the messages."""
        return self.protocol.adds_codes and self.codec is not None

    @property
    def rotation(self) -> int | None:
        """After how many rounds the same partitions come again; None if that is not known."""
        used = self.settled.partitions
        return None if used is None else self.design.rotation(used)

    def used(self, round: int) -> Labels:
        """Return the groups of the partitions in use in a round; none if that is not known."""
        return self.design.used(round, self.settled.partitions or 0)

    def at(self, round: int) -> Averaging:
        """Return the same for another round."""
        return self if round == self.round else replace(self, round=round)

    def among(self, members: int) -> Averaging:
        """Return the same for fewer members, in a design of their own that withstands as many colluders."""
        if members == self.n:
            return self
        if not self.protocol.can_lose:
            raise DesignError(f"{self.protocol.name} needs all {self.n} peers, but {members} take part")
        given = dict(self.given)
        strength = given.pop("strength", None)
        given["collusion"] = given.get("collusion") or (1 if strength is None else strength - 1)
        return replace(self, given=given, design=best_design(members, collusion=given["collusion"], seed=self.seed))


GROUPED = Protocol(
    name="grouped",
    label="SecureD-FL",
    generator=grouped,
    passes_on=(codec_of,),
    masks="perfect",
    arithmetic="field",
    partitions=2,
    adds_codes=True,
    symbolic={"codec": Symbols(), "bits": None, "range": None},
    settle=settle_grouped,
)
PAPER = Protocol(
    name="paper",
    label="SecureD-FL (paper)",
    generator=admm.paper,
    partitions=2,
    symbolic={"finish": "literal"},
    settle=admm.settle,
)
CLASSIC = replace(PAPER, name="classic", label="Classic ADMM", in_groups=False)
PLAIN = Protocol(
    name="plain",
    label="FedAvg",
    generator=plain,
    masks="none",
    in_groups=False,
    settle=lambda _design, options: Settled(options=options, partitions=0),
)
SHARES = Protocol(
    name="shares",
    label="SecureD-FL shares",
    generator=sharing.shares,
    passes_on=(sharing.begin, codec_of),
    masks="perfect",
    arithmetic="ring",
    commit_step=1,
    sliced=True,
    adds_codes=True,
    symbolic={"codec": Symbols(), "bits": None, "range": None},
    settle=sharing.settle,
)
RESILIENT = replace(
    SHARES,
    name="resilient",
    label="SecureD-FL resilient shares",
    generator=resilient,
    commit_step=2,
)

BUILT_IN = {row.name: row for row in (CLASSIC, GROUPED, PAPER, PLAIN, RESILIENT, SHARES)}
"""The protocols of this package by name."""


def by_name(protocol: str | Protocol) -> Protocol:
    """Return the protocol of that name, or the one given; an unknown name is an error that names the nearest."""
    return protocol if isinstance(protocol, Protocol) else find(PLUGINS, BUILT_IN, protocol, Protocol, "protocol")


def design_for(
    rows: Iterable[Protocol],
    peers: int,
    *,
    collusion: int = DEFAULT_COLLUSION,
    group_size: GroupSize = "auto",
    seed: int = 0,
    make: Make = best,
) -> Design:
    """Return the design that protocols meet in: what withstands the colluders, or comes nearest.

    ``make`` builds a design for peers, group size and seed. Where nobody meets in groups, everybody meets everybody.
    """
    in_groups = [row for row in rows if row.in_groups]
    if not in_groups:
        return Design.everyone(peers)
    fixed = [row.partitions for row in in_groups if row.partitions is not None]
    return nearest(
        peers,
        collusion=collusion,
        group_size=group_size,
        seed=seed,
        make=make,
        partitions=min(fixed, default=None),
    ).design


def averaging(
    protocol: str | Protocol,
    peers: int,
    *,
    design: Design | None = None,
    group_size: GroupSize = "auto",
    collusion: int | None = None,
    seed: int = 0,
    options: Options,
) -> Averaging:
    """Put together what the simulated average, the certificate and real peers run.

    Parameters
    ----------
    protocol, peers
        What, and among how many.
    design, group_size, seed
        Who meets whom; by default the best known design that withstands the colluders.
    collusion
        How many peers may pool what they received; a protocol that has a strength takes what that needs. One by
        default.
    options
        Of the protocol.
    """
    row, given = by_name(protocol), dict(options)
    colluders = DEFAULT_COLLUSION if collusion is None else collusion
    if "collusion" in row.options and (collusion is not None or given.get("strength") is None):
        given["collusion"] = colluders
    if design is None:
        design = (
            best_design(peers, collusion=colluders, group_size=group_size, seed=seed)
            if "collusion" in given
            else design_for([row], peers, collusion=colluders, group_size=group_size, seed=seed)
        )
    elif not isinstance(design, Design):
        raise ConfigError(f"design must be a Design, not {design!r:.80}; Design.load reads one from a file")
    elif design.n != peers:
        raise DesignError(f"the design is for {design.n} peers, but {peers} take part")
    else:
        design.verify()
    return row.on(design, seed=seed, **given)
