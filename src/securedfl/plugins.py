"""What other packages add: entry points of groups such as ``securedfl.datasets``, found by name when asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from securedfl.errors import ConfigError, unknown

T = TypeVar("T")


def find(group: str, built_in: Mapping[str, T], name: str, kind: type[T] | None, what: str) -> T:
    """Return what has a name: ours, or what an installed package announces under it.

    Parameters
    ----------
    group
        Of entry points.
    built_in
        What this package has, by name. Nobody else can take these names.
    name
        What is looked for; an unknown name is an error that names the nearest.
    kind
        What an entry point must lead to; None for anything that can be called.
    what
        What it is called in errors.
    """
    name, announced = str(name), _announced(group, built_in, what)
    if name in built_in:
        return built_in[name]
    if name not in announced:
        raise unknown(what, name, [*built_in, *announced])
    entry = announced[name]
    try:
        found: Any = entry.load()
    except Exception as error:  # whatever the other package does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the {what} {name!r} of {_package(entry)} cannot be loaded ({reason})") from None
    if not (callable(found) if kind is None else isinstance(found, kind)):
        raise ConfigError(f"{entry.value!r} of {_package(entry)} is no {what}, but a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def names(group: str, built_in: Mapping[str, T], what: str) -> list[str]:
    """Return all names that `find` knows, ours first."""
    return [*built_in, *_announced(group, built_in, what)]


def _announced(group: str, built_in: Mapping[str, T], what: str) -> dict[str, EntryPoint]:
    """Return the entry points by name; a name that is taken is an error."""
    found: dict[str, EntryPoint] = {}
    for entry in _entry_points(group, tuple(sys.path)):
        if entry.name in built_in or entry.name in found:
            other = "this package" if entry.name in built_in else _package(found[entry.name])
            raise ConfigError(
                f"{_package(entry)} announces a {what} {entry.name!r}, which {other} has itself; uninstall it or "
                f"rename its entry point ({group})"
            )
        found[entry.name] = entry
    return found


@cache
def _entry_points(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """Return the entry points of a group, found once for a path: looking through all packages takes 20 ms each time."""
    return entry_points(group=group)


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name!r}" if entry.dist is not None else repr(entry.value)
