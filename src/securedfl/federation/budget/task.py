"""What simulated and known real peers train, with what differential privacy asks of their steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from securedfl.designs import Design
from securedfl.errors import ConfigError
from securedfl.federation.budget.planning import make_plan
from securedfl.federation.budget.protection import Keys, whole_steps
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averaging_of, private
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.private import PrivateSteps
from securedfl.learning.training.task import Task
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.noise import skellam
from securedfl.protocols.randomness import InsecureSeededDraw, keystream, ring, secret_uniform

NOISE = 1 << 20
"""Added to a peer's number, so that its seeded noise is another stream than its masks and its rounding."""


def keys_of(config: TrainConfig, peer: int, round: int) -> Keys:
    """Return where the noise of a simulated peer comes from: its seed, or the operating system if masks are secret."""
    if config.masks == "secret":
        return secret_uniform.seed
    return InsecureSeededDraw(config.seed, peer=NOISE + peer, round=round).seed


@dataclass(frozen=True)
class SiteChance:
    """Batches and noise of steps at a site: secret, unless a simulation gives a seed."""

    plan: Plan
    seed: int | None

    def batch(self, count: int, peer: int, round: int, step: int) -> npt.NDArray[np.bool_]:
        """Throw for each record by itself: 53 bits against the sampling probability."""
        words = ring(keystream(self._keys(peer, round, step)(), 8 * count), "<u8")
        chosen: npt.NDArray[np.bool_] = (words >> np.uint64(11)) * 2.0**-53 < self.plan.sampling
        return chosen

    def noisy(self, gradient: Array, peer: int, round: int, step: int) -> Array:
        """Return a sum in whole grid steps with the noise that protects this site alone."""
        keys = self._keys(peer, round, step, purpose=1)
        steps, _ = whole_steps(gradient, self.plan, keys)
        steps += skellam(self.plan.variance)(len(steps), keys())
        steps *= self.plan.grid
        return steps.astype(gradient.dtype)

    def _keys(self, peer: int, round: int, step: int, purpose: int = 0) -> Keys:
        if self.seed is None:
            return secret_uniform.seed
        return InsecureSeededDraw(self.seed, peer=2 * NOISE * (2 + purpose) + peer, round=round, offset=step).seed


def private_steps(plan: Plan, seed: int | None) -> PrivateSteps | None:
    """Return what training must do for a plan; None if it is as ever."""
    if plan.unit == "site":
        return None
    return PrivateSteps(
        clip=plan.clip,
        steps=plan.steps,
        scale=plan.scale if plan.brings_steps else None,
        # of the average site, for how many records a site has is as private as they are
        expected=plan.sampling * plan.units / plan.peers,
        chance=SiteChance(plan, seed),
    )


T = TypeVar("T", bound=Task)


def planned(config: TrainConfig, task: T, design: Design) -> tuple[T, dict[str, Plan]]:
    """Return the task, and what each method that is to be private spends; nothing without ``[privacy]``."""
    if config.privacy is None:
        return task, {}
    records = None
    if isinstance(task, KnownTask):
        # late: torch takes seconds
        from securedfl.learning.training.clipping import check_per_sample

        records = sum(task.samples)
        if config.privacy.unit == "record":
            check_per_sample(task.maker([])().model, config.model)
    schema = task.schema()
    plans = {}
    for method in private(config):
        chosen = averaging_of(config, method, design)
        plans[method] = make_plan(config, chosen, size=schema.size, dtype=schema.dtype, records=records)
    steps = {private_steps(plan, None if config.masks == "secret" else config.seed) for plan in plans.values()}
    if len(steps) > 1:
        # their grids differ: rings of different sizes
        raise ConfigError(f"{', '.join(plans)} need plans of their own; run them one by one")
    if isinstance(task, KnownTask):
        task = replace(task, private=next(iter(steps), None))
    return task, plans
