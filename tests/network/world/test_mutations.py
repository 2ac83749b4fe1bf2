"""The world finds broken cores: each of these breaks one line, and some schedule shows it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from securedfl.network.core import state
from securedfl.network.core.conduct import Conduct
from securedfl.network.core.consensus import Consensus
from securedfl.network.core.core import Core
from securedfl.network.core.entries import Abandon, Commit
from securedfl.network.core.proofs import Proofs
from securedfl.network.core.sense import Sense
from securedfl.network.core.views import Views
from securedfl.privacy.absence import Absence
from tests.network.world.runs import run
from tests.network.world.schedule import draw

SEEDS = 400
"""From which the schedules are taken that have the faults to show it."""


def quorum_too_small(patch):
    patch.setattr(state, "quorum", lambda n, lying: (n + lying) // 2)


def votes_not_written(patch):
    patch.setattr(Core, "_write_promise", lambda core: None)


def votes_forgotten(patch):
    # written, but not read again after a restart
    patch.setattr(Consensus, "restore", lambda consensus, promise: None)


def commit_at_once(patch):
    patch.setattr(Sense, "_commit", lambda self: Commit(self.state.round, self.state.attempt))


def signatures_not_checked(patch):
    patch.setattr(Proofs, "said", lambda proofs, item, incarnation: True)


def different_results_stay(patch):
    patch.setattr(Views, "split", lambda views: False)


def new_folder_votes(patch):
    patch.setattr(Proofs, "may_vote", property(lambda proofs: proofs._mine is not None and not proofs.outdated))


def old_key_votes(patch):
    admitted = property(lambda proofs: bool(proofs._mine) and proofs._mine.incarnation in ("", proofs._incarnation))
    patch.setattr(Proofs, "may_vote", admitted)


def new_folder_shares(patch):
    made = Conduct.next

    def next_actions(conduct, views):
        own, peer = conduct.status, views.state.peer(conduct.status.peer)
        conduct.status = replace(own, incarnation=peer.incarnation if peer else "")
        done = made(conduct, views)
        conduct.status = replace(conduct.status, incarnation=own.incarnation)
        return done

    patch.setattr(Conduct, "next", next_actions)


def attempts_begun_again(patch):
    made = Conduct.__init__
    patch.setattr(Conduct, "__init__", lambda conduct, status, rules, started: made(conduct, status, rules, None))


def not_bound(patch):
    made = state.reduce

    def reduce(before, entry, rules):
        after = made(before, entry, rules)
        return replace(after, bound=()) if isinstance(entry, Abandon) else after

    patch.setattr("securedfl.network.core.core.reduce", reduce)
    patch.setattr("securedfl.network.core.proofs.reduce", reduce)
    patch.setattr("tests.network.world.world.reduce", reduce)


def nothing_repeated(patch):
    patch.setattr(Consensus, "known", lambda self: ((), ()))


def never_abandoned(patch):
    patch.setattr(Sense, "_abandon", lambda self, trouble: None)


def ballots_never_end(patch):
    patch.setattr(Sense, "timeout", lambda sense, ballot, peer: 1e9)


def nobody_fetches(patch):
    made = Conduct._result

    def result(conduct, views, done):
        found = []
        made(conduct, views, found)
        done += [action for action in found if type(action).__name__ != "Fetch"]

    patch.setattr(Conduct, "_result", result)


def blocks_not_kept(patch):
    patch.setattr(Absence, "pick", lambda absence, present, history, n: frozenset(present))
    patch.setattr(Absence, "allows", lambda absence, members, history, n: True)


def bare_entries_believed(patch):
    made = Proofs.run

    def believed(proofs, entries, stretch):
        return entries[:1] if not entries[0].votes else made(proofs, entries, stretch)

    patch.setattr(Proofs, "run", believed)


BROKEN = {
    quorum_too_small: {"too few votes", "fork"},
    votes_not_written: {"vote not on disk"},
    votes_forgotten: {"two votes", "fork"},
    commit_at_once: {"opened too early"},
    signatures_not_checked: {
        *("fork", "strange voters", "too few votes", "not agreed", "two outcomes", "stuck", "opened too early"),
    },
    new_folder_votes: {"strange voters", "two votes", "fork"},
    old_key_votes: {"not signed"},
    new_folder_shares: {"begun twice"},
    attempts_begun_again: {"begun twice"},
    not_bound: {"two totals"},
    nothing_repeated: {"stuck"},
    never_abandoned: {"stuck"},
    ballots_never_end: {"stuck"},
    different_results_stay: {"stuck"},
    nobody_fetches: {"stuck"},
    blocks_not_kept: {"told apart"},
    bare_entries_believed: {
        *("too few votes", "fork", "stuck", "two outcomes", "not agreed", "opened too early", "ConfigError"),
    },
}


FAULTS = {
    old_key_votes: "renew",
    new_folder_votes: "disk lost",
    new_folder_shares: "disk lost",
    votes_forgotten: "crash",
    signatures_not_checked: "liar",
    different_results_stay: "other sums",
    blocks_not_kept: "blocks",
}
"""What a schedule must have to show it, where that is not every one."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_world_finds_a_broken_core(broken, monkeypatch):
    broken(monkeypatch)
    for schedule in map(draw, range(SEEDS)):
        found = {"", schedule.absence, *(fault.kind for fault in schedule.faults), *("liar",) * schedule.lying}
        if FAULTS.get(broken, "") not in found:
            continue
        outcome = run(schedule)
        if outcome.kind:
            assert outcome.kind in BROKEN[broken], outcome.what
            return
    pytest.fail(f"the schedules of {SEEDS} seeds did not show it")
