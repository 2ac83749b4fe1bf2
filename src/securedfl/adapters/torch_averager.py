"""torch.distributed: a ModelAverager that averages with other sites, for PostLocalSGDOptimizer."""

from __future__ import annotations

from typing import Any

from securedfl.adapters.loop import FederatedLoop
from securedfl.errors import ConfigError, needing
from securedfl.federation.joining.join import JoinedPeer

with needing("securedfl.adapters.torch_averager"):
    from torch.distributed.algorithms.model_averaging.averagers import ModelAverager


class FederatedAverager(ModelAverager):
    """Average parameters within a federation every ``period`` steps, as torch's PeriodicModelAverager in its group.

    It needs no process group. An optimiser cannot stop a loop: when all averages are done, or an operator ended the
    run, the next one raises the error that says so. Ask ``peer.done``, and call ``peer.resume_(optimizer)`` first.

    Parameters
    ----------
    peer
        What `securedfl.join` gave.
    period
        How many steps lie between averages; the first step after the warm-up averages.
    warmup_steps
        Steps at the beginning without averages.
    weight
        How much this site counts, if the federation is weighted.

    Examples
    --------
    Where a ``model`` and its ``optimizer`` are::

        with securedfl.join("peer.toml") as peer:
            optimizer = PostLocalSGDOptimizer(optimizer, FederatedAverager(peer, period=8))
            ...  # train as ever
    """

    def __init__(self, peer: JoinedPeer, period: int, warmup_steps: int = 0, *, weight: float | None = None) -> None:
        # not the constructor of ModelAverager: it looks for a process group
        if type(warmup_steps) is not int or warmup_steps < 0:
            raise ConfigError(f"warmup_steps = {warmup_steps!r}: must be a whole number, at least 0")
        FederatedLoop(peer, every=period)
        if weight is None and peer.weighted:
            raise ConfigError("the federation is weighted; pass weight=, the number of samples of this site")
        self.peer, self.period, self.warmup_steps, self.step = peer, period, warmup_steps, 0
        self._weight = 1.0 if weight is None else weight

    def average_parameters(self, params: Any) -> None:
        """Average parameters, or an optimiser's parameter groups, if it is time."""
        late = self.step - self.warmup_steps
        if late >= 0 and late % self.period == 0:
            self.peer.average_(params, self._weight)
        self.step += 1
