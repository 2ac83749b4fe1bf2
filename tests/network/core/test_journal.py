"""The journal of a state folder: what survives a restart."""

from __future__ import annotations

from securedfl.network import journal as journals
from securedfl.network.core.entries import End, Line, Settings
from securedfl.network.core.messages import Boot, Decided, Promise, Vote
from securedfl.network.core.state import State
from securedfl.network.journal import Journal

ROSTER = tuple(Line(number, f"p{number}", f"host{number}:1", b"key") for number in range(3))


def opened(folder, run="run"):
    journal = Journal(folder, State(run, ROSTER, Settings(1)))
    boot = journal.hand_over().boot
    count = boot.count if boot else 0
    journal.append([Boot(run, journal.incarnation, count + 1)], [])
    journal.close()
    return journal.incarnation, count


def test_the_name_of_a_folder_that_others_may_have_heard_stays(tmp_path):
    name, count = opened(tmp_path)
    assert count == 0
    assert opened(tmp_path) == (name, 1)
    other, count = opened(tmp_path, "another run")
    assert count == 0
    assert other != name


def test_a_long_journal_is_written_anew_with_the_log_as_it_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "MOST_RECORDS", 20)
    journal = Journal(tmp_path, State("run", ROSTER, Settings(1)))
    log = [Decided(index, End("why"), ()) for index in range(29)]
    for index, entry in enumerate(log):
        voted = Decided(index, entry.entry, (Vote(0, index, 0, 1, b"v"),))
        journal.append([voted, Promise(index, 0)], log[: index + 1])
    journal.close()
    again = Journal(tmp_path, State("run", ROSTER, Settings(1)))
    again.close()
    stored = again.hand_over()
    assert [entry.index for entry in stored.log] == list(range(29))
    assert not any(entry.votes for entry in stored.log[:11])
    assert stored.promise == Promise(28, 0)
    assert not again.hand_over().entries, "a long log is not kept twice"
