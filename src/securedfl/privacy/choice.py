"""The choice of a group size: what "auto" means, for training, peers and audits alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from securedfl.designs import Design
from securedfl.designs.sizes import AUTO_SIZES
from securedfl.errors import ConfigError, DesignError, PrivacyError
from securedfl.privacy.certificate import Verdict, certify
from securedfl.privacy.scenario import scenario


def protecting_design(
    make: Callable[[int], Design], cases: Iterable[tuple[str, Mapping[str, Any]]], collusion: int
) -> Design:
    """Return the design of the first group size that protects best.

    The first size that tells nothing but the total is taken, else the first that exposes nobody, else three; then the
    certificate explains. More than two iterations are judged by two: that is quick, and more never protect better.

    Parameters
    ----------
    make
        Gives the design for a group size, or raises `DesignError`.
    cases
        The protocols that must protect, each with its options.
    collusion
        How many peers may pool what they received.
    """
    asked = list(cases)
    fallback: Design | None = None
    for size in AUTO_SIZES:
        with suppress(ConfigError, DesignError, PrivacyError):  # too few peers for that
            design = make(size)
            verdict = _weakest(design, asked, collusion)
            if verdict == "only the total":
                return design
            if verdict == "partial sums" and fallback is None:
                fallback = design
    return fallback or make(AUTO_SIZES[0])


def _weakest(design: Design, cases: list[tuple[str, Mapping[str, Any]]], collusion: int) -> Verdict:
    """Return the least that one of the protocols promises, over all rounds: "exposed" if any exposes somebody."""
    verdicts = set()
    for protocol, options in cases:
        few = dict(options)
        if few.get("iterations", 2) > 2:
            few["iterations"] = 2
        audited = scenario(protocol, design, few)
        found, _ = certify(audited, collusion=collusion, rounds=design.gap, thorough=False)
        verdicts.add(found.verdict)
    order: tuple[Verdict, ...] = ("exposed", "partial sums")
    return next((verdict for verdict in order if verdict in verdicts), "only the total")
