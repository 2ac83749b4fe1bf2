"""What a real peer leaves in its folder: the model, and what the run gave and told; also when the run ends early."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from securedfl.errors import MissingDependencyError, SecuredFLError
from securedfl.federation.config import OF_DATASETS, TrainConfig
from securedfl.federation.gate import save_account
from securedfl.federation.methods import SECURED
from securedfl.federation.peers.config import NOT_SHARED
from securedfl.federation.peers.learner import Learner
from securedfl.federation.peers.membership import Membership
from securedfl.federation.peers.update import AGAIN
from securedfl.federation.run_folder.files import DESIGN, METRICS
from securedfl.federation.run_folder.metrics import PeerRow, R, Row, read_rows
from securedfl.federation.run_folder.model import MODEL, About, save_model
from securedfl.federation.run_folder.summary import Data, Samples, Summary, write_data, write_summary
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import DamagedError, Lines, cannot_write, replacing, write_arrays

PART = 20
"""How many times as long as it took to write the account it is left alone."""

log = logging.getLogger("securedfl.peer")


def leave_model(member: Membership, learner: Learner) -> None:
    """Leave the model that all peers hold, if there is one, with what this peer has at home."""
    model, out = member.model(), member.site.config.out
    if model is not None:
        whole = learner.whole(model)
        write_arrays(out / "model.npz", whole, AGAIN)
        with suppress(MissingDependencyError):  # peers without torch need not have it
            round = member.peer.progress.state.model.round
            save_model(out / MODEL, whole, About.of(method=SECURED, round=round, recipe=learner.recipe))


def open_rows(out: Path) -> tuple[Lines, str]:
    """Open a peer's rows to add more. Rows that cannot be read are put aside first, which is told in words.

    They are mere statistics, so that they stop no peer: ledger and certificate are made of the log.
    """
    path, told = out / METRICS, ""
    try:
        read_rows(out, PeerRow)
    except DamagedError:
        # what was put aside before stays
        places = (path.with_name(f"{METRICS}.damaged" + f"-{number}" * (number > 1)) for number in itertools.count(1))
        aside = next(place for place in places if not place.exists())
        try:
            path.replace(aside)
        except OSError as refused:
            raise cannot_write(aside, refused, AGAIN) from None
        told = f"{path} is damaged, and was moved to {aside}; only reports lack the rows of earlier rounds"
        log.warning("%s", told)
    return Lines(path, AGAIN), told


class Books:
    """Keeps the account of a running peer, so that also one that is killed leaves what was spent.

    With differential privacy after every round; else as often as takes no more than a small part of the time, and at
    once if settings or roster have changed.
    """

    def __init__(self, member: Membership, learner: Learner | None = None) -> None:
        self._member, self._learner = member, learner
        self._next, self._seen = 0.0, member.peer.progress.state

    def keep(self) -> tuple[RunCertificate, ...]:
        """Write the account; return what is certified."""
        self._seen = self._member.peer.progress.state
        return keep_account(self._member, self._learner)

    def look(self) -> None:
        """Write the account if it is time."""
        now, seen, began = self._member.peer.progress.state, self._seen, time.monotonic()
        spends, changed = self._member.site.plan is not None, (now.settings, now.roster) != (seen.settings, seen.roster)
        if spends or changed or began >= self._next:
            self.keep()
            self._next = time.monotonic() + PART * (time.monotonic() - began)


def leave_account(member: Membership, learner: Learner | None = None) -> None:
    """Leave the account at the end; what keeps it from that must not hide why the run ended."""
    try:
        keep_account(member, learner)
    except SecuredFLError as error:
        log.warning("cannot write what the run gave: %s", error)


def keep_account(member: Membership, learner: Learner | None = None) -> tuple[RunCertificate, ...]:
    """Write certificate, ledger of all attempts that the log tells of, and summary; return what is certified.

    Without a learner nothing is known of the site's data.
    """
    site, state, attempts = member.site, member.peer.progress.state, member.peer.attempts
    config, design, out = site.federation.training, site.federation.design, site.config.out
    most = 1 + max((peer for tried in attempts.values() for one in tried for peer in one.members), default=0)
    if most > config.peers:
        # the ledger is of all peers that ever took part
        design = member.bringing(0).averaging.among(most).design
        config = config.model_copy(update={"peers": most})
    rows = [Row(method=SECURED, round=round, tried=tried) for round, tried in attempts.items()]
    # an operator may have changed the last round
    now = config.model_copy(update={"rounds": state.settings.rounds - 1})
    certificates = save_account(out, now, design, rows, site.federation.missing, site.plans, roster=len(state.roster))
    last = next(reversed(_rows(out, PeerRow)), None)
    samples = Samples()
    if learner is not None:
        test = learner.samples.test if last is None else last.count
        samples = Samples(train=learner.samples.train, test=test or 0)
        write_data(out, _data_of(learner, site.config.name, last))
    with replacing(out / DESIGN) as temporary:
        design.save(temporary)
    finished = state.round >= state.settings.rounds
    own = site.federation.entry is not None or learner is None
    summary = replace(
        Summary.of(out, now, design, _rows(out, Row), certificates, samples=samples, finished=finished),
        peers=len(state.roster),
        **settings_of(config, site.federation.train if own else config.to_dict()),
        site=site.config.name,
        # also those that were removed: sums of earlier rounds are about them, too
        roster={str(number): name for number, name in member.peer.names.items()},
    )
    write_summary(out, summary)
    return certificates


def _rows(out: Path, kind: type[R]) -> list[R]:
    """Return a peer's rows; none if they were damaged while it runs, which ends nothing: its next start tells."""
    try:
        return read_rows(out, kind)
    except DamagedError:
        return []


def settings_of(config: TrainConfig, given: Collection[str]) -> dict[str, Any]:
    """Return what is trained, and the settings that sites share; of those about data sets, the ``given`` ones only.

    They have defaults, which mean nothing at a site with data of its own.
    """
    left_out = NOT_SHARED - {"entry"} | {*OF_DATASETS, "dealing", "alpha"}.difference(given)
    kept = {key: value for key, value in config.to_dict().items() if key not in left_out}
    return {"dataset": config.subject if "entry" in kept or "dataset" in kept else "", "config": kept}


def _data_of(learner: Learner, name: str, last: PeerRow | None) -> Data:
    """Return what a site holds, in numbers; how many samples an app tests on is known when it has scored."""
    samples = replace(learner.samples, name=name)
    if last is not None and samples.test is None:
        samples = replace(samples, test=last.count)
    common = None if last is None or last.common is None else last.common.count
    return Data(peers=(samples,), common=common, averaged=learner.trainer.schema.size)
