"""What a run's certificates and ledger say, in words for a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from securedfl.federation.methods import label
from securedfl.federation.run_folder.reader import Run
from securedfl.privacy.account import Account
from securedfl.privacy.budget.words import PrivacyPromise
from securedfl.privacy.certificate import Certificate
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.protocols.protocol import BUILT_IN
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE


@dataclass(frozen=True)
class Badge:
    """A few words in a colour: good by default, ``warn`` or ``bad``."""

    words: str
    kind: str = ""


_VERDICTS = {
    "only the total": Badge("✓ Only the total can be learned"),
    "partial sums": Badge("⚠ Partial sums can be learned", "warn"),
    "exposed": Badge("✗ Parameters can be exposed", "bad"),
}
_BOUNDED = Badge("⚠ Only the total exactly, but messages tell more", "warn")
"""Instead of the first verdict where masks are bounded: intervals are no exact values, and no secrets either."""
_SINGLED_OUT = Badge("⚠ Over rounds one peer's update may be told", "warn")
"""Beside the verdict, which is about one average: all of them together may tell more."""
_MASKS = {
    "perfect": (Badge("perfect masks"), "uniformly random: a message says nothing"),
    "bounded": (Badge("bounded masks", "warn"), "bounded: a message narrows a value down to an interval"),
    "none": (Badge("no masks", "bad"), "none: parameters are sent as they are"),
}
_REMARKS = ("over_rounds", "remark")
"""What a certificate says about rounds and about the run; mostly the same for all methods."""


@dataclass(frozen=True)
class Assurance:
    """What a certificate assures: in badges, its own sentence, what a reader asks first, and all else.

    ``method`` names several methods if their certificates say the same; ``details`` are by method.
    """

    method: str
    badges: tuple[Badge, ...]
    sentence: str
    essence: Mapping[str, str]
    details: Mapping[str, Mapping[str, str]]


def exposure_allowed(run: Run) -> bool:
    """Tell whether the run was started although its certificate did not meet its own demand."""
    certified = any(one.allow_exposure for one in run.certificates.values())
    return certified or any(place.get("allow_exposure") is True for place in (run.settings, run.summary.config))


def assurances(run: Run) -> list[Assurance]:
    """Return what the certificates of the run assure; what several say is told once."""
    joined: dict[tuple[object, ...], Assurance] = {}
    for name, certificate in run.certificates.items():
        one = _assurance(_called(name, certificate.certificate.protocol), certificate)
        account = run.ledgers.get(name)
        if account is not None and len(account.smallest_sum_over_rounds) == 1:
            one = _singled_out(run, one, account)
        same = (one.badges, one.sentence, tuple(one.essence.items()))
        if known := joined.get(same):
            one = replace(known, method=f"{known.method}, {one.method}", details={**known.details, **one.details})
        joined[same] = one
    return list(joined.values())


def _singled_out(run: Run, one: Assurance, account: Account) -> Assurance:
    """Return an assurance with the warning that all rounds together tell the update of a single peer."""
    who, whose = (_peers(run, peers) for peers in (account.coalition_over_rounds, account.smallest_sum_over_rounds))
    told = (
        f"{who} may compute the update of {whose} from totals with and without it, up to how much the updates of the "
        "others changed between those rounds"
    )
    return replace(one, badges=(*one.badges, _SINGLED_OUT), essence={**one.essence, "Over rounds": told})


def badges_by_method(certificates: Mapping[str, RunCertificate]) -> dict[str, tuple[tuple[Badge, ...], str]]:
    """Return each method's badges and what its certificate says."""
    return {
        _called(name, one.certificate.protocol): (badges(one.certificate), one.sentence)
        for name, one in certificates.items()
    }


def remarks(run: Run) -> list[str]:
    """Return what holds for several certificates, each sentence once: over rounds, and about this run."""
    told = [getattr(one, key) for key in _REMARKS for one in run.certificates.values()]
    return list(dict.fromkeys(filter(None, told)))


def ledger_table(run: Run) -> Table:
    """Return what all averages together gave away, one column per method."""
    columns = {_called(name, account.protocol): _told(run, account) for name, account in run.ledgers.items()}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    return Table(
        ["So far", *columns], [[name, *(column.get(name, NONE) for column in columns.values())] for name in names]
    )


def _called(method: str, protocol: str) -> str:
    """Return the name that people read; that of the only private method, which has none here, is its protocol's."""
    return label(method) if method else BUILT_IN[protocol].label if protocol in BUILT_IN else protocol


def _assurance(method: str, one: RunCertificate) -> Assurance:
    told = ("verdict", "sentence", "kind", "differential_privacy", *_REMARKS)
    rest = {key: value for key, value in one.to_dict().items() if key not in told}
    if one.promise is not None:
        promised = one.promise.to_dict("sentence", "epsilon_by_round")
        rest |= {f"privacy_{key}": value for key, value in promised.items()}
    # what holds over rounds is told once for all
    sentence = one.sentence.removesuffix(one.over_rounds).strip()
    return Assurance(method, badges(one.certificate), sentence, _essence(one), {method: _facts(rest)})


def badges(certificate: Certificate) -> tuple[Badge, ...]:
    """Return a certificate in two badges: what can be computed, and what the messages themselves tell."""
    bounded = certificate.kind == "bounded" and certificate.verdict == "only the total"
    return (_BOUNDED if bounded else _VERDICTS[certificate.verdict], _MASKS[certificate.kind][0])


def _essence(one: RunCertificate) -> dict[str, str]:
    collusion, examined = one.certificate.collusion, one.certificate.examined
    return {
        "Against": "one curious peer" if collusion == 1 else f"any {collusion} peers together",
        "Masks": _MASKS[one.certificate.kind][1],
        **({} if one.promise is None else {"Differential privacy": _promise(one.promise)}),
        "Examined": f"all {examined} cases" if one.certificate.exhaustive else f"{examined} cases, not all",
    }


def _promise(promise: PrivacyPromise) -> str:
    """Say epsilon now and at the end, and of what."""
    known = [value for value in (promise.epsilon, promise.epsilon_at_the_end) if value is not None]
    shown = " of ".join(f"{value:.3g}" for value in known)
    return f"epsilon {shown or NONE} spent at delta {promise.delta}, for each {promise.unit}"


def _told(run: Run, account: Account) -> dict[str, str]:
    averages, attempts, rounds = account.averages, account.attempts, account.rounds_with_messages
    exposed, promise = _peers(run, account.exposed_so_far), account.differential_privacy
    smallest, by = (_peers(run, peers) for peers in (account.smallest_sum_over_rounds, account.coalition_over_rounds))
    return {
        "Averages": str(averages) if attempts == averages else f"{averages} in {attempts} attempts",
        "Any two peers met": _meetings(account.pairs_by_meetings),
        "Worst coalition": _peers(run, account.coalition) or NONE,
        "It has computed": f"parameters of {exposed}" if exposed else "nobody's parameters",
        # of how few peers a sum can be computed from all rounds together
        "Smallest sum over all rounds": f"of {smallest}, computed by {by}" if smallest else NONE,
        "Narrowest interval of a value, on average": _interval(account),
        **({} if promise is None else {"Epsilon": _promise(promise)}),
        # of a simulation that does not pass the messages of all rounds
        **({} if rounds is None else {"Rounds whose messages were passed": _listed(rounds) or NONE}),
    }


def _meetings(pairs: Mapping[str, int]) -> str:
    """Say how often pairs met, from how many pairs met how often."""
    times = list(map(int, pairs))
    if not times:
        return NONE
    low, high = min(times), max(times)
    return (f"{low} to {high}" if low < high else str(high)) + (" time" if high == 1 else " times")


def _interval(account: Account) -> str:
    """Say how far messages narrow a value that never changes down, on average."""
    if account.kind == "perfect":
        return "none: messages are uniformly random"
    width, mask = account.interval_after_all_meetings, account.mask_width
    if width is None:
        return NONE
    return f"{width:.3g} wide" + ("" if mask is None else f" (masks: {mask:.3g})")


def _peers(run: Run, peers: Sequence[int]) -> str:
    """Return peers by their names, where the folder knows any of them, else by their numbers."""
    names = [run.peer(peer) for peer in peers]
    if names != list(map(str, peers)):
        return _listed([f"peer {name}" if name == str(peer) else name for peer, name in zip(peers, names, strict=True)])
    return f"peer{'s' * (len(peers) > 1)} {_listed(peers)}" if peers else ""


def _listed(given: Sequence[object], most: int = 12) -> str:
    return ", ".join(map(str, given[:most])) + (", …" if len(given) > most else "")


def _facts(data: Mapping[str, Any]) -> dict[str, str]:
    told = {_title(key): _words(value) for key, value in data.items()}
    return {key: value for key, value in told.items() if value}


def _title(key: object) -> str:
    return str(key).replace("_", " ").capitalize()


def _words(value: object, most: int = 300) -> str:
    """Return a value in words; a long one is cut, because the file itself is at hand."""
    if value is None or value in ({}, [], ()):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        words = "; ".join(f"{_title(k).lower()} {_words(v) or 'none'}" for k, v in value.items())
    elif isinstance(value, list | tuple):
        between = " | " if any(isinstance(v, list | tuple | Mapping) for v in value) else ", "
        words = between.join(_words(v) or "none" for v in value)
    else:
        words = f"{value:.6g}" if isinstance(value, float) else str(value)
    return words if len(words) <= most else words[: most - 1] + "…"
