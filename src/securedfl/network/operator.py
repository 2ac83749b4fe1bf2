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
from securedfl.network.core.entries import Add, Ask, End, Line, Move, Remove, Renew
from securedfl.network.core.events import Tell
from securedfl.network.core.messages import Status
from securedfl.network.core.state import State
from securedfl.network.journal import in_use
from securedfl.network.wire.values import Reach, split_address
from securedfl.network.words import looked_in_words
from securedfl.storage import OWNER, write_bytes

_WISH, _ANSWER = "wish", "answer"
_LOOK = 0.2


class Wish(Struct, frozen=True):
    """What is wanted.

    Attributes
    ----------
    kind
        What to change; ``look`` changes nothing, and asks who reaches whom.
    name, address, fingerprint
        Of a peer of the roster.
    reason
        Why the run is to end.
    rounds, deadlines
        The new last round, and new deadlines by name.
    number
        Tells this wish from others.
    """

    kind: Literal["look", "stop", "settings", "add", "remove", "move", "renew"]
    name: str = ""
    address: str = ""
    fingerprint: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    reason: str = ""
    rounds: Annotated[int, Meta(ge=0)] | None = None
    deadlines: dict[Literal["train", "average", "absent", "heartbeat"], Annotated[float, Meta(gt=0)]] = {}
    number: str = msgspec.field(default_factory=lambda: secrets.token_hex(8))


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
        changes: dict[str, float] = {str(name): value for name, value in wish.deadlines.items()}
        if wish.rounds is not None:
            # round 0 is an average too
            changes["rounds"] = wish.rounds + 1
        return msgspec.structs.replace(state.settings, **changes)
    if wish.address:
        try:
            split_address(wish.address)
        except ConfigError as error:
            return str(error)
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
        self._looked, self._seen = 0.0, ""
        self.wish: Wish | None = None
        self._ask: Ask | None = None

    def new_ask(
        self, state: State, statuses: Mapping[int, Status], reaches: Callable[[], Mapping[str, Reach]]
    ) -> Ask | None:
        """Return what to ask the others for, because of a new wish; one that needs no asking is answered here."""
        wish = self.new_wish()
        if wish is None:
            return None
        if wish.kind == "look":
            found = reaches()
            linked, unfit = all(one.linked for one in found.values()), any(one.unfit for one in found.values())
            self.answer(linked, looked_in_words(found, statuses, state.roster), lost=not unfit)
            return None
        ask = ask_of(wish, state)
        if isinstance(ask, str):
            self.answer(False, ask)
            return None
        self._ask = ask
        return ask

    def answered(self, tell: Tell, text: str) -> bool:
        """Answer the wish if this is about what was asked for, and say whether it was."""
        if self._ask is None or tell.entry != self._ask or tell.what not in ("decided", "unable"):
            return False
        self._ask = None
        self.answer(tell.what == "decided", text)
        return True

    def new_wish(self) -> Wish | None:
        """Return a wish that was not there before; looks a few times per second at most."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return None
        self._looked = now
        wish = _read(self._folder / _WISH, Wish)
        if wish is None or wish.number == self._seen:
            return None
        self._seen, self.wish = wish.number, wish
        return wish

    def answer(self, granted: bool, text: str, *, lost: bool = False) -> None:
        """Say what became of the wish."""
        wish, self.wish = self.wish, None
        if wish is not None:
            answer = Answer(wish.number, granted, text, lost)
            write_bytes(self._folder / _ANSWER, msgspec.json.encode(answer), mode=OWNER)
            (self._folder / _WISH).unlink(missing_ok=True)


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
    write_bytes(folder / _WISH, msgspec.json.encode(wish), mode=OWNER)
    if not in_use(folder):
        raise PeerLostError(
            "this site's peer does not run, so nobody is asked yet. Start it with `securedfl peer`, and enough others "
            "with it: the wish stands until then, unless another one takes its place"
        )
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        answer = _read(folder / _ANSWER, Answer)
        if answer is not None and answer.number == wish.number:
            if not answer.granted:
                raise PeerLostError(answer.text) if answer.lost else ConfigError(answer.text)
            return answer.text
        time.sleep(_LOOK)
    raise PeerLostError(
        f"nothing was decided within {timeout:g} s, but the wish stands: it is decided once this site's peer runs and "
        "enough others are there (with `lying`, once more operators than may lie ask for the same)"
    )


T = TypeVar("T")


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None
