"""What an app is told about the peer that it is made for, from the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import COMMON
from securedfl.federation.config import TrainConfig
from securedfl.learning.seeds import torch_seed
from securedfl.learning.training.task import TrainingOptions

OF_MODELS = frozenset({"model", "width", "integers", "local", "private"})
"""Options of our own models, or that are dealt with outside of the app."""


def peer_settings(
    config: TrainConfig, number: int, *, name: str | None = None, data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings that the app of a peer is made with.

    Parameters
    ----------
    config
        Of the run.
    number
        Of the peer.
    name
        Of a real peer; simulated ones are called ``peer-0``, ``peer-1``, ...
    data
        What a real peer's file has under ``[data]``. A simulated peer gets what the run has there, with its own name
        and number wherever a text says ``{name}`` or ``{number}``.
    """
    name = f"peer-{number}" if name is None else name
    options = [field.name for field in fields(TrainingOptions) if field.name in type(config).model_fields]
    return {
        "name": name,
        "number": number,
        **{
            key: getattr(config, key)
            for key in ("peers", "rounds", "dealing", "alpha", *options)
            if key not in OF_MODELS
        },
        **(own_data(config, number, name) if data is None else data),
    }


def with_common(config: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """Return the settings with what an app says about the common model; what the run says otherwise is an error."""
    if not given:
        return config
    checked = TrainConfig.checked(given, "common_optimizer of the app")
    for key in COMMON.values():
        mine, theirs = getattr(config, key), getattr(checked, key)
        if mine not in (theirs, TrainConfig.model_fields[key].default):
            raise ConfigError(f"{key} is {mine!r} in the settings and {theirs!r} in the app; leave one of them away")
    made = config.model_copy(update={key: getattr(checked, key) for key in given})
    # a combination that makes no optimiser is an error now
    made.common()
    return made


def own_data(config: TrainConfig, number: int, name: str) -> dict[str, Any]:
    """Return what a run has under ``[data]``, for one peer."""

    def filled(key: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return [filled(key, item) for item in value]
        if not isinstance(value, str):
            return value
        try:
            return value.format(name=name, number=number)
        except (KeyError, IndexError, ValueError):
            raise ConfigError(
                f"{key} = {value!r} under [data]: only {{name}} and {{number}} can stand in braces; "
                "write {{ and }} for braces themselves"
            ) from None

    return {key: filled(key, value) for key, value in config.data or ()}


def start_seed(config: TrainConfig, number: int) -> int:
    """Return the seed that a peer's app is made with: one for all, so that all models begin alike; or each its own."""
    common = config.initial == "common"
    return torch_seed(config.seed, "make", *(() if common else (number,)))
