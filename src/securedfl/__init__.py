"""SecureD-FL: federated learning without a server.

Peers train the same model on private data and average their parameters within small groups, which come from a
combinatorial design. See `average` for the one-liner, `certify` for what peers learn about each other, `train` for a
simulated federation, `join` for a real one, and ``securedfl --help`` for the command line.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from securedfl.designs import Design, best_design
from securedfl.errors import (
    AppError,
    ConfigError,
    DesignError,
    InvalidInputError,
    MissingDependencyError,
    PeerLostError,
    PrivacyError,
    RunFolderError,
    SecuredFLError,
)
from securedfl.privacy import Certificate, certify
from securedfl.protocols import Protocol, Schedule
from securedfl.simulation.average import average, average_

if TYPE_CHECKING:
    from securedfl.federation.apps.app import App
    from securedfl.federation.config import TrainConfig
    from securedfl.federation.joining.join import join
    from securedfl.federation.run_folder.model import load
    from securedfl.federation.train import resume, train
    from securedfl.learning.data.coding import Coding
    from securedfl.learning.data.folder import read_features, read_folder
    from securedfl.learning.data.portions import Portion, deal

__version__ = version("securedfl")

_LOADED_WHEN_USED = {
    "App": "securedfl.federation.apps.app",
    "Coding": "securedfl.learning.data.coding",
    "Portion": "securedfl.learning.data.portions",
    "TrainConfig": "securedfl.federation.config",
    "deal": "securedfl.learning.data.portions",
    "join": "securedfl.federation.joining.join",
    "read_features": "securedfl.learning.data.folder",
    "read_folder": "securedfl.learning.data.folder",
    "load": "securedfl.federation.run_folder.model",
    "resume": "securedfl.federation.train",
    "train": "securedfl.federation.train",
}
"""What needs more than numpy: PyTorch, or TLS."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_WHEN_USED[name]), name)


__all__ = [
    "App",
    "AppError",
    "Certificate",
    "Coding",
    "ConfigError",
    "Design",
    "DesignError",
    "InvalidInputError",
    "MissingDependencyError",
    "PeerLostError",
    "Portion",
    "PrivacyError",
    "Protocol",
    "RunFolderError",
    "Schedule",
    "SecuredFLError",
    "TrainConfig",
    "__version__",
    "average",
    "average_",
    "best_design",
    "certify",
    "deal",
    "join",
    "load",
    "read_features",
    "read_folder",
    "resume",
    "train",
]
