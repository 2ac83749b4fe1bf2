"""The report's section on privacy: what the run's certificate and ledger say, and a warning if they were overruled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securedfl.federation.run_folder.reader import Run
from securedfl.reporting import parts
from securedfl.reporting.account import ledger_table
from securedfl.reporting.methods import label

_PROTOCOLS = {
    "grouped": "SecureD-FL",
    "shares": "SecureD-FL shares",
    "plain": "FedAvg",
    "classic": "Classic ADMM",
}
_VERDICTS = {
    "only the total": ("", "✓ Only the total can be learned"),
    "partial sums": ("warn", "⚠ Partial sums can be learned"),
    "exposed": ("bad", "✗ Parameters can be exposed"),
}
_KINDS = {
    "perfect": "perfect: uniformly random, a message says nothing",
    "bounded": "bounded: a message narrows a value down to an interval",
    "none": "none: parameters are sent as they are",
}


def exposure_allowed(run: Run) -> bool:
    """Tell whether the run was started although its certificate did not meet its own demand."""
    places = (run.settings, run.summary, run.summary.get("certificate"), run.certificate, run.ledger)
    return any(
        place.get(key) is True
        for place in places
        if isinstance(place, Mapping)
        for key in ("allow_exposure", "exposure_allowed")
    )


def exposure_banner(run: Run) -> str:
    """Return the warning for a run that allowed exposure, else nothing."""
    if not exposure_allowed(run):
        return ""
    return parts.banner(
        "Exposure was allowed in this run.",
        "It was started with --allow-exposure, which overrules the privacy check. "
        "Do not use these settings with data that must stay private.",
        bad=True,
    )


def privacy_section(run: Run) -> str:
    """Return verdict, sentence and details of every certificate, the exposure picture and the ledger."""
    certified = certificates(run)
    cards = [_card(name, certificate) for name, certificate in certified]
    if not cards:
        cards = [
            '<div class="card"><p class="verdict">No certificate was computed</p>'
            "<p>Nothing is known about what peers could learn from each other in this run. "
            "<code>securedfl audit</code> computes it.</p></div>"
        ]
    picture = ""
    if run.exposure_svg is not None:
        whose = (
            f" with {certified[0][0]}" if certified and certified[0][0] else ""
        )  # the first private method
        picture = parts.picture(
            f"Exposure{whose}", "Computed from the messages that the protocol really sends.",
            run.exposure_svg, "Heat map of which peers can learn about which.",
        )  # fmt: skip
    ledger = _ledger(run.ledger) if run.ledger is not None else ""
    return parts.section(
        "privacy", "Privacy", parts.grid(*cards, picture), ledger,
        lead="What peers who pool everything they received can learn about the others.",
    )  # fmt: skip


def certificates(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (heading, certificate) pairs; the file has either one certificate or one per method."""
    return _by_method(run.certificate or run.summary.get("certificate"), "verdict")


def _by_method(data: object, sign: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (heading, entry) pairs of what holds either one entry, which the sign tells, or one per method."""
    if not isinstance(data, Mapping):
        return []
    if sign in data:
        protocol = str(data.get("protocol", ""))
        return [(_PROTOCOLS.get(protocol, protocol), data)]
    return [(label(str(k)), v) for k, v in data.items() if isinstance(v, Mapping) and sign in v]


def _card(heading: str, certificate: Mapping[str, Any]) -> str:
    verdict = str(certificate["verdict"])
    kind, words = _VERDICTS.get(verdict, ("warn", verdict))
    sentence = str(certificate.get("sentence") or "")
    quote = f"<blockquote>{parts.text(sentence)}</blockquote>" if sentence else ""
    title = f"<h3>{parts.text(heading)}</h3>" if heading else ""
    rest = _rows(certificate, skipped={"verdict", "sentence", "kind"})
    details = parts.folded("The whole certificate", parts.facts(rest)) if rest else ""
    return (
        f'<div class="card">{title}<p class="verdict">{parts.badge(words, kind)}</p>{quote}'
        f"{parts.facts(_essence(certificate))}{details}</div>"
    )


def _essence(certificate: Mapping[str, Any]) -> dict[str, str]:
    """Return what a reader asks first: against whom, with which masks, how thoroughly."""
    told = {}
    collusion, examined = certificate.get("collusion"), certificate.get("examined")
    if isinstance(collusion, int):
        told["Against"] = "one curious peer" if collusion == 1 else f"any {collusion} peers together"
    if "kind" in certificate:
        told["Masks"] = _KINDS.get(str(certificate["kind"]), str(certificate["kind"]))
    if isinstance(examined, int):
        told["Examined"] = (
            f"all {examined} cases" if certificate.get("exhaustive") is True else f"{examined} cases, not all"
        )
    return told


def _ledger(ledger: Mapping[str, Any]) -> str:
    known = _by_method(ledger, "averages")
    if known:
        return ledger_table(known)
    rows = _rows(ledger, skipped=set())
    return f'<div class="card"><h3>Ledger of the whole run</h3>{parts.facts(rows)}</div>' if rows else ""


def _rows(data: Mapping[str, Any], *, skipped: set[str]) -> dict[str, str]:
    told = {_title(key): _plain(value) for key, value in data.items() if key not in skipped}
    return {key: value for key, value in told.items() if value}


def _title(key: object) -> str:
    return str(key).replace("_", " ").capitalize()


def _plain(value: object) -> str:
    """Return a value in words; long lists are cut, because the file itself is at hand."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _shortened("; ".join(f"{_title(k).lower()} {_plain(v) or 'none'}" for k, v in value.items()))
    if isinstance(value, list):
        inner = " | ".join if any(isinstance(v, list | Mapping) for v in value) else ", ".join
        return _shortened(inner(_plain(v) or "none" for v in value))
    return _shortened(f"{value:.6g}" if isinstance(value, float) else str(value))


def _shortened(words: str, most: int = 300) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
