"""accelerate: the manner of its LocalSGD, with other sites instead of other processes."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from securedfl.adapters.loop import FederatedLoop
from securedfl.federation.joining.join import JoinedPeer


class FederatedSGD:
    """Average within a federation every so many steps; a context around a training loop, as accelerate's ``LocalSGD``.

    Parameters
    ----------
    accelerator
        An ``accelerate.Accelerator`` of one process.
    model
        What it prepared. Of a PEFT model the adapter's trained parameters are averaged.
    peer
        What `securedfl.join` gave.
    local_sgd_steps
        How many steps of the optimiser lie between averages.
    weight
        How much this site counts, if the federation is weighted.

    Examples
    --------
    Around a loop that has an ``accelerator``::

        with securedfl.join("peer.toml") as peer, FederatedSGD(accelerator, model, peer, 8) as federated:
            for batch in loader:
                ...  # accelerator.backward(loss), optimizer.step()
                if not federated.step():
                    break
    """

    def __init__(
        self, accelerator: Any, model: Any, peer: JoinedPeer, local_sgd_steps: int, *, weight: float | None = None
    ) -> None:
        self.loop = FederatedLoop(peer, every=local_sgd_steps, weight=weight)
        self._accelerator, self._model = accelerator, accelerator.unwrap_model(model)

    def __enter__(self) -> Self:
        """Give the model the common parameters; if the run is over, `step` says so."""
        self.loop.begin(self._model)
        return self

    def step(self) -> bool:
        """Count a batch, and average if it is time; return whether to go on."""
        # while gradients accumulate, the optimiser makes no step
        return self.loop.trained(self._model, int(self._accelerator.sync_gradients))

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Leave the model with the last average, as LocalSGD does."""
        if kind is None:
            self.loop.end(self._model)
