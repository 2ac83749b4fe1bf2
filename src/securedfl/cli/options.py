"""Options of a command made from the fields of a configuration, so that the two can never drift apart; output files."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig
from securedfl.federation.settings import read_toml
from securedfl.storage import cannot_write, replacing

PANELS = {
    "dataset": "Run",
    "dealing": "Learning",
    "group_size": "Averaging",
    "collusion": "Privacy",
    "engine": "Machine",
}
"""How ``--help`` groups the options: the first of each group, in the order of the fields."""

CHOICES = {
    "entry": "MODULE:FUNCTION",
    "data": "KEY=VALUE,...",
    "methods": "NAME,...",
    "local": "PATTERN,...",
    "features": "COLUMN,...",
    "rho": "NUMBER|START,DECAY,PERIOD",
    "device": "cpu|cuda|cuda:N|mps",
    "address": "auto|HOST:PORT",
    "design": "best|randomized|FILE",
    "privacy": "KEY=VALUE,...",
}
"""What ``--help`` shows for values that are neither numbers nor one of a few words, as the field says."""


NOWHERE = "none"


def address_of(text: str) -> str:
    """Return an address as federation.toml has it: a site that only dials out has ``none`` on the command line."""
    return "" if text == NOWHERE else text


def with_settings(*, unseen: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes ``settings`` one option per field of `TrainConfig`; unset ones are left out.

    Those that the command refuses are ``unseen`` in its help.
    """
    return lambda command: _with_settings(command, unseen)


def _with_settings(command: Callable[..., None], unseen: Collection[str]) -> Callable[..., None]:
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    added, panel = [], ""
    for name, field in TrainConfig.model_fields.items():
        panel = PANELS.get(name, panel)
        kind = _annotation(name, field, panel, hidden=name in unseen)
        added.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind))

    def wrapper(**values: Any) -> None:
        given = {name: values.pop(name) for name in TrainConfig.model_fields}
        command(settings=parse(given), **values)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + added
    )
    return wrapper


ConfigFile = Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; options go before them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and progress to stderr.")]


def a_file(words: str, **more: Any) -> Any:
    """Return an option that names a file."""
    return typer.Option(metavar="FILE", help=words, **more)


def merged(config: Path | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file, if there is one, with those of the command line before them."""
    return {**(read_toml(config) if config else {}), **settings}


def checked(config: Path | None, values: Mapping[str, Any]) -> TrainConfig:
    """Return checked settings; errors name the file that they came from."""
    return TrainConfig.resolve(values, where=str(config) if config else "the options")


def parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn what the command line gave into what a TOML file would hold."""
    values = {name: value for name, value in given.items() if value is not None}
    readers: dict[str, Callable[[str], Any]] = {"data": read_table, "rho": read_rho, "privacy": read_privacy}
    for name, value in values.items():
        kinds = _kinds(TrainConfig.model_fields[name].annotation)
        if name in readers:
            values[name] = readers[name](value)
        elif isinstance(value, str) and any(kind in (int, float) or isinstance(kind, int) for kind in kinds):
            with suppress(ValueError):
                values[name] = float(value) if float in kinds else int(value)
    return values


def read_pairs(text: str, option: str, example: str) -> dict[str, str]:
    """Read KEY=VALUE,... as texts."""
    pairs = [[piece.strip() for piece in part.partition("=")] for part in text.split(",")]
    if any(not key or not sign for key, sign, _ in pairs):
        raise ConfigError(f"{option} {text}: give KEY=VALUE, and commas between several, such as {example}")
    return {key: value for key, _, value in pairs}


def read_table(text: str) -> dict[str, Any]:
    """Read KEY=VALUE,... as a table; values that are numbers, true or false in TOML are that here."""
    found: dict[str, Any] = dict(read_pairs(text, "--data", "folder=scans,limit=100"))
    for key, value in found.items():
        with suppress(tomllib.TOMLDecodeError):
            found[key] = tomllib.loads(f"value = {value}")["value"]
    return found


def read_rho(text: str) -> Any:
    """Read a number, or START,DECAY,PERIOD as a table."""
    parts = text.split(",")
    try:
        if len(parts) == 1:
            return float(text)
        start, decay, period = parts
        return {"start": float(start), "decay": float(decay), "period": int(period)}
    except ValueError:
        raise ConfigError(f"--rho {text}: give a number, or START,DECAY,PERIOD such as 3,3e-4,1") from None


def read_privacy(text: str) -> dict[str, Any]:
    """Read KEY=VALUE,... as the table ``[privacy]``."""
    found: dict[str, Any] = dict(read_pairs(text, "--privacy", "unit=site,clip=1,epsilon=8,delta=1e-3"))
    for key, value in found.items():
        for kind in (float, int):
            with suppress(ValueError):
                found[key] = kind(value)
    return found


def _kinds(annotation: Any) -> list[Any]:
    """Return what a value may be besides None: types, and words or numbers themselves."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return list(parts)
    if origin is Annotated:
        return _kinds(parts[0])
    if origin in (Union, UnionType):
        return [kind for part in parts if part is not type(None) for kind in _kinds(part)]
    return [annotation]


def _annotation(name: str, field: FieldInfo, panel: str, *, hidden: bool) -> Any:
    default, kinds = field.default, _kinds(field.annotation)
    kind: Any = str
    flags = [f"--{name.replace('_', '-')}"]
    metavar = CHOICES.get(name)
    if isinstance(default, bool):
        kind = bool
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    elif kinds in ([int], [float]) and default is not None:
        kind = kinds[0]
    elif kinds == [Path]:
        kind = Path
    elif all(one in (int, float) or isinstance(one, int | str) for one in kinds):
        metavar = "|".join("NUMBER" if isinstance(one, type) else str(one) for one in kinds)
    shown = ",".join(default) if isinstance(default, tuple) else str(default)
    option = typer.Option(
        *flags,
        help=field.description,
        metavar=metavar,
        rich_help_panel=panel,
        hidden=hidden,
        show_default=shown if default not in (None, ()) else False,
    )
    return Annotated[kind | None, option]


def write(path: Path, pieces: Iterable[str]) -> None:
    """Write a file that the user named, as a whole or not at all; one that cannot be written is a `RunFolderError`.

    What is no ordinary file, such as /dev/stdout, is written directly.
    """
    try:
        if path.is_file() or not path.exists():
            # a link stays one
            place = path.resolve() if path.is_symlink() else path
            with replacing(place) as temporary, temporary.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
        else:
            with path.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
    except OSError as error:
        raise cannot_write(path, error) from None
