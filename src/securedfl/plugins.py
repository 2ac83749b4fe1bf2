"""Things found by name: a fixed table of our own, and what other distributions add by entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from securedfl.errors import ConfigError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """All things of one kind.

    Attributes
    ----------
    kind
        What they are, for messages.
    group
        The group of entry points in which other distributions name theirs.
    fits
        Tells whether what an entry point gave is of this kind.
    built_in
        Our own by name.
    """

    kind: str
    group: str
    fits: Callable[[object], bool]
    built_in: Mapping[str, T]

    def names(self) -> list[str]:
        """Return all names, our own first."""
        return [*self.built_in, *self._added()]

    def get(self, name: str) -> T:
        """Return the thing of that name; an unknown name is an error that gives the nearest."""
        added = self._added()
        if name in self.built_in:
            return self.built_in[name]
        if name not in added:
            raise unknown(self.kind, name, self.names())
        return self._load(added[name])

    def _added(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            taken = "our own" if entry.name in self.built_in else _origin(found.get(entry.name))
            if taken and taken != _origin(entry):
                raise ConfigError(
                    f"{_origin(entry)} adds a {self.kind} {entry.name!r}, but that is the name of {taken}; "
                    f"rename it in its entry points ({self.group}), or uninstall it"
                )
            found[entry.name] = entry
        return found

    def _load(self, entry: EntryPoint) -> T:
        try:
            loaded = entry.load()
        except Exception as error:  # somebody else's module may fail in any way
            reason = f"cannot be loaded ({type(error).__name__}: {error})"
        else:
            if self.fits(loaded):
                return cast("T", loaded)
            reason = f"is a {type(loaded).__name__}"
        raise ConfigError(f"{entry.value} of {_origin(entry)} is named as a {self.kind}, but {reason}")


def _origin(entry: EntryPoint | None) -> str:
    if entry is None:
        return ""
    return f"the distribution {entry.dist.name!r}" if entry.dist is not None else entry.value
