"""What an app is told about the peer that it is made for, from the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from securedfl.errors import ConfigError
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
