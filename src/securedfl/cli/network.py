"""What the commands for real peers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from securedfl.errors import MissingDependencyError


@contextmanager
def needing_network() -> Iterator[None]:
    """Turn a missing package into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        extra = {"grpc": "network", "msgpack": "network", "torch": "learn", "safetensors": "learn"}
        package = (error.name or "").partition(".")[0]
        if package not in extra:
            raise
        raise MissingDependencyError(
            f"real peers need {package}; install it with: pip install 'securedfl[{extra[package]}]'"
        ) from None
