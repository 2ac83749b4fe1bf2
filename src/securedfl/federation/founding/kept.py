"""What stays of a settings file that is written again: everything that the command does not set."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from securedfl.errors import ConfigError
from securedfl.federation.settings import read_toml
from securedfl.storage import ANYBODY, write_text


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A settings file as it is to be.

    Attributes
    ----------
    values
        What it is to say.
    keys
        What of it was there, and is not what the command would write by itself; of tables, key by key.
    """

    path: Path
    values: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    found: Mapping[str, Any] = field(default_factory=dict)

    def write(self, about: str, advice: str) -> str:
        """Write the file, unless it says so already; return what is told of what was kept."""
        bare = False
        if not self.found or self.found != self.values:
            bare = bool(self.found) and has_comments(self.path, about)
            # what is kept may be a secret, such as the password of a proxy
            mode = stat.S_IMODE(self.path.stat().st_mode) if self.found else ANYBODY
            write_text(self.path, about + tomli_w.dumps(self.values), advice, mode=mode)
        comments = "; its comments are gone" * bare
        return f"Kept of {self.path}: {', '.join(self.keys) or 'nothing else'}{comments}" if self.keys or bare else ""


def found_in(path: Path) -> dict[str, Any]:
    """Return what a settings file says that may be there already."""
    if not path.exists():
        return {}
    try:
        return read_toml(path)
    except ConfigError as error:
        raise ConfigError(f"{error}; mend it, or move it away, so that nothing in it is lost") from None


def keeping(path: Path, found: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Kept:
    """Return a file with what is given, else what was found, else the defaults; tables are joined key by key."""
    values, keys = {**defaults, **found}, list[str]()
    for key, value in given.items():
        before = found.get(key)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        values[key] = {**before, **value} if both and before is not None else value
    for key, value in found.items():
        if isinstance(value, Mapping):
            keys += [f"{key}.{inner}" for inner in value if inner not in given.get(key, {})]
        elif key not in given and value != defaults.get(key):
            keys.append(key)
    return Kept(path=path, values=values, keys=tuple(keys), found=found)


def has_comments(path: Path, about: str) -> bool:
    """Tell whether a file has lines of comments besides those that stand above the settings."""
    lines = {line.strip() for line in path.read_text(encoding="utf-8").splitlines()}
    return any(line.startswith("#") or " # " in line for line in lines - set(about.splitlines()))
