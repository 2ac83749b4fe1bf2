"""For people who own their training loop: join a federation and average a model in place."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from securedfl.containers import Container
from securedfl.errors import ConfigError
from securedfl.federation.joining.processes import Processes, Told, processes
from securedfl.federation.joining.seat import Seat
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.network.data.averages import Averaged
from securedfl.parameters import Schema, Tree
from securedfl.storage import path_of


class JoinedPeer:
    """A peer of a federation; use it as a context. Made by `join`.

    The connection is made by the first `average_`, because peers compare their models before they begin. A site that
    trains in several processes (torchrun, DDP, FSDP) makes the same calls in all of them: that of rank 0 is the peer.

    Attributes
    ----------
    round
        The next average; all peers count alike. After a restart, `average_` goes on where the others are.
    done
        Whether all averages of the run are done.
    last
        What came out of the last average: who took part, how long it took, whether it was fetched.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path_of(path, "the settings of the site")
        self._seat = Seat(self._path)
        self._processes: Processes | None = None
        self._told: Told = {}

    def average_(self, model: Tree, weight: float = 1.0) -> Any:
        """Replace the parameters of a model by their average over all peers, and return the model.

        Whole-number buffers, parameters that are not trained, and what ``local`` in federation.toml names stay as
        they are (docs/reference/configuration.md). Of an optimiser, its parameters are averaged; its state stays at the
        site.
        A peer that is killed in here and started again averages what it had brought the first time.

        Parameters
        ----------
        model
            Changed in place: a PyTorch module, a PEFT model (its adapter's trained parameters), an optimiser, a dict of
            arrays or tensors, a list of them, ``model.parameters()``, or one array or tensor. What is averaged of it
            has the same structure on all peers. Tensors that are spread over the processes of the site are gathered,
            and spread again; of others the first process has the numbers that count.
        weight
            How much this peer counts, for instance ``len(data)``; needs ``weighted = true`` and ``max_weight`` in
            federation.toml, and is ignored otherwise. All processes of a site give the same.
        """
        container, schema, told = self._begin(model)
        if told["private"]:
            raise ConfigError(
                "with [privacy] the first model must not depend on anybody's data: call peer.resume_(model) before "
                "training, at every site with the same first model"
            )
        self._site.same("weight", weight)
        self._take(container, schema, self._average(container, schema, weight))
        return model

    def resume_(self, model: Tree) -> bool:
        """Load the last average that this peer or others hold, and what this peer had at home when it averaged last.

        Return whether there is an average. Call it before training. With ``[privacy]`` the very first average is made
        here, of the models as they are before anybody trains: it has no noise, and must not depend on data.
        """
        container, schema, told = self._begin(model, state=True)
        if told["state"] is not None:
            self._site.together(lambda: container.replace(told["state"]))
        while told["private"]:
            # again only if that round was void
            told = self._average(container, schema, 1.0)
        return self._take(container, schema, told)

    @property
    def _site(self) -> Processes:
        """The processes of this site, as they are when it averages first."""
        if self._processes is None:
            self._processes = processes()
        return self._processes

    @property
    def _alone(self) -> bool:
        return self._processes is None or self._processes.alone

    def _begin(self, model: Tree, *, state: bool = False) -> tuple[Container, Schema, Told]:
        """Open a model, join if that is still to be done, and return what is averaged, and where the run is."""
        container = self._site.together(lambda: Container.of(model))

        def join() -> Told:
            schema = self._seat.join(container)
            return {**self._where(), "schema": schema.told, "state": self._seat.home if state else None}

        told = self._site.lead(join)
        schema = Schema.of_told(told["schema"])
        self._site.together(lambda: container.check_fits(schema))
        return container, schema, told

    def _average(self, container: Container, schema: Schema, weight: float) -> Told:
        """Average what a model holds, in the first process, and return the outcome in all of them."""
        # both gather what is spread over processes, so all of them come along
        vector, home = self._site.together(lambda: (container.flatten(schema), container.at_home(schema)))

        def average() -> Told:
            self._seat.average(np.array(vector), weight, home)
            return self._where()

        return self._site.lead(average)

    def _where(self) -> Told:
        """Return what all processes of the site need to know."""
        seat = self._seat
        return {"base": seat.base, "round": seat.round, "done": seat.over, "private": seat.starts_in_private}

    def _take(self, container: Container, schema: Schema, told: Told) -> bool:
        """Put the outcome into the model; return whether there is one."""
        self._told = {"round": told["round"], "done": told["done"]}
        if (base := told["base"]) is not None:
            self._site.together(lambda: container.put(schema, base))
        return base is not None

    @property
    def round(self) -> int:
        """The next average."""
        return self._seat.round if self._alone else int(self._told.get("round", 0))

    @property
    def last(self) -> Averaged | None:
        """What came out of the last average; in the first process of a site that has several."""
        return self._seat.last

    @property
    def done(self) -> bool:
        """Whether all averages of the run are done; False before the first call of `average_` or `resume_`.

        In several processes it is what the last call found, so that all of them leave their loops together.
        """
        return self._seat.over if self._alone else bool(self._told.get("done", False))

    @property
    def weighted(self) -> bool:
        """Whether peers count by their weights; asked for by all processes of a site together."""

        def read() -> Told:
            return {"weighted": FederationConfig.load(PeerConfig.load(self._path).federation).training.weighted}

        return bool(self._site.lead(read)["weighted"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seat.leave(kind, error, trace)
        if kind is None and self._processes is not None:
            self._processes.end()


def join(path: str | Path) -> JoinedPeer:
    """Join the federation that ``peer.toml`` names, in the spirit of torch.distributed's all_reduce.

    Parameters
    ----------
    path
        Of the site's ``peer.toml`` (docs/guides/network.md). Of a site's several processes, the first reads it.

    Returns
    -------
    JoinedPeer
        Use it as a context. It connects when it averages first, because peers compare their models before they begin.

    Raises
    ------
    ConfigError, PrivacyError, PeerLostError
        By the first average: settings that are wrong, promise too little, or differ from those of the others; or too
        few others are there.

    Examples
    --------
    >>> import securedfl
    >>> peer = securedfl.join("peer.toml")
    >>> peer.round
    0

    In a training loop::

        with securedfl.join("peer.toml") as peer:
            for round in range(20):
                train(model, data)
                peer.average_(model, weight=len(data))
    """
    return JoinedPeer(path)
