"""What a site's peer leaves in its folder: a row for every round, certificate, ledger and summary."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from securedfl.errors import SecuredFLError
from securedfl.federation.apps.learner import Learner
from securedfl.federation.budget.account import epsilon_by_round
from securedfl.federation.gate import save_account
from securedfl.federation.methods import METHODS
from securedfl.federation.peers.config import NOT_SHARED
from securedfl.federation.peers.membership import Membership
from securedfl.federation.peers.rules import METHOD
from securedfl.federation.run_folder.files import DESIGN
from securedfl.federation.run_folder.metrics import PeerRow, Row, Tried, read_rows
from securedfl.federation.run_folder.summary import (
    Data,
    DesignSummary,
    MethodSummary,
    Samples,
    Summary,
    versions,
    write_data,
    write_summary,
)
from securedfl.network.data.averages import Averaged
from securedfl.network.peer import Peer
from securedfl.network.words import names_of
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.run_certificate import to_plain
from securedfl.storage import replacing

log = logging.getLogger("securedfl.peer")


def row_of(member: Membership, average: Averaged, *, clipped: int, **known: Any) -> PeerRow:
    """Return what this peer did in a round: what the average tells, how much was cut, and what else is known."""
    peer, plan = member.peer, member.site.plan
    clips = plan is not None or member.site.federation.training.beyond == "clip"
    bytes_in, bytes_out = peer.links.traffic
    return PeerRow(
        method=METHOD,
        round=average.round,
        average_seconds=average.seconds - average.waited,
        wait_seconds=average.waited,
        members=names_of(average.members, peer.progress.state.roster),
        attempts=average.attempts,
        tried=tuple(Tried(t.epoch, t.attempt, t.members, t.opened) for t in average.tried),
        fetched=average.fetched,
        void=average.void,
        bytes_out=bytes_out,
        bytes_in=bytes_in,
        clipped=clipped if clips else None,
        epsilon=None if plan is None else _spent(plan, peer, average.round),
        **known,
    )


def _spent(plan: Plan, peer: Peer, round: int) -> float:
    """Return epsilon after a round, from all attempts that the log tells of."""
    opened = {r: [t.members for t in tried if t.opened] for r, tried in peer.attempts.items() if r <= round}
    return max(epsilon_by_round(plan, opened).values(), default=0.0)


def data_of(learner: Learner, name: str, last: PeerRow | None = None) -> Data:
    """Return what a site holds, in numbers; how many samples an app tests on is known when it has scored."""
    held = replace(learner.held, name=name)
    if last is not None and held.test is None:
        held = replace(held, test=last.count)
    common = None if last is None or last.common is None else last.common.count
    return Data(peers=(held,), common=common, averaged=learner.schema.size)


def leave_account(member: Membership, learner: Learner | None = None) -> None:
    """Leave certificate, ledger of all attempts that the log tells of, and summary, also when the run ends early.

    Without a learner nothing is known of the site's data.
    """
    site, state, attempts = member.site, member.peer.progress.state, member.peer.attempts
    config, design = site.federation.training, site.design
    most = 1 + max((peer for tried in attempts.values() for one in tried for peer in one.members), default=0)
    try:
        if most > config.peers:
            # the ledger is of all peers that ever took part
            design = member.bringing(0).averaging.among(most).design
            config = config.model_copy(update={"peers": most})
        rows = [
            Row(method=METHOD, round=round, tried=tuple(Tried(t.epoch, t.attempt, t.members, t.opened) for t in tried))
            for round, tried in attempts.items()
        ]
        # an operator may have changed the last round
        now = config.model_copy(update={"rounds": state.settings.rounds - 1})
        certificates = save_account(site.config.out, now, design, rows, site.federation.missing, site.plans)
        done = read_rows(site.config.out, Row)
        last = next(reversed(read_rows(site.config.out, PeerRow)), None)
        samples = Samples()
        if learner is not None:
            test = learner.held.test if last is None else last.count
            samples = Samples(train=learner.samples, test=test or 0)
            write_data(site.config.out, data_of(learner, site.config.name, last))
        with replacing(site.config.out / DESIGN) as temporary:
            design.save(temporary)
        summary = Summary(
            finished=state.round >= state.settings.rounds,
            dataset=site.federation.entry or config.dataset,
            peers=len(state.roster),
            rounds=state.settings.rounds - 1,
            seed=config.seed,
            samples=samples,
            design=DesignSummary(hash=design.hash, gap=design.gap, group_size=design.group_size, method=design.method),
            methods={METHOD: MethodSummary.of(METHODS[METHOD].label, done)},
            certificate=to_plain(certificates),
            run_dir=str(site.config.out),
            versions=versions(),
            config={key: value for key, value in config.to_dict().items() if key not in NOT_SHARED},
            site=site.config.name,
            roster={str(peer.number): peer.name for peer in state.roster},
        )
        write_summary(site.config.out, summary)
    except SecuredFLError as error:  # must not hide why the run ended
        log.warning("cannot write what the run gave: %s", error)
