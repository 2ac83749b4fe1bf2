"""What other packages add: entry points of groups such as ``securedfl.protocols``, found by name when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
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
        What an entry point must lead to; None for anything.
    what
        What it is called in errors.
    """
    announced = {point.name: point for point in entry_points(group=group)}
    for clash in sorted(announced.keys() & built_in.keys()):
        raise ConfigError(
            f"the package {announced[clash].value!r} announces a {what} {clash!r}, which this package has itself; "
            "uninstall it or rename its entry point"
        )
    if name in built_in:
        return built_in[name]
    if name not in announced:
        raise unknown(what, name, [*built_in, *announced])
    try:
        found: Any = announced[name].load()
    except Exception as error:  # whatever the other package does when it is imported
        raise ConfigError(
            f"the {what} {name!r} of {announced[name].value!r} cannot be loaded: {error}"
        ) from None
    if kind is not None and not isinstance(found, kind):
        raise ConfigError(f"the entry point {announced[name].value!r} is no {kind.__name__}")
    return found  # type: ignore[no-any-return]
