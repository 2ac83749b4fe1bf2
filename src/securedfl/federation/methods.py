"""The methods that are compared, and how each one averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from securedfl.designs import Design, best, randomized
from securedfl.designs.best import Make
from securedfl.errors import ConfigError, DesignError, unknown
from securedfl.federation.bringing import Bringing
from securedfl.federation.config import TrainConfig
from securedfl.federation.settings import RhoSchedule
from securedfl.learning.seeds import stream
from securedfl.privacy.absence import Drawn
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.admm import AUTHORS
from securedfl.protocols.protocol import (
    BUILT_IN,
    GROUPED,
    LEAST_PEERS,
    PAPER,
    PLAIN,
    SHARES,
    Averaging,
    Protocol,
    by_name,
    design_for,
)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the comparison.

    Attributes
    ----------
    label
        As tables and figures call it.
    protocol
        Gives the averaging protocol, or its name, for a configuration; None trains without communication.
    adapt
        Gives the settings that this method averages with.
    baseline
        Whether it promises no privacy, or needs none, and is there for comparison.
    as_published
        Whether it repeats the paper, whatever that tells: its certificate says so, and a simulation runs all the same.
    """

    label: str
    protocol: Callable[[TrainConfig], str | Protocol] | None
    adapt: Callable[[TrainConfig], TrainConfig] = lambda config: config
    baseline: bool = False
    as_published: bool = False


def _as_published(config: TrainConfig) -> TrainConfig:
    """Average as the authors did: the last z, with their schedule of rho for this number of iterations."""
    if config.iterations not in AUTHORS:
        raise ConfigError(
            f"the method 'paper' averages with 1 to {max(AUTHORS)} iterations, as the authors did, "
            f"not {config.iterations}"
        )
    rho = AUTHORS[config.iterations]
    return config.model_copy(
        update={
            "finish": "literal",
            "rho": RhoSchedule(start=rho.start, decay=rho.decay, period=rho.period),
        }
    )


SECURED = "secured"
"""The method whose protocol is a setting; that of real peers."""

METHODS: dict[str, Method] = {
    "local": Method(label="Local-Only", protocol=None, baseline=True),
    "fedavg": Method(label=PLAIN.label, protocol=lambda _config: PLAIN, baseline=True),
    "paper": Method(label=PAPER.label, protocol=lambda _config: PAPER, adapt=_as_published, as_published=True),
    SECURED: Method(label=GROUPED.label, protocol=lambda config: config.protocol),
    "shares": Method(label=SHARES.label, protocol=lambda _config: SHARES),
}
"""All methods by name; add an entry to add a method."""


LONGEST_LABEL = 40


def method(name: str) -> Method:
    """Return the method of that name; an unknown one is an error that names the nearest."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def main_method(names: Sequence[str]) -> str:
    """Return the method that a run is about: the first that is neither baseline nor the paper's, else the last."""
    own = [name for name in names if name not in METHODS or not METHODS[name].baseline]
    new = [name for name in own if name not in METHODS or not METHODS[name].as_published]
    return (new or own or names[-1:])[0]


def protocol_of(config: TrainConfig, name: str) -> Protocol | None:
    """Return the protocol that a method averages with; None if it does not communicate."""
    chosen = method(name).protocol
    return None if chosen is None else by_name(chosen(config))


def _rows(config: TrainConfig) -> list[Protocol]:
    """Return the protocols of the methods that communicate."""
    return [row for name in config.methods if (row := protocol_of(config, name)) is not None]


def _judged(config: TrainConfig) -> list[Protocol]:
    """Return the protocols by which the design is chosen: what repeats the paper takes what suits the others."""
    own = [row for name in private(config) if not method(name).as_published and (row := protocol_of(config, name))]
    return own if any(row.in_groups for row in own) else _rows(config)


MOST_MEMBERS = 2000
"""Of a simulated average that is private: its messages grow with the square of the members."""


def check_settings(config: TrainConfig) -> None:
    """Refuse settings of protocols that no method of the run takes: they would do nothing, and say nothing.

    So many members that their messages cannot be passed are refused, too.
    """
    rows = _rows(config)
    # collusion chooses the design, whether a protocol has such an option or not
    left = {option for row in BUILT_IN.values() for option in row.options} - {"collusion"}
    left -= {option for row in rows for option in row.options}
    for key in TrainConfig.model_fields:
        if key in left and getattr(config, key) != TrainConfig.model_fields[key].default:
            names = ", ".join(dict.fromkeys(row.name for row in rows)) or "none"
            raise ConfigError(f"{key} is set, but no protocol of this run takes it ({names}); leave it away")
    if config.members > MOST_MEMBERS and any(row.in_groups for row in rows):
        raise ConfigError(
            f"{config.members} members of an average are too many for one process: messages grow with their square, "
            f"and those of some rounds must be passed. Set peers_per_round to {MOST_MEMBERS} or fewer, or "
            "compare without privacy (methods = local, fedavg)"
        )


def averaging_of(config: TrainConfig, name: str, design: Design) -> Averaging:
    """Return what a method averages by; a protocol takes those settings that are named like its options."""
    row = protocol_of(config, name)
    if row is None:
        raise ConfigError(f"the method {name!r} does not average; choose one that does")
    settings = method(name).adapt(config)
    values = {option: getattr(settings, option) for option in row.options if hasattr(settings, option)}
    if "rho" in values:
        values["rho"] = settings.schedule()
    return row.on(design, seed=config.seed, **values)


FIRST = {"bits": 64, "range": 2.0**16}
"""How round 0 travels, which averages the first parameters themselves: in a range that fits models, or a wider one."""


def averages_differences(config: TrainConfig, name: str) -> bool:
    """Tell whether a method averages differences; baselines and what repeats the paper average parameters."""
    found = method(name)
    return config.differences and not (found.baseline or found.as_published)


def bringing(
    config: TrainConfig, name: str, design: Design, dtype: str, plan: Plan | None = None
) -> Callable[[int], Bringing]:
    """Return what gives, for a round, how parameters are brought to the average of a method.

    With a plan of differential privacy the range of all rounds but the first follows from it.
    """
    first = later = averaging_of(config, name, design)
    if averages_differences(config, name) and set(FIRST) <= set(later.protocol.options):
        wide = {**FIRST, "range": max(FIRST["range"], config.range or 0.0)}
        first = later.protocol.on(design, seed=config.seed, **{**later.given, **wide})
    if plan is not None and plan.in_average:
        later = later.protocol.on(design, seed=config.seed, **{**later.given, "range": plan.range})

    def of_round(round: int) -> Bringing:
        chosen = (later if round else first).at(round)
        return Bringing(
            averaging=chosen,
            dtype=dtype,
            weighted=config.weighted,
            beyond=config.beyond,
            plan=plan if plan is not None and plan.in_average else None,
        )

    # what cannot be brought in later rounds is an error now, before any work is lost
    usual = of_round(1)
    if usual.plan is not None and usual.step > usual.plan.grid:
        raise ConfigError(
            "the steps in which numbers travel are coarser than those of the noise, which would be rounded away; use "
            "more bits, a larger clip or a larger learning rate"
        )
    return of_round


MAKERS: dict[str, Make] = {"best": best, "randomized": randomized}
"""What the setting ``design`` may name besides a file."""


def choose_design(config: TrainConfig) -> Design:
    """Return the design that the configuration asks for, verified and for the right number of peers.

    ``group_size = "auto"`` takes what withstands ``collusion`` peers, or comes nearest; the certificate judges it.
    """
    rows = _rows(config)
    if config.members < LEAST_PEERS and any(row.in_groups for row in rows):
        raise DesignError(
            f"{config.members} peers are too few for a private average: each would subtract its own parameters from "
            f"the total and have the other's. Take at least {LEAST_PEERS} peers, or compare without privacy in a "
            "simulation: `securedfl train --methods local,fedavg`"
        )
    make = MAKERS.get(config.design)
    if make is None and any(row.in_groups for row in rows):
        design = Design.load(config.design)
    else:
        design = design_for(
            _judged(config),
            config.members,
            collusion=config.collusion,
            group_size=config.group_size,
            seed=config.seed,
            make=make or best,
        )
    if design.n != config.members:
        raise DesignError(f"the design {config.design} is for {design.n} peers, but {config.members} take part")
    design.verify()
    return design


def drawing(config: TrainConfig) -> Drawn | None:
    """Return how the members of a round are drawn; None if all peers take part in all rounds."""
    if config.members == config.peers:
        return None
    return Drawn.chosen(config.peers, config.members, collusion=config.collusion)


def members(config: TrainConfig, round: int) -> tuple[int, ...]:
    """Return who takes part in a round of a simulation."""
    drawn = drawing(config)
    return tuple(range(config.peers)) if drawn is None else drawn.members(stream(config.seed, "members", round))


def passes_messages(config: TrainConfig, round: int) -> bool:
    """Tell whether a simulation passes the messages of a round: in the first two, and then from time to time.

    The two differ: the initial average is of parameters, all others of differences, mostly.
    """
    return round == 0 or (round - 1) % config.messages_between == 0


def private(config: TrainConfig) -> list[str]:
    """Return the methods of a run that are to be private."""
    return [name for name in config.methods if not method(name).baseline]


def label(name: str) -> str:
    """Return the name that people read; an unknown method keeps its own, cut to a length that fits."""
    text = METHODS[name].label if name in METHODS else name
    plain = "".join(c if c.isprintable() else " " for c in text).strip() or "(no name)"
    return plain if len(plain) <= LONGEST_LABEL else plain[: LONGEST_LABEL - 1] + "…"


def ordered(names: Iterable[str]) -> list[str]:
    """Return each method once: the known ones in the paper's order, then the others as they came."""
    found = dict.fromkeys(names)
    return [name for name in METHODS if name in found] + [name for name in found if name not in METHODS]
