"""The gate before training: what must hold about privacy before any parameter is sent."""

from __future__ import annotations

from typing import Any

from securedfl.designs import Design
from securedfl.federation.config import TrainConfig


def certify(config: TrainConfig, design: Design) -> dict[str, Any]:
    """Return what is certified about this federation, for summary.json; called once, before training starts.

    Parameters
    ----------
    config
        The resolved settings; ``collusion`` and ``allow_exposure`` say what must be withstood.
    design
        Who meets whom.

    Raises
    ------
    PrivacyError
        The settings do not withstand what the federation must, and ``allow_exposure`` is off.
    """
    del config, design
    return {}
