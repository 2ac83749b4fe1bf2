"""For people who own their training loop: join a federation and average a model in place."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from securedfl.containers import Container
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.budget.rules import check_budget
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.learner import check_own_training
from securedfl.federation.peers.membership import Membership, Site, membership
from securedfl.federation.peers.update import Update, carried, find_update, save_update
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.network.data.averages import Averaged, RunEndedError
from securedfl.parameters import Array, Named, Schema, Tree

ENDED_SECONDS = 5.0
"""How long a peer that comes to an ended run waits for its last average."""


class JoinedPeer:
    """A peer of a federation; use it as a context. Made by `join`.

    The connection is made by the first `average_`, because peers compare their models before they begin.

    Attributes
    ----------
    round
        The next average; all peers count alike. After a restart, `average_` goes on where the others are.
    last
        What came out of the last average: who took part, how long it took, whether it was fetched.
    done
        Whether all averages of the run are done.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stack, self._left = ExitStack(), False
        self._member: Membership | None = None
        self._schema: Schema | None = None
        self.round = 0
        self.last: Averaged | None = None
        self._saved: Update | None = None
        self._base: Array | None = None
        self._residual: Array | None = None

    def average_(self, model: Tree, weight: float = 1.0) -> Any:
        """Replace the parameters of a model by their average over all peers, and return the model.

        Whole-number buffers, parameters that are not trained, and what ``local`` in federation.toml names stay as
        they are (docs/configuration.md). Of an optimiser, its parameters are averaged; its state stays at the site.
        A peer that is killed in here and started again averages what it had brought the first time.

        Parameters
        ----------
        model
            Changed in place: a PyTorch module, a PEFT model (its adapter's trained parameters), an optimiser, a dict of
            arrays or tensors, a list of them, ``model.parameters()``, or one array or tensor. What is averaged of it
            has the same structure on all peers.
        weight
            How much this peer counts, for instance ``len(data)``; needs ``weighted = true`` and ``max_weight`` in
            federation.toml, and is ignored otherwise.
        """
        container = Container.of(model)
        member, schema = self._joined(container)
        if member.site.plan is not None and self._base is None:
            raise ConfigError(
                "with [privacy] the first model must not depend on anybody's data: call peer.resume_(model) before "
                "training, at every site with the same first model"
            )
        self._average(container, member, schema, weight)
        return model

    def _average(self, container: Container, member: Membership, schema: Schema, weight: float) -> None:
        vector = self._same_again(np.array(container.flatten(schema)), weight, container.at_home(schema))
        self.last = member.average(vector, self.round)
        left = None if self._saved is None else self._saved.residual
        self._residual = carried(left, self.last, self.round, member.site.me)
        self.round = self.last.round + 1
        if self.last.vector.size:
            container.put(schema, self.last.vector)
        self._base = self.last.vector if self.last.vector.size else None

    def _same_again(self, w: Array, weight: float, home: Named) -> Array | None:
        """Return what to average: in a round that was begun before, after a kill or an error, what was brought then.

        None if that is lost: others may have seen shares of it, so nothing else can take its place.
        """
        assert self._member is not None  # noqa: S101 - for the type checker
        saved = self._saved
        if saved is None or saved.round != self.round:
            if (task := self._member.peer.progress.todo) is not None and task.again and task.round == self.round:
                return None
            check_budget(self._member.site.plan, self._member.peer.progress.state)
            brought = self._member.bring(w, self._base, weight, self._residual)
            saved = Update(self.round, brought.vector, home, None, brought.residual, brought.clipped)
            save_update(self._member.site.config.out, saved)
            self._saved = saved
        return saved.vector

    def resume_(self, model: Tree) -> bool:
        """Load the last average that this peer or others hold, and what this peer had at home when it averaged last.

        Return whether there is an average. Call it before training. With ``[privacy]`` the very first average is made
        here, of the models as they are before anybody trains: it has no noise, and must not depend on data.
        """
        container = Container.of(model)
        member, schema = self._joined(container)
        if self._saved is not None:
            container.replace(self._saved.state)
        while member.site.plan is not None and self._base is None:
            # again only if that round was void
            self._average(container, member, schema, 1.0)
        if self._base is None:
            return False
        container.put(schema, self._base)
        return True

    @property
    def done(self) -> bool:
        """Whether all averages of the run are done; False before the first call of `average_` or `resume_`."""
        return self._member is not None and self._member.peer.progress.state.over

    @property
    def weighted(self) -> bool:
        """Whether peers count by their weights."""
        return FederationConfig.load(PeerConfig.load(self._path).federation).training.weighted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._member is not None:
            with suppress(RunEndedError):
                self._member.peer.linger(0.0)
        self._left = True
        self._stack.__exit__(kind, error, trace)

    def _joined(self, model: Container) -> tuple[Membership, Schema]:
        """Join on first use; later check that the model is still the same."""
        if self._left:
            raise ConfigError("this peer has left the federation; average within `with securedfl.join(...) as peer:`")
        if self._member is None or self._schema is None:
            site = Site.of(PeerConfig.load(self._path))
            check_own_training(site.federation, "the caller of join")
            schema = _described(model, site)
            model.check_in_place(schema)
            self._schema = schema
            buffers = buffers_of(schema, model.given)
            self._member = member = self._stack.enter_context(membership(site, schema, buffers=buffers))
            self._saved = find_update(site.config.out)
            try:
                task = member.peer.begin()
            except RunEndedError:
                self._base = _last_of(member)
                raise
            self._base = member.model()
            self.round = member.peer.progress.state.round if task is None else task.round
        elif _described(model, self._member.site) != self._schema:
            raise InvalidInputError("the model has other parameters than in the average before")
        return self._member, self._schema


def _last_of(member: Membership) -> Array | None:
    """Return the last average of a run that an operator has ended, if it is here or comes soon."""
    peer, deadline = member.peer, time.monotonic() + ENDED_SECONDS
    while peer.progress.applied != peer.progress.state.model and time.monotonic() < deadline:
        time.sleep(0.05)
    return member.model()


def _described(model: Container, site: Site) -> Schema:
    training = site.federation.training
    return model.schema(integers=training.integers, local=training.local)


def join(path: str | Path) -> JoinedPeer:
    """Join the federation that ``peer.toml`` names, in the spirit of torch.distributed's all_reduce.

    Parameters
    ----------
    path
        Of the site's ``peer.toml`` (docs/network.md).

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
