"""The experiments' settings, one TOML file each in this package: what is trained, and where the paper shows it."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from securedfl.errors import ConfigError, unknown

NAMES = ("table", "curves", "iterations", "accuracy", "groups")
"""All experiments, in the paper's order."""

Tuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


class Preset(BaseModel):
    """One experiment of the paper.

    Attributes
    ----------
    title, place
        What it shows, and where the paper has it.
    datasets, peers, seeds
        What is trained: one run for each combination.
    iterations
        ADMM iterations that are compared.
    train_by_iterations
        Whether each number of iterations needs a training of its own.
    group_sizes, most
        Of ``groups``: the sizes, and the largest number of peers.
    runs
        How the names of this experiment's run folders begin.
    train
        Settings of `securedfl.federation.TrainConfig`; those that suit the data set are added.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    place: str
    datasets: Annotated[tuple[str, ...], Tuple] = ()
    peers: Annotated[tuple[int, ...], Tuple] = ()
    seeds: Annotated[tuple[int, ...], Tuple] = (0,)
    iterations: Annotated[tuple[int, ...], Tuple] = ()
    train_by_iterations: bool = False
    group_sizes: Annotated[tuple[int, ...], Tuple] = ()
    most: int = 0
    runs: str = ""
    train: dict[str, Any] = Field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Rounds of federated learning at full size."""
        return int(self.train.get("rounds", 0))


def read_preset(name: str) -> Preset:
    """Return the preset of an experiment; an unknown name is an error that gives the nearest."""
    if name not in NAMES:
        raise unknown("experiment", name, NAMES)
    file = resources.files("securedfl.experiments") / "presets" / f"{name}.toml"
    try:
        return Preset.model_validate({"name": name, **tomllib.loads(file.read_text(encoding="utf-8"))})
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigError(
            f"the preset {name}.toml of this installation is damaged ({error}); install again"
        ) from None
