"""What a run's certificates and ledger say, in words for a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from securedfl.federation.methods import label
from securedfl.federation.run_folder.files import by_method
from securedfl.federation.run_folder.reader import Run
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
    places = (run.settings, run.summary.config, run.summary.certificate, run.certificate, run.ledger)
    return any(
        place.get(key) is True
        for place in places
        if isinstance(place, Mapping)
        for key in ("allow_exposure", "exposure_allowed")
    )


def assurances(run: Run) -> list[Assurance]:
    """Return what the certificates of the run assure; what several say is told once."""
    joined: dict[tuple[object, ...], Assurance] = {}
    for method, certificate in _by_method(run.certificate or run.summary.certificate, "verdict"):
        one = _assurance(method, certificate)
        same = (one.badges, one.sentence, tuple(one.essence.items()))
        if known := joined.get(same):
            one = replace(known, method=f"{known.method}, {method}", details={**known.details, **one.details})
        joined[same] = one
    return list(joined.values())


def badges_by_method(certificate: object) -> dict[str, tuple[tuple[Badge, ...], str]]:
    """Return each method's badges and what its certificate says, from what certificate.json holds."""
    found = _by_method(certificate, "verdict")
    return {method: (badges(one), str(one.get("sentence") or "")) for method, one in found}


def remarks(run: Run) -> list[str]:
    """Return what holds for several certificates, each sentence once: over rounds, and about this run."""
    found = _by_method(run.certificate or run.summary.certificate, "verdict")
    told = [str(certificate[key]) for key in _REMARKS for _, certificate in found if certificate.get(key)]
    return list(dict.fromkeys(told))


def ledger_table(run: Run) -> Table:
    """Return what all averages together gave away, one column per method; without rows if the ledger does not say."""
    known = _by_method(run.ledger, "averages")
    columns = [_told(ledger) for _, ledger in known]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, NONE) for column in columns)] for name in names]
    return Table(["So far", *(method for method, _ in known)], rows)


def ledger_facts(run: Run) -> Mapping[str, str]:
    """Return all that the ledger holds, as words."""
    return _facts(run.ledger or {})


def _by_method(data: object, sign: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (label, entry) pairs of what a file holds; the entry of the only method is called by its protocol."""
    return [(label(name) if name else _protocol(entry), entry) for name, entry in by_method(data, sign).items()]


def _protocol(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("protocol", ""))
    return BUILT_IN[name].label if name in BUILT_IN else name


def _assurance(method: str, certificate: Mapping[str, Any]) -> Assurance:
    told = ("verdict", "sentence", "kind", *_REMARKS)
    rest = {key: value for key, value in certificate.items() if key not in told}
    if isinstance(promised := rest.pop("differential_privacy", None), Mapping):
        rest |= {f"privacy_{key}": value for key, value in promised.items() if key != "sentence"}
    # what holds over rounds is told once for all
    sentence = str(certificate.get("sentence") or "").replace(str(certificate.get("over_rounds") or ""), "").strip()
    return Assurance(method, badges(certificate), sentence, _essence(certificate), {method: _facts(rest)})


def badges(certificate: Mapping[str, Any]) -> tuple[Badge, ...]:
    """Return a certificate in two badges: what can be computed, and what the messages themselves tell."""
    verdict, masks = str(certificate["verdict"]), str(certificate.get("kind") or "")
    first = _VERDICTS.get(verdict, Badge(verdict, "warn"))
    if masks == "bounded" and verdict == "only the total":
        first = _BOUNDED
    return (first, _MASKS[masks][0]) if masks in _MASKS else (first,)


def _essence(certificate: Mapping[str, Any]) -> dict[str, str]:
    told = {}
    collusion, examined = certificate.get("collusion"), certificate.get("examined")
    if isinstance(collusion, int):
        told["Against"] = "one curious peer" if collusion == 1 else f"any {collusion} peers together"
    if "kind" in certificate:
        masks = str(certificate["kind"])
        told["Masks"] = _MASKS[masks][1] if masks in _MASKS else masks
    if isinstance(promised := certificate.get("differential_privacy"), Mapping):
        told["Differential privacy"] = _promise(promised)
    if isinstance(examined, int):
        whole = certificate.get("exhaustive") is True
        told["Examined"] = f"all {examined} cases" if whole else f"{examined} cases, not all"
    return told


def _promise(promised: Mapping[str, Any]) -> str:
    """Say epsilon now and at the end, and of what."""
    now, end, delta = (promised.get(key) for key in ("epsilon", "epsilon_at_the_end", "delta"))
    shown = " of ".join(f"{value:.3g}" for value in (now, end) if isinstance(value, int | float))
    return f"epsilon {shown or NONE} spent at delta {delta}, for each {promised.get('unit', 'record')}"


def _told(ledger: Mapping[str, Any]) -> dict[str, str]:
    averages, attempts = ledger.get("averages"), ledger.get("attempts")
    counted = str(averages) if attempts in (None, averages) else f"{averages} in {attempts} attempts"
    exposed = _peers(ledger.get("exposed_so_far"))
    computed = f"parameters of {exposed}" if exposed else "nobody's parameters"
    promised, rounds = ledger.get("differential_privacy"), ledger.get("rounds_with_messages")
    return {
        "Averages": counted if isinstance(averages, int) else NONE,
        "Any two peers met": _meetings(ledger.get("pairs_by_meetings")),
        "Worst coalition": _peers(ledger.get("coalition")) or NONE,
        "It has computed": computed if isinstance(ledger.get("exposed_so_far"), list) else NONE,
        "Smallest sum over all rounds": _smallest(
            ledger.get("smallest_sum_over_rounds"), ledger.get("coalition_over_rounds")
        ),
        "Narrowest interval of a value, on average": _interval(ledger),
        **({"Epsilon": _promise(promised)} if isinstance(promised, Mapping) else {}),
        # of a simulation that does not pass the messages of all rounds
        **({"Rounds whose messages were passed": _listed(rounds) or NONE} if isinstance(rounds, list) else {}),
    }


def _smallest(peers: object, coalition: object) -> str:
    """Say of how few peers a sum can be computed from all rounds together, and by whom."""
    if not isinstance(peers, list) or not peers:
        return NONE
    by = _peers(coalition)
    return f"of {_peers(peers)}" + (f", computed by {by}" if by else "")


def _meetings(pairs: object) -> str:
    """Say how often pairs met, from how many pairs met how often."""
    times = [int(key) for key in pairs if str(key).isdecimal()] if isinstance(pairs, Mapping) else []
    if not times:
        return NONE
    low, high = min(times), max(times)
    return (f"{low} to {high}" if low < high else str(high)) + (" time" if high == 1 else " times")


def _interval(ledger: Mapping[str, Any]) -> str:
    """Say how far messages narrow a value that never changes down, on average."""
    if ledger.get("kind") == "perfect":
        return "none: messages are uniformly random"
    width, mask = ledger.get("interval_after_all_meetings"), ledger.get("mask_width")
    if not isinstance(width, int | float):
        return NONE
    return f"{width:.3g} wide" + (f" (masks: {mask:.3g})" if isinstance(mask, int | float) else "")


def _peers(peers: object) -> str:
    if not isinstance(peers, list) or not peers:
        return ""
    return f"peer {peers[0]}" if len(peers) == 1 else f"peers {_listed(peers)}"


def _listed(numbers: list[Any], most: int = 12) -> str:
    return ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")


def _facts(data: Mapping[str, Any]) -> dict[str, str]:
    told = {_title(key): _words(value) for key, value in data.items()}
    return {key: value for key, value in told.items() if value}


def _title(key: object) -> str:
    return str(key).replace("_", " ").capitalize()


def _words(value: object, most: int = 300) -> str:
    """Return a value in words; a long one is cut, because the file itself is at hand."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        words = "; ".join(f"{_title(k).lower()} {_words(v) or 'none'}" for k, v in value.items())
    elif isinstance(value, list):
        between = " | " if any(isinstance(v, list | Mapping) for v in value) else ", "
        words = between.join(_words(v) or "none" for v in value)
    else:
        words = f"{value:.6g}" if isinstance(value, float) else str(value)
    return words if len(words) <= most else words[: most - 1] + "…"
