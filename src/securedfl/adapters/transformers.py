"""transformers: a callback of the Trainer that averages the model, or its PEFT adapter, with the other sites."""

from __future__ import annotations

from typing import Any

from securedfl.adapters.loop import FederatedLoop, adapter_of, every, samples_of
from securedfl.errors import needing
from securedfl.federation.joining.join import JoinedPeer

with needing("securedfl.adapters.transformers", "transformers"):
    from transformers import TrainerCallback


class FederatedCallback(TrainerCallback):
    """Average within a federation while a Trainer trains.

    All sites begin with the same parameters, and after a restart with the last average. Of a PEFT model the trained
    parameters of its adapter are averaged, and nothing else leaves; of any other model all that is trained. The
    optimiser's state stays at the site. When the run is over, or ended by an operator, training stops.

    Parameters
    ----------
    peer
        What `securedfl.join` gave.
    steps, epochs
        How many steps of the optimiser, or how many epochs, lie between averages; by default one epoch.
    adapter
        Of a PEFT model with several: the name of the one to average.
    weight
        How much this site counts, if the federation is weighted; by default its number of training samples.

    Examples
    --------
    Where a ``trainer`` is::

        with securedfl.join("peer.toml") as peer:
            trainer.add_callback(FederatedCallback(peer, steps=100))
            trainer.train()
    """

    def __init__(
        self,
        peer: JoinedPeer,
        *,
        steps: int | None = None,
        epochs: int | None = None,
        adapter: str | None = None,
        weight: float | None = None,
    ) -> None:
        count, self._by_epoch = every(steps, epochs)
        part = None if adapter is None else lambda model: adapter_of(model, adapter)
        self.loop = FederatedLoop(peer, every=count, part=part, weight=weight)

    def on_train_begin(self, _args: Any, _state: Any, control: Any, *, model: Any, **given: Any) -> None:
        """Take the common parameters."""
        control.should_training_stop |= not self.loop.begin(model, samples_of(given.get("train_dataloader")))

    def on_step_end(self, _args: Any, state: Any, control: Any, *, model: Any, **_given: Any) -> None:
        """Average if steps count and it is time; before the trainer evaluates or saves."""
        last = state.global_step >= state.max_steps
        if not self._by_epoch or last:
            control.should_training_stop |= not self.loop.trained(model, last=last)

    def on_epoch_end(self, _args: Any, state: Any, control: Any, *, model: Any, **_given: Any) -> None:
        """Average if epochs count and it is time."""
        if self._by_epoch and state.global_step < state.max_steps:
            control.should_training_stop |= not self.loop.trained(model)

    def on_train_end(self, _args: Any, _state: Any, _control: Any, *, model: Any, **_given: Any) -> None:
        """Leave the model with the last average."""
        self.loop.end(model)
