"""The methods that are compared, and how each one averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from securedfl.designs import Design, best, nearest, randomized
from securedfl.errors import ConfigError, DesignError, unknown
from securedfl.federation.config import RhoSchedule, TrainConfig
from securedfl.protocols import by_name
from securedfl.protocols.admm import AUTHORS, check_options
from securedfl.protocols.steps import Steps

Options = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the comparison.

    Attributes
    ----------
    label
        As tables and figures call it.
    protocol
        Gives the name of the averaging protocol for a configuration; None trains without communication.
    adapt
        Gives the settings that this method averages with.
    """

    label: str
    protocol: Callable[[TrainConfig], str] | None
    adapt: Callable[[TrainConfig], TrainConfig] = lambda config: config


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


METHODS: dict[str, Method] = {
    "local": Method(label="Local-Only", protocol=None),
    "fedavg": Method(label="FedAvg", protocol=lambda _config: "plain"),
    "paper": Method(label="SecureD-FL (paper)", protocol=lambda _config: "grouped", adapt=_as_published),
    "secured": Method(label="SecureD-FL", protocol=lambda config: config.protocol),
    "shares": Method(label="SecureD-FL shares", protocol=lambda _config: "shares"),
}
"""All methods by name; add an entry to add a method."""


def _admm(config: TrainConfig) -> Options:
    options: Options = {"rho": config.schedule(), "iterations": config.iterations, "finish": config.finish}
    check_options(**options)
    return options


OPTIONS: dict[str, Callable[[TrainConfig], Options]] = {
    "classic": _admm,
    "grouped": _admm,
    "plain": lambda _config: {},
    "resilient": lambda config: {"collusion": config.collusion},
    "shares": lambda config: {"collusion": config.collusion},
}
"""Which settings each protocol takes, as keyword arguments; add an entry with the protocol."""

WITHOUT_GROUPS = frozenset({None, "plain", "classic"})
"""Protocols that need no design, so that two peers can use them."""


def method(name: str) -> Method:
    """Return the method of that name; an unknown one is an error that names the nearest."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def protocol_of(config: TrainConfig, name: str) -> str | None:
    """Return the name of the protocol that a method averages with, or None."""
    chosen = method(name).protocol
    return None if chosen is None else chosen(config)


def averaging(config: TrainConfig, name: str, design: Design) -> Callable[..., Steps] | None:
    """Return a method's protocol with design and options filled in, or None if it does not communicate."""
    protocol = protocol_of(config, name)
    if protocol is None:
        return None
    return partial(by_name(protocol), design=design, **options_of(config, name))


def options_of(config: TrainConfig, name: str) -> Options:
    """Return the options of a method's protocol."""
    options = OPTIONS.get(str(protocol_of(config, name)))
    return {} if options is None else options(method(name).adapt(config))


MAKERS: dict[str, Callable[[int, int, int], Design]] = {"best": best, "randomized": randomized}
"""What the setting ``design`` may name besides a file."""


def choose_design(config: TrainConfig) -> Design:
    """Return the design that the configuration asks for, verified and for the right number of peers.

    ``group_size = "auto"`` takes what withstands ``collusion`` peers, or comes nearest; the certificate judges it.
    """
    n, size = config.peers, config.group_size
    make = MAKERS.get(config.design)
    if {protocol_of(config, name) for name in config.methods} <= WITHOUT_GROUPS:
        design = Design.everyone(n)
    elif make is None:
        design = Design.load(config.design)
    elif size == "auto":
        design = nearest(n, collusion=config.collusion, seed=config.seed, make=make).design
    else:
        design = make(n, size, config.seed)
    if design.n != n:
        raise DesignError(f"the design {config.design} is for {design.n} peers, but {n} take part")
    design.verify()
    return design
