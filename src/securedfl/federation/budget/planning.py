"""From settings to the plan of a run: what it will spend, and everything that must hold before any data is touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from securedfl.errors import ConfigError, PrivacyError
from securedfl.federation.config import TrainConfig
from securedfl.learning.data.datasets import source
from securedfl.learning.data.folder import is_path, look
from securedfl.privacy.budget.plan import Plan, settled
from securedfl.protocols.protocol import Averaging

BUDGET = "`securedfl budget` tells what fits"


def check_privacy(config: TrainConfig, *, real: bool = False) -> None:
    """Refuse settings that contradict differential privacy; needs neither data nor a model.

    Parameters
    ----------
    config
        The settings.
    real
        Whether real peers run, who cannot count each other's records.
    """
    wish = config.privacy
    if wish is None:
        return
    if wish.epsilon is None and wish.noise_multiplier is None:
        raise ConfigError(f"[privacy] needs epsilon or noise_multiplier; {BUDGET}")
    if config.members != config.peers:
        raise ConfigError("[privacy] counts on the noise of all peers in every round; leave peers_per_round away")
    if not config.differences:
        raise ConfigError("[privacy] clips differences; leave differences = true")
    if config.weighted:
        raise ConfigError("[privacy] cannot hide weights, which are numbers of records; set weighted = false")
    if config.range is not None:
        raise ConfigError("the range follows from clip and noise in [privacy]; leave range away")
    if config.integers == "average":
        raise ConfigError('[privacy] leaves whole-number buffers at home; set integers = "own"')
    if wish.noise == "central" and real:
        raise ConfigError('noise = "central" needs a server that all trust; real peers take "distributed" or "local"')
    if wish.unit == "record":
        _check_record(config, real=real)
    if wish.unit == "site" and wish.sampling is not None:
        raise ConfigError('sampling is for unit = "record": all sites take part in every round; leave it away')
    if wish.unit == "site" and wish.delta >= 1 / config.peers:
        raise ConfigError(f"delta = {wish.delta:g} is not below 1/{config.peers}, the number of sites")
    if wish.records is not None and wish.unit == "record" and wish.delta >= 1 / wish.records:
        raise ConfigError(f"delta = {wish.delta:g} is not below 1/{wish.records}, the number of records")


def _check_record(config: TrainConfig, *, real: bool) -> None:
    wish = config.privacy
    assert wish is not None  # noqa: S101 - for the type checker
    if wish.sampling is None:
        raise ConfigError(
            'unit = "record" needs sampling, the probability of each record to be in a batch: only such (Poisson) '
            "batches are accounted for"
        )
    if config.entry is not None:
        raise ConfigError(
            'unit = "record" needs clipped gradients of Poisson batches, and an app trains by itself; take '
            'unit = "site", which clips whatever it brings'
        )
    if is_path(config.dataset) and not ((found := look(Path(config.dataset))).images or found.mapped):
        raise ConfigError(
            f"the tables of {config.dataset} are scaled by all of their rows, so that one record moves all others; "
            'unit = "record" takes images or a known data set; or take unit = "site"'
        )
    known = source(config.dataset, config.columns).defaults
    usual = known.get("batch_size", TrainConfig.model_fields["batch_size"].default)
    if config.batch_size != usual:
        raise ConfigError(
            'batch_size gives batches of a fixed size, which are not Poisson batches; with unit = "record" leave it '
            "away, sampling decides"
        )
    if config.local:
        raise ConfigError('unit = "record" clips whole gradients; leave local away, or take unit = "site"')
    if real and wish.records is None:
        raise ConfigError("real peers cannot count each other's records: agree on records in [privacy]")
    for key in ("gradient_norm", "proximal", "precision", "device"):
        if getattr(config, key) != (default := TrainConfig.model_fields[key].default):
            raise ConfigError(f'unit = "record" takes steps of its own, without {key}; leave {key} = {default!r}')
    if wish.noise == "local":
        return
    only = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "epochs": 1, "steps": None}
    for key, value in {**only, "learning_rate_schedule": "constant", "warmup": 0}.items():
        if getattr(config, key) != value:
            raise ConfigError(
                f"with {wish.noise} noise of unit record every average is one step of SGD on the common model: set "
                f'{key} = {value!r}, or take noise = "local"'
            )


def make_plan(config: TrainConfig, averaging: Averaging, *, size: int, dtype: str, records: int | None) -> Plan:
    """Return what a run with ``[privacy]`` will spend.

    Parameters
    ----------
    config, averaging
        The settings, and what is averaged by.
    size, dtype
        Of what is averaged.
    records
        Of all sites together, where they can be counted.

    Raises
    ------
    PrivacyError
        The plan is over budget; the text says what would fit. Or the protocol cannot carry the noise.
    """
    wish = config.privacy
    assert wish is not None  # noqa: S101 - for the type checker
    codec = averaging.codec
    if codec is None or averaging.protocol.masks != "perfect":
        raise PrivacyError(
            f"differential privacy adds whole numbers behind perfect masks, which {averaging.protocol.name} does not "
            "have; choose grouped, shares or resilient"
        )
    counted = wish.records or records
    if wish.unit == "record" and counted is None:
        raise ConfigError("say how many records all sites have together: records in [privacy]")
    units = config.peers if wish.unit == "site" else int(counted or 0)
    sampling = 1.0 if wish.sampling is None else wish.sampling
    alone = wish.unit == "record" and wish.noise == "local"
    plan = Plan(
        unit=wish.unit,
        noise=wish.noise,
        clip=wish.clip,
        noise_multiplier=wish.noise_multiplier or 0.0,
        sampling=sampling,
        steps=config.steps or config.epochs * max(1, round(1 / sampling)) if alone else 1,
        delta=wish.delta,
        peers=config.peers,
        # whoever is curious knows its own noise
        collusion=max(1, config.collusion),
        rounds=config.rounds,
        size=size,
        units=units,
        scale=1.0 if alone or wish.unit == "site" else config.learning_rate * config.peers / (sampling * units),
    )
    bits = codec.width(np.empty(0, dtype=dtype))
    capacity = None if alone else (codec.modulus(bits) - 1) // 2
    return settled(plan, epsilon=wish.epsilon, capacity=capacity, over=wish.over)
