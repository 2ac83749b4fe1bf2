"""A shard: a fixed set of peers in one process of the cluster, with their samples, optimisers and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from securedfl.learning.training.failures import WorkerFailure, tried
from securedfl.learning.training.task import Maker, State, Trainer
from securedfl.learning.training.team import CHANGES, COMMANDS, WRITES, add_all
from securedfl.parameters import Array


@dataclass(frozen=True)
class Answers:
    """What a shard found for some peers, in their order; their rows and states if it `WRITES` and `CHANGES` them."""

    found: list[Any]
    rows: Sequence[Array] = ()
    states: Sequence[State] = ()


class Shard:
    """Carries out a team's commands for its peers, and keeps their rows from command to command.

    Parameters
    ----------
    make
        Makes the trainer of its peers; what cannot be made is told with the first answer.
    """

    def __init__(self, make: Maker) -> None:
        torch.set_num_threads(1)
        self._rows: dict[int, Array] = {}
        self._trainer = tried(make)

    def ready(self) -> tuple[str, ...] | WorkerFailure:
        """Say that the shard is ready, and with which versions."""
        return self._trainer if isinstance(self._trainer, WorkerFailure) else versions()

    def carry_out(
        self,
        command: str,
        peers: Sequence[int],
        argument: Any,
        common: Array | None,
        own: Mapping[int, Array | None],
        *,
        keep: bool = True,
    ) -> Answers | WorkerFailure:
        """Carry one of `COMMANDS` out for some peers.

        Parameters
        ----------
        command, argument
            As a team gives them.
        peers
            For whom.
        common
            The row of all peers that ``own`` names with None.
        own
            Rows that others have changed since the last command; peers that it does not name have theirs.
        keep
            Whether rows stay here; if not, they come again with every command.
        """
        if isinstance(self._trainer, WorkerFailure):
            return self._trainer
        rows = self._rows if keep else {}
        for peer, row in own.items():
            given = common if row is None else row
            assert given is not None  # noqa: S101 - for the type checker
            rows[peer] = given
        return tried(partial(self._answers, self._trainer, command, peers, argument, rows))

    def _answers(
        self, trainer: Trainer, command: str, peers: Sequence[int], argument: Any, rows: dict[int, Array]
    ) -> Answers:
        found = list[Any]()
        for peer in peers:
            # what came with a message cannot be written, and others of this shard may have the same
            row = np.array(rows[peer]) if peer in rows else np.empty(0)
            if command == "initialise":
                row = np.zeros(trainer.schema.size, dtype=trainer.schema.dtype)
            answer = COMMANDS[command](trainer, peer, row, argument)
            if command == "update and add" and found:
                # the sum so far is told with the last peer
                (loss, before), (own, added) = found[-1], answer
                found[-1], answer = (loss, None), (own, add_all(argument, (before, added)))
            found.append(answer)
            if command in WRITES:
                rows[peer] = row
        return Answers(
            found,
            [rows[peer] for peer in peers] if command in WRITES else (),
            [trainer.state(peer) for peer in peers] if command in CHANGES else (),
        )


def versions() -> tuple[str, ...]:
    """Return the versions that decide bits."""
    return f"securedfl {version('securedfl')}", f"torch {torch.__version__}", f"numpy {np.__version__}"
