"""What simulated and known real peers train, with what differential privacy asks of their steps."""

from __future__ import annotations

from securedfl.designs import Design
from securedfl.federation.budget.planning import make_plan
from securedfl.federation.budget.protection import Keys
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averaging, private
from securedfl.learning.training.task import Task
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.randomness import InsecureSeededDraw, secret_uniform

NOISE = 1 << 20
"""Added to a peer's number, so that its seeded noise is another stream than its masks and its rounding."""


def keys_of(config: TrainConfig, peer: int, round: int) -> Keys:
    """Return where the noise of a simulated peer comes from: its seed, or the operating system if masks are secret."""
    if config.masks == "secret":
        return secret_uniform.seed
    return InsecureSeededDraw(config.seed, peer=NOISE + peer, round=round).seed


def planned(config: TrainConfig, task: Task, design: Design) -> tuple[Task, dict[str, Plan]]:
    """Return the task, and what each method that is to be private spends; nothing without ``[privacy]``."""
    if config.privacy is None:
        return task, {}
    # late: torch takes seconds
    from securedfl.learning.training.trainer import LocalTrainer, one_thread

    with one_thread():
        schema = LocalTrainer.of(task, []).model.schema
    plans = {}
    for method in private(config):
        chosen = averaging(config, method, design)
        assert chosen is not None  # noqa: S101 - private methods communicate
        plan = make_plan(config, chosen, size=schema.size, dtype=schema.dtype, records=sum(task.samples))
        assert plan is not None  # noqa: S101 - for the type checker
        plans[method] = plan
    return task, plans
