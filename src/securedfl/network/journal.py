"""What a peer must not forget: the random name of its state folder, the log's first state, and what it wrote down."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from securedfl.errors import RunFolderError
from securedfl.network.core.messages import Decided, Record, Stored, decode_record, encode
from securedfl.network.core.state import Rules, State, reduce
from securedfl.storage import OWNER, Records, cannot_write, damaged, make_folder, read_records, write_bytes

MOST_RECORDS = 2000
"""Records after which the journal is written anew."""
AGAIN = "{mend}, then start this peer again"


class OtherRunError(RunFolderError):
    """A state folder is of another run than the files say."""


class Journal:
    """The journal of a state folder, held against other processes.

    Parameters
    ----------
    folder
        Where it is kept.
    genesis
        The state before the first entry, as the federation's files say it now.

    Attributes
    ----------
    incarnation
        The random name of the folder. Whoever votes under a peer's name from another folder is another.
    genesis
        The state before the first entry, as it was at the first start.
    """

    def __init__(self, folder: Path, genesis: State) -> None:
        make_folder(folder, AGAIN, private=True)
        with ExitStack() as stack:
            stack.callback(os.close, _locked(folder))
            self._file = Records(folder / "journal", AGAIN, mend=_mend(folder))
            stack.callback(self._file.close)
            self._read(folder, genesis)
            self._closing = stack.pop_all()

    def _read(self, folder: Path, genesis: State) -> None:
        """Read what was written before, and write it anew without what does not count any more."""
        found, self._file.found = self._file.found, []
        stored = Stored().add(*_decoded(found, folder))
        if self._may_begin_anew(stored, folder, genesis):
            # others may know the folder's name already
            stored = Stored(stored.boot if stored.boot and stored.boot.run == genesis.run else None)
            # first, because a promise never stands beside a beginning that it was not made for
            self._file.replace(encode(record) for record in stored.records(()))
            write_bytes(folder / "genesis", msgspec.msgpack.encode(genesis), AGAIN, mode=OWNER)
        self.incarnation = stored.boot.incarnation if stored.boot else secrets.token_hex(16)
        self.genesis = _genesis(folder)
        check_run(folder, self.genesis.run, genesis.run)
        self._stored, self._last = stored, Stored().add(*stored.records(()))
        self._written = len(stored.entries)
        self._file.replace(encode(record) for record in stored.records(stored.log))

    @staticmethod
    def _may_begin_anew(stored: Stored, folder: Path, genesis: State) -> bool:
        """Say whether the files may be corrected, because nothing was decided here, nor elsewhere with this vote.

        Peers whose files differ never lock. Who locked may have helped to decide the first entry: forgetting that, it
        could help to decide another one. Votes before that decide nothing.
        """
        if stored.entries:
            return False
        promise = stored.promise
        return promise is None or (promise.locked is None and _genesis(folder) != genesis)

    def hand_over(self) -> Stored:
        """Return what was written before this start; it is not kept here any longer, because logs get long."""
        stored, self._stored = self._stored, Stored()
        return stored

    def append(self, records: Sequence[Record], log: Sequence[Decided]) -> None:
        """Write records; they are on disk when this returns.

        After many of them the journal is written anew, with the log as it is kept now, which these records are part of.
        """
        self._file.append(*(encode(record) for record in records))
        self._last.add(*(record for record in records if not isinstance(record, Decided)))
        self._written += len(records)
        if self._written > MOST_RECORDS:
            self._file.replace(encode(record) for record in self._last.records(log))
            self._written = 0

    def close(self) -> None:
        """Let go of the folder."""
        self._closing.close()


def _locked(folder: Path) -> int:
    """Return the descriptor that holds a state folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, OWNER)
    except OSError as error:
        raise cannot_write(folder / "lock", error, AGAIN) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise RunFolderError(f"another process runs this peer in {folder}; stop it first") from None
    return lock


def in_use(folder: Path) -> bool:
    """Say whether a peer runs in a state folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def read_state(folder: Path, rules: Rules) -> tuple[State, State]:
    """Return what the log of a state folder says before its first entry and now; a peer may run there meanwhile."""
    if not (folder / "journal").exists():
        raise RunFolderError(f"there is no log in {folder} yet; start this site's peer with `securedfl peer` first")
    data, _ = read_records(folder / "journal", _mend(folder))
    # first, because another version may have another state, too
    stored = Stored().add(*_decoded(data, folder))
    state = genesis = _genesis(folder)
    other = damaged(folder, "journal and genesis are of different runs", _mend(folder))
    if stored.entries and stored.boot is not None and stored.boot.run != genesis.run:
        raise other
    try:
        for decided in stored.log:
            if decided.index == state.length:
                state = reduce(state, decided.entry, rules)
    except ValueError:
        # a roster of another length
        raise other from None
    return genesis, state


def check_run(folder: Path, found: str, expected: str) -> None:
    """Refuse a state folder of another run than the one that is expected, or than one that begins with these words."""
    if not f"{found} ".startswith(f"{expected} "):
        raise OtherRunError(
            f"{folder.parent} holds the state of another federation, design or model; use the federation.toml that it "
            "began with, or, for another run, choose another out in peer.toml"
        )


def look_into(folder: Path) -> str:
    """Say what is in a state folder that no peer need hold; `RunFolderError` if it is damaged."""
    if not (folder / "journal").exists():
        return "empty: the first start"
    data, _ = read_records(folder / "journal", _mend(folder))
    entries = [record for record in _decoded(data, folder) if isinstance(record, Decided)]
    return f"whole, {len(entries)} entries of the log"


def _genesis(folder: Path) -> State:
    """Read the state before the first entry."""
    try:
        return msgspec.msgpack.decode((folder / "genesis").read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError):
        raise damaged(folder, "genesis is unreadable", _mend(folder)) from None


def _mend(folder: Path) -> str:
    return f"move it away (mv {folder} {folder}.damaged) and start this peer again: the others will re-admit it"


def _decoded(data: Sequence[bytes], folder: Path) -> list[Record]:
    found = [decode_record(one) for one in data]
    records = [record for record in found if record is not None]
    if len(records) != len(found):
        raise RunFolderError(
            f"the journal in {folder} is of another version of this software; finish the run with the version that "
            "began it, at all sites, or begin another run with a new state folder"
        )
    return records
