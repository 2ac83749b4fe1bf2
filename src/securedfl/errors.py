"""Errors that a user can act on; each kind has a stable exit code (docs/reference/errors.md)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral

INTERRUPTED = 130
"""The exit code of a command that was stopped, by Ctrl-C for instance."""


class SecuredFLError(Exception):
    """Base of every error that this package raises on purpose; its text says what to do next.

    Examples
    --------
    >>> import securedfl
    >>> try:
    ...     securedfl.best_design(9, collusion=8)
    ... except securedfl.SecuredFLError as error:
    ...     print(type(error).__name__, error.exit_code)
    PrivacyError 6
    """

    exit_code = 1


class InvalidInputError(SecuredFLError, ValueError):
    """Values that cannot be averaged or trained on: NaN, wrong shape, empty data, zero weight."""

    exit_code = 3


class ConfigError(SecuredFLError, ValueError):
    """A configuration that is unknown, contradictory or impossible."""

    exit_code = 4


def unknown(kind: str, name: str, known: Iterable[str], also: Iterable[str] = ()) -> ConfigError:
    """Return the error for a name that does not exist; it gives the nearest known one, and all of them.

    The nearest may be one of ``also``, which are not listed.
    """
    names = sorted(known)
    return ConfigError(f"unknown {kind} {name!r}{near(name, [*names, *also])} (known: {', '.join(names) or 'none'})")


def whole_number(value: object, what: str, *, least: int) -> int:
    """Return a whole number, also numpy's; anything else, or one below the least, is a `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ConfigError(f"the {what} must be a whole number, not {value!r}")
    if value < least:
        raise ConfigError(f"the {what} must be at least {least}, not {value}")
    return int(value)


def near(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean ...?" with the nearest known name; nothing if none is near."""
    found = difflib.get_close_matches(str(name), list(known), n=1, cutoff=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""


class DesignError(SecuredFLError, ValueError):
    """A design that does not exist or is not valid."""

    exit_code = 5


class PrivacyError(SecuredFLError):
    """The settings would let a coalition learn more than the federation allows."""

    exit_code = 6


class PeerLostError(SecuredFLError):
    """A message that the protocol needs did not arrive."""

    exit_code = 7


class RunFolderError(SecuredFLError):
    """A run folder that is missing, corrupt or belongs to another configuration."""

    exit_code = 8


class MissingDependencyError(SecuredFLError, ImportError):
    """An optional package is needed; the text gives the command that installs it."""

    exit_code = 9


class AppError(SecuredFLError):
    """A function of the user's own app raised something; the text names it, the peer and the lines of the app."""

    exit_code = 13


def rebuilt(name: str, text: str) -> SecuredFLError | None:
    """Return an error that another process raised, by the name of its class; None if it is none of ours.

    The text is all that crossed over: what else a class is made of stays there.
    """
    left: list[type[SecuredFLError]] = [SecuredFLError]
    while left:
        kind = left.pop()
        if kind.__name__ == name:
            found = kind.__new__(kind, text)
            Exception.__init__(found, text)
            return found
        left += kind.__subclasses__()
    return None


EXTRAS = {
    "PIL": "data",
    "dp_accounting": "dp",
    "jinja2": "learn",
    "matplotlib": "learn",
    "pyarrow": "data",
    "safetensors": "learn",
    "sklearn": "learn",
    "torch": "learn",
}
"""Which extra of this package installs an optional one."""


@contextmanager
def needing(what: str, extra: str = "") -> Iterator[None]:
    """Turn the failed import of an optional package into an error that gives the command that installs it."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if not extra and package not in EXTRAS:
            raise
        command = f"pip install 'securedfl[{extra or EXTRAS[package]}]'"
        raise MissingDependencyError(f"{what}: {package} is missing; install it with: {command}") from None
