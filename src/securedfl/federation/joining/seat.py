"""The seat of a site in a federation whose averages somebody else's training loop asks for; one process holds it."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from securedfl.containers import Container
from securedfl.errors import ConfigError, InvalidInputError, SecuredFLError
from securedfl.federation.peers.config import PeerConfig
from securedfl.federation.peers.learner import check_own_training
from securedfl.federation.peers.leaving import Books, leave_account, open_rows
from securedfl.federation.peers.membership import Membership, membership
from securedfl.federation.peers.site import Site
from securedfl.federation.peers.update import forget_update
from securedfl.federation.run_folder.metrics import to_line
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.network.data.averages import Averaged, RunEndedError
from securedfl.parameters import Array, Named, Schema
from securedfl.storage import Lines

ENDED_SECONDS = 5.0
"""How long a peer that comes to an ended run waits for its last average."""


class Seat:
    """A running peer and what it keeps between averages.

    Attributes
    ----------
    round, last
        See `JoinedPeer`.
    home
        What stayed at home when this site averaged last; None if it never did.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack, self._left = ExitStack(), False
        self._member: Membership | None = None
        self._schema: Schema | None = None
        self.round = 0
        self.last: Averaged | None = None
        self.home: Any = None
        self._metrics: Lines | None = None
        self._books: Books | None = None
        self._since = 0.0

    @property
    def base(self) -> Array | None:
        """The model that all peers hold; None before the first average."""
        return None if self._member is None else self._member.base

    @property
    def over(self) -> bool:
        """Whether all averages of the run are done."""
        return self._member is not None and self._member.peer.progress.state.over

    @property
    def starts_in_private(self) -> bool:
        """Whether the first average is still to be made, of models that must not depend on data."""
        return self._member is not None and self._member.site.plan is not None and self.base is None

    def join(self, model: Container) -> Schema:
        """Join on first use; later check that the model is still the same. Return what is averaged of it."""
        if self._left:
            raise ConfigError("this peer has left the federation; average within `with securedfl.join(...) as peer:`")
        if self._member is None or self._schema is None:
            site = Site.of(PeerConfig.load(self._path))
            check_own_training(site.federation, "the caller of join")
            schema = _described(model, site)
            model.check_in_place(schema)
            self._schema = schema
            joined = membership(site, schema, buffers_of(schema, model.given))
            self._member = member = self._stack.enter_context(joined)
            self._metrics, _ = open_rows(site.config.out)
            self._stack.callback(self._metrics.close)
            self._books = Books(member)
            self._stack.callback(leave_account, member)
            self._since = time.monotonic()
            self.home = None if member.kept is None else member.kept.state
            try:
                self.round = member.begin()
            except RunEndedError:
                member.base = _last_of(member)
                raise
            except SecuredFLError:
                # it never took part, as where models differ: another call joins anew
                self._member = None
                self._stack.close()
                raise
            self._books.keep()
        elif _described(model, self._member.site) != self._schema:
            raise InvalidInputError("the model has other parameters than in the average before")
        return self._schema

    def average(self, vector: Array, weight: float, home: Named) -> None:
        """Average with the others; `base` is the outcome then."""
        assert self._member is not None  # noqa: S101 - for the type checker
        assert self._metrics is not None  # noqa: S101
        assert self._books is not None  # noqa: S101
        trained = time.monotonic() - self._since
        update = self._member.bring(self.round, weight, lambda: (vector, home, None))
        if update is not None:
            self.home = update.state
        self.last = self._member.average(self.round)
        self.round = self.last.round + 1
        self._metrics.append(to_line(self._member.row(self.last, trained)))
        self._books.look()
        self._since = time.monotonic()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the federation, with a word to the others."""
        if kind is None and self._member is not None:
            peer = self._member.peer
            with suppress(RunEndedError):
                peer.linger(0.0)
                if peer.progress.done and not peer.progress.state.ended:
                    forget_update(self._member.site.config.out, peer.progress.state.round)
        self._left = True
        self._stack.__exit__(kind, error, trace)


def _last_of(member: Membership) -> Array | None:
    """Return the last average of a run that an operator has ended, if it is here or comes soon."""
    peer, deadline = member.peer, time.monotonic() + ENDED_SECONDS
    while peer.progress.applied != peer.progress.state.model and time.monotonic() < deadline:
        time.sleep(0.05)
    return member.model()


def _described(model: Container, site: Site) -> Schema:
    training = site.federation.training
    return model.schema(integers=training.integers, local=training.local)
