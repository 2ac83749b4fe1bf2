"""Enforcement: a federation states what it must withstand, and does not start with settings that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from securedfl.designs import Design, best, nearest, strength_for
from securedfl.designs.coalition_search import Exposure
from securedfl.errors import ConfigError, DesignError, PrivacyError
from securedfl.privacy.certificate import LEAST_WIDTH, Certificate, Verdict, certify, too_narrow
from securedfl.privacy.scenario import scenario
from securedfl.protocols.admm import DEFAULT_RHO

DEFAULT_COLLUSION = 1
DEFAULT_PROMISE: Verdict = "partial sums"
"""By default nobody may be exposed; what else a coalition learns is in the certificate."""

MOST_ITERATIONS = 5
"""Up to which numbers of iterations are tried for suggestions."""


def enforce(
    protocol: str,
    design: Design,
    options: Mapping[str, Any] | None = None,
    *,
    collusion: int = DEFAULT_COLLUSION,
    rounds: int = 1,
    promise: Verdict = DEFAULT_PROMISE,
    allow_exposure: bool = False,
    seed: int = 0,
) -> tuple[Certificate, Exposure]:
    """Return the certificate if it promises enough; else raise `PrivacyError` with what would.

    Parameters
    ----------
    protocol, design, options
        What the federation wants to run.
    collusion
        How many peers may pool what they received.
    rounds
        Of the run.
    promise
        ``partial sums`` (no peer exposed) or ``only the total``.
    allow_exposure
        Return the certificate in any case; the caller must show it.
    seed
        Of the design, for suggestions.
    """
    certificate, exposure = certify(scenario(protocol, design, options), collusion=collusion, rounds=rounds)
    if certificate.meets(collusion, promise=promise) or allow_exposure:
        return certificate, exposure
    raise PrivacyError(refusal(certificate, design, options or {}, promise=promise, seed=seed))


def refusal(
    certificate: Certificate, design: Design, options: Mapping[str, Any], *, promise: Verdict, seed: int = 0
) -> str:
    """Return why settings are refused and the nearest that would do."""
    collusion = certificate.collusion
    reason = certificate.sentence
    if certificate.verdict == "partial sums" and promise == "only the total":
        reason += f" The federation demands: {promise}."
    found = list(suggestions(certificate, design, options, promise=promise, seed=seed))
    advice = (
        "These would do: " + "; ".join(found)
        if found
        else f"No other settings were found that withstand {collusion} of {design.n} peers; demand less collusion"
    )
    return f"{reason} {advice}. --allow-exposure starts all the same, and says so in the log, summary and report."


def suggestions(
    certificate: Certificate, design: Design, options: Mapping[str, Any], *, promise: Verdict, seed: int = 0
) -> Iterator[str]:
    """Yield settings that are close to the refused ones and withstand the same coalitions, nearest first."""
    collusion, rounds, n = certificate.collusion, certificate.rounds, design.n
    if collusion >= n - 1:
        return

    def holds(protocol: str, other: Design, changed: Mapping[str, Any]) -> bool:
        try:
            audited = scenario(protocol, other, changed)
            found, _ = certify(audited, collusion=collusion, rounds=rounds, thorough=False)
        except (ConfigError, PrivacyError, DesignError):
            return False
        return found.meets(collusion, promise=promise)

    wider = ""
    if (
        certificate.narrow
        and "rho" in options
        and too_narrow(scenario("grouped", design, {**options, "iterations": 2}).widths)
    ):
        options = {**options, "rho": DEFAULT_RHO}
        wider = f" --rho {DEFAULT_RHO}"
        if holds(certificate.protocol, design, options):
            yield f"masks {1 / DEFAULT_RHO:g} wide (--rho {DEFAULT_RHO}; at most {1 / LEAST_WIDTH:g})"
    if certificate.protocol == "grouped":
        # two first: the only number that tells the total and nothing else; and more tell more, so a few say all
        for iterations in range(2, min(options.get("iterations", 2), MOST_ITERATIONS + 1)):
            if holds("grouped", design, {**options, "iterations": iterations}):
                yield f"{iterations} iterations (--iterations {iterations}{wider})"
                break
    try:
        strength = strength_for(design, collusion)
        yield f"shares of strength {strength} (--protocol shares --collusion {collusion})"
    except PrivacyError:
        chosen = nearest(n, collusion=collusion, seed=seed)
        if chosen.collusion == collusion:
            size = chosen.design.group_size
            yield (
                f"shares of strength {chosen.strength} in groups of {size} "
                f"(--protocol shares --collusion {collusion} --group-size {size})"
            )
    if certificate.protocol in ("grouped", "classic"):
        for size in sorted(range(2, min(n, 8)), key=lambda size: abs(size - design.group_size)):
            if size == design.group_size and certificate.protocol == "grouped":
                continue
            other = _design(n, size, seed)
            if other is not None and holds("grouped", other, {**options, "iterations": 2}):
                how = f"--protocol grouped --group-size {size} --iterations 2{wider}"
                yield f"grouped in groups of {size} with 2 iterations ({how})"
                break


def _design(n: int, size: int, seed: int) -> Design | None:
    try:
        return best(n, size, seed)
    except DesignError:
        return None
