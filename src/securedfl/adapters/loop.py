"""What all adapters share: a training loop of somebody else that takes part in a federation.

All sites begin with the same parameters, train, average every so often, and stop when the run is over. The parameters
that a loop ends with are the last average.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized
from typing import Any

from securedfl.errors import ConfigError, unknown
from securedfl.federation.joining.join import JoinedPeer
from securedfl.network.data.averages import RunEndedError
from securedfl.parameters import Named

log = logging.getLogger("securedfl.peer")

Part = Callable[[Any], Any]
"""Gives what is averaged of a model: whatever `peer.average_` takes."""


class FederatedLoop:
    """A training loop in a federation; adapters tell it what happens.

    Parameters
    ----------
    peer
        What `securedfl.join` gave.
    every
        How many steps (or epochs: whatever `trained` counts) lie between averages.
    part
        What is averaged of the model; by default all of it, or the adapter if it is a PEFT model.
    weight
        How much this site counts, if the federation is weighted; by default its number of samples.

    Attributes
    ----------
    ended
        Why the run is over for this site; empty while it is not.
    """

    def __init__(
        self, peer: JoinedPeer, *, every: int = 1, part: Part | None = None, weight: float | None = None
    ) -> None:
        if not isinstance(peer, JoinedPeer):
            raise ConfigError(
                f"the first argument is a {type(peer).__name__}, not a peer; pass what "
                '`with securedfl.join("peer.toml") as peer:` gives'
            )
        if type(every) is not int or every < 1:
            raise ConfigError(f"averages must lie a whole number of steps or epochs apart, at least 1, not {every!r}")
        self.peer, self.ended = peer, ""
        self._every, self._part, self._weight = every, part or (lambda model: model), weight
        self._since = 0

    def begin(self, model: Any, samples: int | None = None) -> bool:
        """Give the model the parameters that all sites have; return whether there is something to train.

        At the very beginning these are the average of what the sites begin with; after a restart, the last average.
        """
        self.ended, self._since = "", 0
        if self._weight is None and self.peer.weighted:
            if samples is None:
                raise ConfigError("the federation is weighted, and the number of samples is unknown here; pass weight=")
            self._weight = samples
        try:
            if not self.peer.resume_(self._part(model)):
                self._average(model)
            self._look_at_the_end()
        except RunEndedError as error:
            self._end(str(error), model)
        return not self.ended

    def trained(self, model: Any, count: int = 1, *, last: bool = False) -> bool:
        """Average if it is time, or if this was the last step; return whether to go on."""
        self._since += count
        if self.ended or not (last or self._since >= self._every):
            return not self.ended
        try:
            self._average(model)
            self._look_at_the_end()
        except RunEndedError as error:
            self._end(str(error), model)
        return not self.ended

    def end(self, model: Any) -> None:
        """Leave the model with the last average, in which all that was trained here has its part."""
        if not self.ended and self._since:
            self.trained(model, 0, last=True)
        if self.ended:
            # a framework may have trained on before it looked
            self.peer.resume_(self._part(model))
        else:
            log.warning(
                "training ended before the run: the others wait for round %d; train longer here, or end the run with "
                "`securedfl stop`",
                self.peer.round,
            )

    def _average(self, model: Any) -> None:
        self.peer.average_(self._part(model), 1.0 if self._weight is None else self._weight)
        self._since = 0

    def _look_at_the_end(self) -> None:
        if self.peer.done:
            self.ended = f"all rounds of this run are done, {self.peer.round - 1} after the common start"
            log.info("%s; training stops", self.ended)

    def _end(self, why: str, model: Any) -> None:
        """Stop because an operator ended the run, or removed this peer; what was trained since is dropped."""
        self.ended, self._since = why, 0
        log.warning("%s; training stops here, with the last average", why)
        self.peer.resume_(self._part(model))


def every(steps: int | None, epochs: int | None) -> tuple[int, bool]:
    """Return how often to average, and whether epochs count; one of the two is given, or neither: every epoch."""
    if steps is not None and epochs is not None:
        raise ConfigError("average every so many steps or every so many epochs: give one of the two")
    return (steps, False) if steps is not None else (1 if epochs is None else epochs, True)


def samples_of(loader: Any) -> int | None:
    """Return how many samples a data loader has, if that can be told."""
    dataset = getattr(loader, "dataset", None)
    return len(dataset) if isinstance(dataset, Sized) else None


def adapter_of(model: Any, name: str) -> Named:
    """Return the trained parameters of one adapter of a PEFT model, by name."""
    known = getattr(model, "peft_config", None)
    if not known:
        raise ConfigError(f"adapter = {name!r}, but a {type(model).__name__} has no adapters; leave it out")
    if name not in known:
        raise unknown("adapter", name, known)
    return {key: value for key, value in model.named_parameters() if f".{name}." in key and value.requires_grad}
