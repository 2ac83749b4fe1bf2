"""The journal of a state folder: what survives a restart."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from securedfl.errors import RunFolderError
from securedfl.network import journal as journals
from securedfl.network.core.entries import End, Line, Settings, Start
from securedfl.network.core.messages import Boot, Decided, Promise, Proposal, Vote
from securedfl.network.core.proofs import Log
from securedfl.network.core.state import Rules, State
from securedfl.network.journal import Journal, look_into, read_state

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


def test_a_long_log_is_written_anew_without_being_unpacked_as_a_whole(tmp_path, monkeypatch):
    """What is unpacked at once leaves holes in memory that grow with the log."""
    log = Log(64)
    for index in range(20_000):
        log.append(Decided(index, End(f"reason {index}"), ()))
    journal = Journal(tmp_path, State("run", ROSTER, Settings(1)))
    monkeypatch.setattr(journals, "MOST_RECORDS", 0)
    tracemalloc.start()
    journal.append([Promise(20_000, 0)], log)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    journal.close()
    assert (tmp_path / "journal").stat().st_size > 800_000
    assert most < 200_000


def test_a_folder_is_free_again_after_a_start_that_failed(tmp_path):
    opened(tmp_path)
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[:-1] + b"\xff" + whole)
    with pytest.raises(RunFolderError, match="damaged"):
        opened(tmp_path)
    (tmp_path / "journal").write_bytes(whole)
    assert opened(tmp_path)[1] == 1


def test_a_folder_in_which_nothing_can_be_made_is_told(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(RunFolderError, match="cannot write"):
        opened(tmp_path)


def test_a_journal_that_is_torn_anywhere_is_opened_again(tmp_path):
    opened(tmp_path)
    opened(tmp_path)
    whole = (tmp_path / "journal").read_bytes()
    for end in range(len(whole)):
        for rest in (b"", bytes(len(whole) - end), bytes(5000)):
            (tmp_path / "journal").write_bytes(whole[:end] + rest)
            assert opened(tmp_path)[1] in (0, 1, 2)


@pytest.mark.parametrize(("run", "peers", "boots"), [("run", 2, False), ("another run", 3, True)])
def test_a_log_that_does_not_fit_its_genesis_is_told_with_the_folder(tmp_path, run, peers, boots):
    journal = Journal(tmp_path, State("run", ROSTER, Settings(1)))
    boot = [Boot("run", journal.incarnation, 1)] if boots else []
    journal.append([*boot, Decided(0, Start(("a", "b", "c")), ())], [])
    journal.close()
    assert read_state(tmp_path, Rules())[1].length == 1
    (tmp_path / "genesis").write_bytes(msgspec.msgpack.encode(State(run, ROSTER[:peers], Settings(1))))
    with pytest.raises(RunFolderError, match=f"{tmp_path} is damaged .*different runs.*move it away"):
        read_state(tmp_path, Rules())


def test_a_folder_in_the_place_of_the_journal_is_told(tmp_path):
    (tmp_path / "journal").mkdir()
    for look in (lambda: read_state(tmp_path, Rules()), lambda: look_into(tmp_path), lambda: opened(tmp_path)):
        with pytest.raises(RunFolderError, match=f"{tmp_path}/journal is damaged .it is a folder.; move it away"):
            look()


def test_the_folder_of_another_version_is_not_called_damaged(tmp_path):
    """Whoever moved it away, as the advice for a damaged one is, would lose the run."""
    journal = Journal(tmp_path, State("run", ROSTER, Settings(1)))
    journal.append([Boot("run", journal.incarnation, 1, version=2), Promise(0, 0)], [])
    journal.close()
    (tmp_path / "genesis").write_bytes(b"of another form")
    for read in (lambda: Journal(tmp_path, State("run", ROSTER, Settings(1))), lambda: read_state(tmp_path, Rules())):
        with pytest.raises(RunFolderError, match="of another version of this software"):
            read()


def test_files_may_be_corrected_as_long_as_nothing_was_decided(tmp_path):
    """Peers whose files differ vote on different beginnings, and none of them is locked."""

    def start(folder, genesis, *records):
        journal = Journal(folder, genesis)
        stored = journal.hand_over()
        journal.append([Boot(genesis.run, journal.incarnation, 1), *records], [])
        journal.close()
        return journal, stored

    wrong, right = State("run", ROSTER, Settings(3)), State("run", ROSTER, Settings(9))
    first, _ = start(tmp_path, wrong, Promise(0, 4))
    kept, stored = start(tmp_path, wrong)
    assert (kept.incarnation, stored.promise) == (first.incarnation, Promise(0, 4))
    corrected, stored = start(tmp_path, right)
    assert corrected.genesis == right
    assert stored.promise is None
    assert corrected.incarnation == first.incarnation, "a first entry that others decide may name it"
    # another model is another run, and may be corrected, too
    other, stored = start(tmp_path, State("another", ROSTER, Settings(9)), Promise(0, 1))
    assert (other.genesis.run, stored.boot) == ("another", None)
    assert other.incarnation != first.incarnation
    # who locked may have helped to decide
    begin = Start(("a", "b", "c"))
    locked, _ = start(tmp_path, wrong, Promise(0, 4, locked=Proposal(0, 0, 4, begin)))
    stays, stored = start(tmp_path, right)
    assert (stays.genesis, stays.incarnation) == (wrong, locked.incarnation)
    assert stored.promise.locked.entry == begin
    decided, _ = start(tmp_path, wrong, Decided(0, begin, ()))
    stays, _ = start(tmp_path, right)
    assert stays.genesis == wrong
    assert stays.incarnation == decided.incarnation


def test_a_crash_while_a_file_is_corrected_leaves_no_promise_beside_another_beginning(tmp_path, monkeypatch):
    wrong, right = State("run", ROSTER, Settings(3)), State("another", ROSTER, Settings(9))
    journal = Journal(tmp_path, wrong)
    journal.append([Boot("run", journal.incarnation, 1), Promise(0, 4)], [])
    journal.close()

    def crash(path, *_args, **_options):
        raise KeyboardInterrupt(path.name)

    with monkeypatch.context() as patched:
        patched.setattr(journals, "write_bytes", crash)
        with pytest.raises(KeyboardInterrupt, match="genesis"):
            Journal(tmp_path, right)
    again = Journal(tmp_path, right)
    again.close()
    assert again.genesis == right
    assert again.hand_over().promise is None
