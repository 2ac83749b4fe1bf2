"""From a preset to the runs that it needs: one cell for each data set, number of peers, seed and variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.experiments.presets import Preset
from securedfl.experiments.scale import Scale, told
from securedfl.federation.config import FREE, TrainConfig

RUNS = "runs"
"""The folder of all runs, which experiments share."""


@dataclass(frozen=True)
class Cell:
    """One run that an experiment needs.

    Attributes
    ----------
    config
        Its settings; ``out`` is its folder.
    scaled
        How it is smaller than the paper's, in words; empty if it is not.
    variant
        What sets it apart from other cells of the same data set, peers and seed, in words.
    """

    config: TrainConfig
    scaled: str = ""
    variant: str = ""

    @property
    def folder(self) -> Path:
        """Where the run is, or will be."""
        assert self.config.out is not None  # noqa: S101 - `make_plan` sets it
        return self.config.out

    @property
    def about(self) -> str:
        """What is trained, for people."""
        variant = f", {self.variant}" if self.variant else ""
        scaled = f" (scaled: {self.scaled})" if self.scaled else ""
        return f"{self.config.dataset}, {self.config.peers} peers, seed {self.config.seed}{variant}{scaled}"


def make_plan(
    preset: Preset,
    out: Path,
    *,
    scale: Scale | None = None,
    datasets: Sequence[str] | None = None,
    peers: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    machine: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the runs that an experiment needs.

    Parameters
    ----------
    preset
        The experiment.
    out
        The folder of all results; runs go into ``runs/`` there.
    scale
        How much of it to run.
    datasets, peers, seeds, rounds
        Instead of the preset's.
    machine
        Further settings, of those that change no number.
    """
    scale = scale or Scale()
    if rounds is not None:
        if scale.rounds != 1:
            raise ConfigError("give the number of rounds by --rounds or by --scale, not by both")
        scale = Scale(rounds=rounds / max(preset.rounds, 1), users=scale.users, width=scale.width)
    cells = []
    for dataset in datasets or preset.datasets:
        for count in peers or preset.peers:
            for seed in preset.seeds if seeds is None else seeds:
                for iterations in preset.iterations if preset.train_by_iterations else (None,):
                    values = settings(preset, dataset, count, seed, iterations)
                    values |= {"rounds": rounds or scale.of_rounds(preset.rounds)}
                    values |= {"fraction": scale.users, "width": scale.width, **(machine or {})}
                    if "keep_updates" in values:  # a short training keeps its last round at least
                        values["keep_updates"] = min(values["keep_updates"], values["rounds"])
                    varied = "" if iterations is None else f"-iterations{iterations}"
                    name = f"{preset.runs}{dataset}-{count}-seed{seed}{varied}{scale.suffix}"
                    values["out"] = out / RUNS / name
                    config = TrainConfig.resolve(values, where=f"the experiment {preset.name!r}")
                    variant = "" if iterations is None else f"{iterations} iterations"
                    cells.append(Cell(config, told(config, preset.rounds), variant))
    return cells


def settings(
    preset: Preset, dataset: str, peers: int, seed: int, iterations: int | None = None
) -> dict[str, Any]:
    """Return the settings of a run at full size, before defaults are filled in."""
    values = {**preset.train, "dataset": dataset, "peers": peers, "seed": seed}
    if iterations is not None:
        values["iterations"] = iterations
        if iterations == 2:  # the exact finish needs two, so it is trained beside the authors' two
            values["methods"] = [*preset.train["methods"], "secured"]
    return values


def differences(found: TrainConfig, wanted: TrainConfig) -> list[str]:
    """Name the settings in which two runs' numbers may differ, with both values."""
    before, now = found.to_dict(), wanted.to_dict()
    return [
        f"{key} = {before.get(key)!r}, not {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if key not in FREE and before.get(key) != now.get(key)
    ]


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read "0,1,2" or "0-4"."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            numbers += range(int(first), int(last) + 1) if dash else [int(first)]
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
