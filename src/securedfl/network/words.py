"""What the core tells, in words for logs and people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from securedfl.network.core import entries as en
from securedfl.network.core.entries import Entry, Line
from securedfl.network.core.events import Tell
from securedfl.network.core.messages import Status
from securedfl.network.core.state import majority
from securedfl.network.letters import Ways
from securedfl.network.wire import frames
from securedfl.network.wire.values import Reach

UNADMITTED = "came with a new state folder, and waits to be admitted"


def names_of(numbers: Iterable[int], roster: Iterable[Line]) -> tuple[str, ...]:
    """Return the names of peers."""
    known = {peer.number: peer.name for peer in roster}
    return tuple(known.get(number, f"peer {number}") for number in numbers)


def is_bad(tell: Tell) -> bool:
    """Say whether an operator should look at what is told."""
    bad = ("lost", "refused", "unable", "odd", "unfit", "late")
    return tell.what in bad or (tell.what == "apart" and bool(tell.peers))


def in_words(tell: Tell, roster: Iterable[Line]) -> str:
    """Return what is told as a sentence."""
    names = names_of(tell.peers, roster)
    listed = ", ".join(names)
    match tell.what:
        case "decided":
            return "" if tell.entry is None else entry_in_words(tell.entry, roster)
        case "waiting":
            return f"waiting: {tell.detail} ({listed})" if tell.detail else "nobody is waited for any more"
        case "lost":
            return f"{listed} is lost: nothing is heard from it"
        case "back":
            return f"{listed} is there"
        case "apart":
            pairs = ", ".join(f"{one} and {other}" for one, other in zip(names[::2], names[1::2], strict=True))
            return (
                f"no link between {pairs}; `securedfl check` says why"
                if pairs
                else "all peers that are there hear each other"
            )
        case "refused":
            return f"refused from {listed}: {tell.detail}"
        case "odd":
            return (
                f"{tell.detail}: members came to different results, {listed} not to that of most; somebody sends other "
                "sums to some than to others, or lies about its result"
            )
        case "late":
            return (
                f"{tell.detail} goes on without {listed}, which was not ready within `train` seconds; `securedfl "
                "extend PEER.toml --train SECONDS` gives all more time"
            )
        case "left out":
            return (
                "this site takes no part for now: who was missing, or is new, comes back with a whole block of peers "
                '(absence = "blocks", docs/guides/privacy.md)'
            )
        case "asked":
            wish = "" if tell.entry is None else entry_in_words(tell.entry, roster)
            return f"the operator of {listed} wants this, which counts when enough others ask for the same: {wish}"
        case "unfit":
            return f"{listed} cannot be reached: {tell.detail}"
        case "unable":
            return f"what was asked for is not possible: {tell.detail}"
        case "stranger":
            return f"{listed} came with another state folder; it takes part once the others have admitted it"


def entry_in_words(entry: Entry, roster: Iterable[Line]) -> str:
    """Return an entry of the log as a sentence, harmless for logs and screens whatever names and reasons hold."""
    return frames.text(_entry_in_words(entry, roster).encode())


def _entry_in_words(entry: Entry, roster: Iterable[Line]) -> str:
    known = tuple(roster)

    def listed(*numbers: int) -> str:
        return ", ".join(names_of(numbers, known))

    match entry:
        case en.Start():
            return "the log begins: all peers were there"
        case en.Begin(round, attempt, members):
            return f"round {round}, attempt {attempt} begins with {listed(*members)}"
        case en.Commit(round, attempt):
            return f"round {round}, attempt {attempt}: all have shared, sums may be opened"
        case en.Without(round, _, lost):
            return f"round {round}: finishing without {listed(*lost)}"
        case en.Done(round, _, _):
            return f"round {round} is done"
        case en.Abandon(round, attempt):
            return f"round {round}, attempt {attempt} is given up"
        case en.Void(round):
            return f"round {round} is void: it gives no average, and the model stays"
        case en.Settings():
            deadlines = ", ".join(
                f"{name} {getattr(entry, name):g} s" for name in ("train", "average", "absent", "heartbeat")
            )
            return f"settings changed: the last round is {entry.rounds - 1}; deadlines: {deadlines}"
        case en.End(reason):
            return f"an operator ended the run: {reason}"
        case en.Add(peer):
            where = f"at {peer.address}" if peer.address else "and only dials out"
            return f"{peer.name} joins the roster, {where}, with the fingerprint {peer.key.hex()}"
        case en.Remove(number):
            return f"{listed(number)} leaves the roster"
        case en.Move(number, address):
            return f"{listed(number)} is at {address} now" if address else f"{listed(number)} only dials out now"
        case en.Renew(number, key):
            return f"{listed(number)} has a new key, with the fingerprint {key.hex()}"
        case en.Admit(number, _):
            return f"{listed(number)} is admitted with a new state folder"


def ways_in_words(ways: Mapping[str, str]) -> str:
    """Return whom a peer has a link to; each with whom it goes through, if anybody."""
    listed = [f"{name} through {through}" if through else f"{name} directly" for name, through in sorted(ways.items())]
    return ", ".join(listed) or "nobody"


def looked_in_words(reaches: Mapping[str, Reach], statuses: Mapping[int, Status], roster: Sequence[Line]) -> str:
    """Return how a peer reaches the others, whom those hear, and how many can admit somebody who waits for it."""
    # those that came before this site had the log are there, and may not be admitted; so may this site itself
    known = [(peer, statuses[peer.number].incarnation) for peer in roster if peer.number in statuses]
    other = {peer.name for peer, folder in known if peer.incarnation not in ("", folder)}
    outside = not other <= reaches.keys()
    text = [f"links to {ways_in_words(Ways.of(reaches).peers)}"]
    text += [f"this site {UNADMITTED}"] if outside else []
    text += [f"no link to {name}: {one.reason}" for name, one in sorted(reaches.items()) if not one.linked]
    for peer in roster:
        # what those said last from whom nothing is heard may be long ago
        if peer.name in reaches and reaches[peer.name].linked and peer.number in statuses:
            heard = names_of(statuses[peer.number].reaches, roster)
            text.append(f"{peer.name} hears {', '.join(heard) or 'nobody'}")
    if outside or any(one.reason.endswith(UNADMITTED) for one in reaches.values()):
        voters = [peer for peer in roster if peer.incarnation]
        here = sum(p.name not in other and (p.name not in reaches or reaches[p.name].linked) for p in voters)
        text.append(_admitting(majority(len(voters), 0), len(voters), here))
    return "; ".join(text)


def _admitting(enough: int, voters: int, here: int) -> str:
    """Return how many must admit a peer, and how many can; where some may lie it may take more of them."""
    told = f"at least {enough} of {voters} peers must be there to admit anybody, and "
    if here >= enough:
        return f"{told}{here} are"
    return (
        f"{told}only {here} {'is' if here == 1 else 'are'}: start the others with the state folders that they had; if "
        "those are lost, this run is over, and another one begins from the model of a site that has it"
    )
