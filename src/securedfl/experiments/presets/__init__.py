"""The experiments' settings, one TOML file each in this package, and scales that run less than all of it."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from securedfl.errors import ConfigError, unknown
from securedfl.federation.config import TrainConfig

NAMES = ("table", "curves", "iterations", "accuracy", "groups", "privacy")
"""All experiments, in the paper's order, and then our own."""


class Preset(BaseModel):
    """One experiment of the paper.

    Attributes
    ----------
    title, place
        What it shows, and where the paper has it.
    datasets, peers, seeds
        What is trained: one run for each combination.
    iterations, train_by_iterations
        ADMM iterations that are compared, and whether each number of them needs a training of its own.
    variants
        Further settings of ``train`` by name, each of which needs a training of its own.
    group_sizes, most
        Of ``groups``: the sizes, and the largest number of peers.
    runs
        How the names of this experiment's run folders begin.
    train
        Settings of `securedfl.TrainConfig`; those that suit the data set are added.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    place: str
    datasets: tuple[str, ...] = ()
    peers: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    iterations: tuple[int, ...] = ()
    train_by_iterations: bool = False
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    group_sizes: tuple[int, ...] = ()
    most: int = 0
    runs: str = ""
    train: dict[str, Any] = Field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Rounds of federated learning at full size."""
        return int(self.train.get("rounds", 0))

    @property
    def starts(self) -> bool:
        """Whether peers may begin with their own parameters instead: in the paper's trainings, not in ours."""
        return self.train.get("initial") == "common"

    @property
    def places(self) -> list[tuple[str, int]]:
        """Data sets and numbers of peers, in the paper's order."""
        return [(dataset, peers) for peers in self.peers for dataset in self.datasets]


def read_preset(name: str) -> Preset:
    """Return the preset of an experiment; an unknown name is an error that gives the nearest."""
    if name not in NAMES:
        raise unknown("experiment", name, NAMES)
    file = resources.files("securedfl.experiments") / "presets" / f"{name}.toml"
    try:
        return Preset.model_validate({"name": name, **tomllib.loads(file.read_text(encoding="utf-8"))})
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(f"the preset {name}.toml of this installation is damaged ({error}); install again") from None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Shares of the full size, from above 0 to 1; 1 is the paper's."""

    rounds: float = 1.0
    users: float = 1.0
    width: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Read "0.2", which scales everything alike, or "rounds=0.4,users=0.25,width=0.5"; what is not named is 1."""
        names = [field.name for field in fields(cls)]
        parts: dict[str, float] = {}
        for part in text.split(",") if "=" in text else [f"{name}={text}" for name in names]:
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in names:
                raise unknown(f"part of --scale {text}:", name, names)
            if not equals or name in parts:
                raise ConfigError(f"--scale {text}: give each of {', '.join(names)} once, as in rounds=0.4")
            with suppress(ValueError):
                parts[name] = float(value)
            if not 0 < parts.get(name, 0) <= 1:
                raise ConfigError(
                    f"--scale {text}: {value!r} is no number from above 0 to 1; give one, such as 0.2, or "
                    "rounds=0.4,users=0.25,width=0.5"
                )
        return cls(**parts)

    @property
    def suffix(self) -> str:
        """What the names of scaled run folders end with; nothing for the full size."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return "".join(f"-{name}{part:g}" for name, part in parts.items() if part != 1)

    def of_rounds(self, full: int) -> int:
        """Return the scaled number of rounds; at least one."""
        return max(1, round(self.rounds * full))


def scaled_in_words(config: TrainConfig, full_rounds: int) -> str:
    """Say in numbers how a run is smaller than the paper's; nothing if it is not."""
    parts = []
    if config.rounds != full_rounds:
        parts.append(f"{config.rounds} of {full_rounds} rounds")
    if config.fraction != 1:
        parts.append(f"{100 * config.fraction:.3g} % of users")
    if config.width != 1:
        parts.append(f"layers {config.width:.3g} times as wide")
    return ", ".join(parts)


MOST_NUMBERS = 1000
"""Seeds, or numbers of peers, that may be asked for at once."""


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read "0,1,2" or "0-4"."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            each = range(int(first), int(last) + 1) if dash else [int(first)]
            if len(numbers) + len(each) > MOST_NUMBERS:
                raise ConfigError(f"{option} {text}: more than {MOST_NUMBERS:,} of them are too many; give fewer")
            numbers += each
    except ConfigError:
        raise
    except ValueError:
        numbers = []
    if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ConfigError(f"{option} {text}: give different whole numbers, such as 0,1,2 or 0-4")
    return tuple(numbers)


def names(text: str, option: str) -> tuple[str, ...]:
    """Read "femnist,shakespeare"."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"{option} {text}: give different names, such as femnist,shakespeare")
    return found
