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
        entry = added[name]
        try:
            found = entry.load()
            reason = f"is a {type(found).__name__}"
        except Exception as error:  # somebody else's module may fail in any way
            found, reason = None, f"cannot be loaded ({type(error).__name__}: {error})"
        if not self.fits(found):
            raise ConfigError(f"{entry.value} of {_whose(entry)} is named as a {self.kind}, but {reason}")
        return cast("T", found)

    def _added(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.built_in or entry.name in found:
                taken = "our own" if entry.name in self.built_in else _whose(found[entry.name])
                raise ConfigError(
                    f"{_whose(entry)} adds a {self.kind} {entry.name!r}, but that is the name of {taken}; rename it "
                    f"in its entry points ({self.group}), or uninstall it"
                )
            found[entry.name] = entry
        return found


def _whose(entry: EntryPoint) -> str:
    return f"the distribution {entry.dist.name!r}" if entry.dist is not None else entry.value
