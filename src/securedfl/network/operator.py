"""What an operator wants while the peer runs: left as a file in the state folder, where the peer finds it.

The folder is private to the site's user, so whoever can leave a wish there is the operator. The peer asks the others on
the operator's behalf; the log decides, and the answer is left beside the wish. A wish outlives a restart of the peer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.core.entries import Add, Ask, End, Line, Move, Remove, Renew, Seconds, Settings, Text, same_wish
from securedfl.network.core.events import Command, Tell
from securedfl.network.core.messages import Status
from securedfl.network.core.state import Rules, State, refusal
from securedfl.network.journal import in_use
from securedfl.network.wire.values import Reach, split_address
from securedfl.network.words import entry_in_words, looked_in_words
from securedfl.storage import OWNER, look_at_types, write_bytes

LAST_ROUND = 2**31 - 1
"""The highest round that the log can count to."""
LEAST_HEARTBEAT, MOST_HEARTBEAT = 0.05, 600.0
"""Seconds: more often is nothing but load, and a peer is missed after four of them."""
_LOOK = 0.2
TAKE_BACK = "`securedfl withdraw PEER.toml` takes it back"
TAKEN_BACK = "what was asked for at this site is taken back"
NOTHING_WAITS = "nothing that was asked for at this site waits for a decision"
_FORGOTTEN = 3600.0
"""Seconds after which nobody waits for an answer any more."""


class Wish(Struct, frozen=True):
    """What is wanted.

    Attributes
    ----------
    kind
        What to change; ``look`` changes nothing, and asks who reaches whom; ``nothing`` takes the wish before it back.
    name, address, fingerprint
        Of a peer of the roster.
    reason
        Why the run is to end.
    rounds, deadlines
        The new last round, and new deadlines by name.
    number
        Tells this wish from others.
    """

    kind: Literal["look", "nothing", "stop", "settings", "add", "remove", "move", "renew"]
    name: Text = ""
    address: Text = ""
    fingerprint: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    reason: Text = ""
    rounds: Annotated[int, Meta(ge=0, le=LAST_ROUND)] | None = None
    deadlines: dict[Literal["train", "average", "absent", "heartbeat"], Seconds] = {}
    number: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")] = msgspec.field(default_factory=lambda: secrets.token_hex(8))

    @property
    def file(self) -> str:
        """Where it lies in the state folder: who looks takes nobody's wish away."""
        return "look" if self.kind == "look" else "wish"

    def upon(self, settings: Settings) -> Settings:
        """Return settings with what is wanted of them."""
        changes: dict[str, float] = {str(name): value for name, value in self.deadlines.items()}
        if self.rounds is not None:
            # round 0 is an average too
            changes["rounds"] = self.rounds + 1
        return msgspec.structs.replace(settings, **changes)


class Answer(Struct, frozen=True):
    """What became of a wish; ``lost`` says that it is not granted because others cannot be reached."""

    number: str
    granted: bool
    text: str
    lost: bool = False


def ask_of(wish: Wish, state: State) -> Ask | str:
    """Return what to ask the others for, or why there is nothing to ask."""
    if not state.length:
        ends = wish.kind == "stop"
        mend = "end each peer with Ctrl-C" if ends else "change federation.toml at all sites, and start all peers again"
        return f"the run has not begun here yet; {mend}"
    if wish.kind == "stop":
        return End(wish.reason)
    if wish.kind == "settings":
        beat = wish.upon(state.settings).heartbeat
        if not LEAST_HEARTBEAT <= beat <= MOST_HEARTBEAT:
            return f"a heartbeat takes {LEAST_HEARTBEAT:g} to {MOST_HEARTBEAT:g} seconds, not {beat:g}"
        return wish.upon(state.settings)
    if wish.address:
        try:
            port = split_address(wish.address)[1]
        except ConfigError as error:
            return str(error)
        if not port:
            return f"the address {wish.address} has port 0, which others cannot dial"
    key = bytes.fromhex(wish.fingerprint)
    if wish.kind == "add":
        return Add(Line(state.next_number, wish.name, wish.address, key))
    found = next((peer.number for peer in state.roster if peer.name == wish.name), None)
    if found is None:
        return f"{wish.name!r} is not in the roster; it lists {', '.join(peer.name for peer in state.roster)}"
    if wish.kind == "remove":
        return Remove(found)
    return Move(found, wish.address) if wish.kind == "move" else Renew(found, key)


class Desk:
    """The peer's side: finds wishes and leaves answers.

    Parameters
    ----------
    folder
        The state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked, self._seen = 0.0, dict[str, str]()
        self.wish: Wish | None = None
        self._ask: Ask | None = None

    def new_command(
        self, state: State, statuses: Mapping[int, Status], reaches: Callable[[], Mapping[str, Reach]]
    ) -> Command | None:
        """Return what to ask the others for, because of a new wish; one that needs no asking is answered here.

        Looks a few times per second at most.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return None
        self._looked = now
        if look := self._new("look"):
            found = reaches()
            linked, unfit = all(one.linked for one in found.values()), any(one.unfit for one in found.values())
            text = looked_in_words(found, statuses, state.roster)
            self._answer(look, Answer(look.number, linked, text, lost=not unfit))
        wish = self._new("wish")
        if wish is None:
            return None
        if wish.kind == "nothing":
            text = TAKEN_BACK if self._ask is not None else NOTHING_WAITS
            self.wish, self._ask = wish, None
            self.answer(True, text)
            return Command(None)
        self.wish, ask = wish, ask_of(wish, state)
        if isinstance(ask, str):
            self.answer(False, ask)
            return None
        self._ask = ask
        return Command(ask)

    def answered(self, tell: Tell, text: str) -> bool:
        """Answer the wish if this is about what was asked for, and say whether it was."""
        if self._ask is None or self.wish is None or tell.what not in ("decided", "unable"):
            return False
        if isinstance(tell.entry, Settings) and isinstance(self._ask, Settings):
            # others may have changed other settings meanwhile
            if tell.what == "decided" and self.wish.upon(tell.entry) != tell.entry:
                return False
        elif not same_wish(tell.entry, self._ask):
            return False
        self._ask = None
        self.answer(tell.what == "decided", text)
        return True

    def answer(self, granted: bool, text: str) -> None:
        """Say what became of the wish."""
        wish, self.wish = self.wish, None
        if wish is not None:
            self._answer(wish, Answer(wish.number, granted, text))

    def _new(self, file: str) -> Wish | None:
        """Return a wish that was not there before."""
        wish = _read(self._folder / file, Wish)
        if wish is None or wish.file != file or wish.number == self._seen.get(file):
            return None
        self._seen[file] = wish.number
        return wish

    def _answer(self, wish: Wish, answer: Answer) -> None:
        for old in self._folder.glob("answer-*"):
            # of commands that were ended before they read it; the others remove theirs at any moment
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > _FORGOTTEN:
                    old.unlink()
        write_bytes(self._folder / f"answer-{wish.number}", msgspec.json.encode(answer), mode=OWNER)
        now = _read(self._folder / wish.file, Wish)
        if now is not None and now.number == wish.number:
            (self._folder / wish.file).unlink(missing_ok=True)


def withdraw(folder: Path, timeout: float) -> str:
    """Take back what was asked for at this site and is not decided, and say so; its peer need not run."""
    if in_use(folder):
        return want(folder, Wish("nothing"), timeout)
    waits = pending(folder) is not None
    (folder / "wish").unlink(missing_ok=True)
    return TAKEN_BACK if waits else NOTHING_WAITS


def pending(folder: Path) -> Wish | None:
    """Return what was asked for at this site and is not decided, if anything."""
    wish = _read(folder / "wish", Wish)
    return None if wish is None or wish.kind == "nothing" else wish


def pending_in_words(folder: Path, state: State) -> str:
    """Return what was asked for at this site and is not decided, and how to take it back; "" if nothing was."""
    wish = pending(folder)
    if wish is None:
        return ""
    ask = ask_of(wish, state)
    return f"{ask if isinstance(ask, str) else entry_in_words(ask, state.roster)}; {TAKE_BACK}"


def why_not(wish: Wish, state: State, name: str, rules: Rules) -> str:
    """Return why what the operator of a site of this name wants cannot be, as far as its own log tells, or ""."""
    ask = ask_of(wish, state)
    if isinstance(ask, str):
        return ask
    if all(peer.name != name for peer in state.roster):
        return f"{name} was removed from the roster, so that nobody heeds what is asked for there"
    # the roster changes between attempts, and the running one will have ended by then
    return refusal(msgspec.structs.replace(state, phase="idle"), ask, rules)


def want(folder: Path, wish: Wish, timeout: float) -> str:
    """Leave a wish for the peer that runs in a state folder, and wait for the answer.

    Raises
    ------
    ConfigError
        The log does not allow it.
    PeerLostError
        The peer does not run, or nothing was decided within so many seconds, and the wish stands; or it looked for the
        others and cannot reach one.
    """
    if not (folder / "journal").exists():
        raise PeerLostError(f"no peer has been started in {folder}; start it with `securedfl peer`, then ask again")
    left = msgspec.json.encode(wish)
    try:
        msgspec.json.decode(left, type=Wish)
    except msgspec.ValidationError as error:
        raise ConfigError(f"nobody can be asked for that, because it is out of bounds: {error}") from None
    before = pending(folder) if wish.file == "wish" else None
    write_bytes(folder / wish.file, left, mode=OWNER)
    if not in_use(folder):
        replaced = " It takes the place of what was asked for before." if before else ""
        raise PeerLostError(
            "this site's peer does not run, so nobody is asked yet. Start it with `securedfl peer`, and enough others "
            f"with it: the wish stands until then, unless another one takes its place. {TAKE_BACK}.{replaced}"
        )
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        # before the answer, which may come in between
        other = _read(folder / wish.file, Wish)
        answer = _read(folder / f"answer-{wish.number}", Answer)
        if answer is not None:
            (folder / f"answer-{wish.number}").unlink(missing_ok=True)
            if not answer.granted:
                raise PeerLostError(answer.text) if answer.lost else ConfigError(answer.text)
            return answer.text
        if other is not None and other.number != wish.number:
            raise PeerLostError("another wish took the place of this one before it was decided; ask again after that")
        time.sleep(_LOOK)
    if wish.kind == "look":
        raise PeerLostError(f"this site's peer did not answer within {timeout:g} s; is its process stopped, or busy?")
    raise PeerLostError(
        f"nothing was decided within {timeout:g} s, but the wish stands, also when the peer is started again: it is "
        "decided once enough others are there (with `lying`, once more operators than may lie ask for the same). "
        f"{TAKE_BACK}"
    )


T = TypeVar("T")


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


look_at_types(Wish, Answer)
