"""Lightning: a callback of the Trainer that averages the module with the other sites."""

from __future__ import annotations

import sys
from typing import Any

from securedfl.adapters.loop import FederatedLoop, Part, every, samples_of
from securedfl.errors import needing
from securedfl.federation.joining.join import JoinedPeer

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    # the same under its older name
    from pytorch_lightning.callbacks import Callback
else:
    with needing("securedfl.adapters.lightning", "lightning"):
        from lightning.pytorch.callbacks import Callback


class FederatedCallback(Callback):
    """Average within a federation while a Trainer fits.

    All sites begin with the same parameters, and after a restart with the last average. Validation and checkpoints at
    the end of an epoch see the average. The optimisers' states stay at the site. When the run is over, or ended by an
    operator, training stops.

    Parameters
    ----------
    peer
        What `securedfl.join` gave.
    steps, epochs
        How many steps of the optimisers, or how many epochs, lie between averages; by default one epoch.
    part
        A function that gives what is averaged of the module; by default all that is trained. ``lambda module:
        module.model`` for a PEFT model within it, so that nothing but its adapter is kept and averaged.
    weight
        How much this site counts, if the federation is weighted; by default its number of training samples.

    Examples
    --------
    Where a ``module`` and its ``loader`` are::

        with securedfl.join("peer.toml") as peer:
            trainer = lightning.Trainer(max_epochs=20, callbacks=[FederatedCallback(peer)])
            trainer.fit(module, loader)
    """

    def __init__(
        self,
        peer: JoinedPeer,
        *,
        steps: int | None = None,
        epochs: int | None = None,
        part: Part | None = None,
        weight: float | None = None,
    ) -> None:
        count, self._by_epoch = every(steps, epochs)
        self.loop = FederatedLoop(peer, every=count, part=part, weight=weight)
        self._seen = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the common parameters."""
        self._seen = trainer.global_step
        trainer.should_stop |= not self.loop.begin(pl_module, samples_of(trainer.train_dataloader))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, _outputs: Any, _batch: Any, _batch_idx: int) -> None:
        """Average if it is time; before validation, which follows the last batch of an epoch."""
        steps, self._seen = trainer.global_step - self._seen, trainer.global_step
        end_of_epoch = trainer.is_last_batch
        last = 0 <= trainer.max_steps <= trainer.global_step or (
            end_of_epoch and trainer.max_epochs is not None and trainer.current_epoch + 1 == trainer.max_epochs
        )
        count = int(end_of_epoch) if self._by_epoch else steps
        if count or last:
            trainer.should_stop |= not self.loop.trained(pl_module, count, last=last)

    def on_train_end(self, _trainer: Any, pl_module: Any) -> None:
        """Leave the module with the last average."""
        self.loop.end(pl_module)
