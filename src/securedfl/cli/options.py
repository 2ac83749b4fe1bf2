"""Options of a command made from the fields of a configuration, so that the two can never drift apart."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig, read_toml

PANELS = {
    "dataset": "Run",
    "dealing": "Learning",
    "group_size": "Averaging",
    "collusion": "Privacy",
    "workers": "Machine",
}
"""How ``--help`` groups the options: the first of each group, in the order of the fields."""

CHOICES = {
    "methods": "NAME,...",
    "local": "PATTERN,...",
    "rho": "NUMBER|START,DECAY,PERIOD",
    "group_size": "auto|NUMBER",
    "bits": "16|32|64",
    "range": "NUMBER",
    "workers": "auto|NUMBER",
    "design": "best|randomized|FILE",
    "privacy": "KEY=VALUE,...",
}
"""What ``--help`` shows for values that are neither numbers nor one of a few words."""


NUMBERS: Mapping[str, Callable[[str], float]] = {"workers": int, "group_size": int, "bits": int, "range": float}
"""Options that are numbers, or a word, or nothing by default."""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes ``settings`` one option per field of `TrainConfig`; unset ones are left out."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    added, panel = [], ""
    for name, field in TrainConfig.model_fields.items():
        panel = PANELS.get(name, panel)
        kind = _annotation(name, field, panel)
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
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and progress to stderr.")]


def merged(config: Path | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file, if there is one, with those of the command line before them."""
    return {**(read_toml(config) if config else {}), **settings}


def checked(config: Path | None, values: Mapping[str, Any]) -> TrainConfig:
    """Return checked settings; errors name the file that they came from."""
    return TrainConfig.resolve(values, where=str(config) if config else "the options")


def parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn what the command line gave into what a TOML file would hold."""
    values = {name: value for name, value in given.items() if value is not None}
    if "rho" in values:
        values["rho"] = read_rho(values["rho"])
    if "privacy" in values:
        values["privacy"] = read_privacy(values["privacy"])
    for name, number in NUMBERS.items():
        with suppress(ValueError):
            if name in values:
                values[name] = number(values[name])
    return values


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
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"--privacy {text}: give KEY=VALUE,... such as unit=site,clip=1,epsilon=8,delta=1e-3")
        found[name] = value
        for kind in (float, int):
            with suppress(ValueError):
                found[name] = kind(value)
    return found


def _annotation(name: str, field: FieldInfo, panel: str) -> Any:
    default = field.default
    kind: Any = str
    flags = [f"--{name.replace('_', '-')}"]
    metavar = CHOICES.get(name)
    if get_origin(field.annotation) is Literal:
        metavar = "|".join(get_args(field.annotation))
    if isinstance(default, bool):
        kind = bool
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    elif metavar is None and isinstance(default, int | float):
        kind = type(default)
    elif name in ("out", "data_dir"):
        kind = Path
    shown = ",".join(default) if isinstance(default, tuple) else str(default)
    option = typer.Option(
        *flags,
        help=field.description,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=shown if default not in (None, ()) else False,
    )
    return Annotated[kind | None, option]
