"""The gate: a federation states what it must withstand, and does not start with settings that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from securedfl.designs import Design, best, nearest
from securedfl.designs.best import withstanding
from securedfl.errors import ConfigError, DesignError, PrivacyError
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import Certificate, Verdict
from securedfl.protocols.protocol import GROUPED, SHARES, Averaging, Protocol
from securedfl.protocols.steps import Options

DEFAULT_PROMISE: Verdict = "partial sums"
"""By default nobody may be exposed; what else a coalition learns is in the certificate."""

MOST_ITERATIONS = 5
"""Up to which numbers of iterations are tried for suggestions."""

MOST_GROUP_SIZE = 7
"""Up to which group sizes are tried for suggestions."""


@dataclass(frozen=True)
class Suggestion:
    """Settings that would do, in words, and what to change."""

    words: str
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        changes = ", ".join(f"{name} = {value}" for name, value in self.settings.items())
        return f"{self.words} ({changes})"


def enforce(
    averaging: Averaging, *, collusion: int = 1, rounds: int = 1, promise: Verdict = DEFAULT_PROMISE
) -> Certificate:
    """Return the certificate if it promises enough; else raise `PrivacyError` with what would.

    Parameters
    ----------
    averaging
        What the federation wants to run.
    collusion
        How many peers may pool what they received.
    rounds
        Of the run.
    promise
        ``partial sums`` (no peer exposed) or ``only the total``.
    """
    certificate = Audit(averaging).certificate(collusion=collusion, rounds=rounds)
    if certificate.meets(collusion, promise=promise):
        return certificate
    raise refusal(certificate, averaging, promise=promise)


def refusal(certificate: Certificate, averaging: Averaging, *, promise: Verdict = DEFAULT_PROMISE) -> PrivacyError:
    """Return the error that says why settings are refused, and the nearest that would do."""
    reason = certificate.sentence
    if certificate.verdict == "partial sums" and promise == "only the total":
        reason += f" The federation demands: {promise}."
    found = [str(suggestion) for suggestion in suggestions(certificate, averaging, promise=promise)]
    who = f"{certificate.collusion} of {averaging.n} peers"
    advice = (
        "These would do: " + "; ".join(found)
        if found
        else f"No other settings were found that withstand {who}; demand less collusion"
    )
    return PrivacyError(
        f"{reason} {advice}. The setting allow_exposure starts all the same, and says so in log, summary and report."
    )


def suggestions(certificate: Certificate, averaging: Averaging, *, promise: Verdict) -> Iterator[Suggestion]:
    """Yield settings that are close to the refused ones and withstand the same coalitions, nearest first."""
    search = _Suggestions(certificate, averaging, promise)
    if certificate.collusion < averaging.n - 1:
        yield from search.perfect_masks()
        yield from search.fewer_iterations()
        yield from search.shares()
        yield from search.other_groups()


class _Suggestions:
    """Tries other settings for the same peers, coalition and rounds."""

    def __init__(self, certificate: Certificate, averaging: Averaging, promise: Verdict) -> None:
        self._certificate, self._promise, self._averaging = certificate, promise, averaging
        self._options: Options = averaging.given
        self._row, self._design = averaging.protocol, averaging.design

    def _holds(self, row: Protocol, design: Design, options: Options) -> bool:
        certificate = self._certificate
        try:
            found = Audit(row.on(design, **options)).certificate(
                collusion=certificate.collusion, rounds=certificate.rounds, thorough=False
            )
        except (ConfigError, PrivacyError, DesignError):
            return False
        return found.meets(certificate.collusion, promise=self._promise)

    def perfect_masks(self) -> Iterator[Suggestion]:
        """Try the same algorithm in a field, in the same groups."""
        if self._row is not GROUPED and "iterations" in self._row.options and self._row.in_groups:
            here = self._options.get("iterations", 2)
            for iterations in dict.fromkeys((max(here, 2), 2)):
                if self._holds(GROUPED, self._design, {"iterations": iterations}):
                    also = {} if iterations == here else {"iterations": iterations}
                    yield Suggestion("the same behind perfect masks", {"protocol": GROUPED.name, **also})
                    return

    def fewer_iterations(self) -> Iterator[Suggestion]:
        """Try two first, the only number that tells nothing but the total; more tell more, so a few say all."""
        if self._row is not GROUPED:
            return
        for iterations in range(2, min(self._options.get("iterations", 2), MOST_ITERATIONS + 1)):
            if self._holds(self._row, self._design, {**self._options, "iterations": iterations}):
                yield Suggestion(f"{iterations} iterations", {"iterations": iterations})
                return

    def shares(self) -> Iterator[Suggestion]:
        """Try shares, first in the same groups."""
        collusion = self._certificate.collusion
        asked: dict[str, Any] = {"protocol": SHARES.name, "collusion": collusion}
        here = withstanding(self._design, collusion)
        if here.collusion == collusion:
            yield Suggestion(f"shares of strength {here.strength}", asked)
            return
        other = nearest(self._averaging.n, collusion=collusion, seed=self._averaging.seed)
        if other.collusion == collusion:
            size = other.design.group_size
            words = f"shares of strength {other.strength} in groups of {size}"
            yield Suggestion(words, {**asked, "group_size": size})

    def other_groups(self) -> Iterator[Suggestion]:
        """Try the paper's protocol in groups of another size, the nearest first."""
        if "iterations" not in self._row.options:
            return
        here = self._design.group_size
        for size in sorted(range(2, min(self._averaging.n, MOST_GROUP_SIZE + 1)), key=lambda s: abs(s - here)):
            other = self._other(size) if size != here or self._row is not GROUPED else None
            if other is not None and self._holds(GROUPED, other, {"iterations": 2}):
                settings = {"protocol": GROUPED.name, "group_size": size, "iterations": 2}
                yield Suggestion(f"grouped in groups of {size} with 2 iterations", settings)
                return

    def _other(self, size: int) -> Design | None:
        if size == self._design.group_size and self._row.in_groups:
            return None
        try:
            return best(self._averaging.n, size, self._averaging.seed)
        except DesignError:
            return None
