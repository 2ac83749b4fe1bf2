"""The gate: a federation states what it must withstand, and does not start with settings that do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from securedfl.designs import best, nearest
from securedfl.designs.best import withstanding
from securedfl.errors import PrivacyError
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import Certificate
from securedfl.protocols.protocol import GROUPED, SHARES, Averaging

MOST_ITERATIONS = 5
"""Up to which numbers of iterations are tried for suggestions."""

MOST_GROUP_SIZE = 7
"""Up to which group sizes are tried for suggestions."""


def refusal(certificate: Certificate, averaging: Averaging) -> PrivacyError:
    """Return the error that says why settings are refused, and the nearest that would do."""
    found = list(suggestions(certificate, averaging))
    who = f"{certificate.collusion} of {averaging.n} peers"
    advice = (
        "These would do: " + "; ".join(found)
        if found
        else f"No other settings were found that withstand {who}; demand less collusion"
    )
    return PrivacyError(
        f"{certificate.sentence} {advice}. The setting allow_exposure starts all the same, and says so in log, summary "
        "and report."
    )


def suggestions(certificate: Certificate, averaging: Averaging) -> Iterator[str]:
    """Yield settings that are close to the refused ones and withstand the same coalitions, nearest first."""
    collusion, rounds = certificate.collusion, certificate.rounds
    if collusion >= averaging.n - 1:
        return
    yield from _first_that_meets(_perfect_masks(averaging), collusion, rounds)
    yield from _first_that_meets(_fewer_iterations(averaging), collusion, rounds)
    yield from _shares(averaging, collusion)
    yield from _first_that_meets(_other_groups(averaging), collusion, rounds)


Candidate = tuple[str, Averaging]
"""Other settings for the same peers: what to change, in words, and what would run then."""


def _first_that_meets(candidates: Iterable[Candidate], collusion: int, rounds: int) -> Iterator[str]:
    """Yield the words of the first that withstands so many."""
    for words, other in candidates:
        if Audit(other).certificate(collusion=collusion, rounds=rounds, thorough=False).meets(collusion):
            yield words
            return


def _perfect_masks(averaging: Averaging) -> Iterator[Candidate]:
    """Propose the same algorithm in a field, in the same groups."""
    row, here = averaging.protocol, averaging.given.get("iterations", 2)
    if row is not GROUPED and "iterations" in row.options and row.in_groups:
        for iterations in dict.fromkeys((max(here, 2), 2)):
            also = {} if iterations == here else {"iterations": iterations}
            words = _words("the same behind perfect masks", protocol=GROUPED.name, **also)
            yield words, GROUPED.on(averaging.design, iterations=iterations)


def _fewer_iterations(averaging: Averaging) -> Iterator[Candidate]:
    """Propose two first, the only number that tells nothing but the total; more tell more, so a few say all."""
    if averaging.protocol is GROUPED:
        for iterations in range(2, min(averaging.given.get("iterations", 2), MOST_ITERATIONS + 1)):
            words = _words(f"{iterations} iterations", iterations=iterations)
            yield words, GROUPED.on(averaging.design, **{**averaging.given, "iterations": iterations})


def _other_groups(averaging: Averaging) -> Iterator[Candidate]:
    """Propose the paper's protocol in groups of another size, the nearest first."""
    row, here = averaging.protocol, averaging.design.group_size
    if "iterations" in row.options:
        for size in sorted(range(2, min(averaging.n, MOST_GROUP_SIZE + 1)), key=lambda s: abs(s - here)):
            if size != here or not row.in_groups:
                words = f"grouped in groups of {size} with 2 iterations"
                design = best(averaging.n, size, averaging.seed)
                yield _words(words, protocol=GROUPED.name, group_size=size, iterations=2), GROUPED.on(design)


def _shares(averaging: Averaging, collusion: int) -> Iterator[str]:
    """Yield shares that withstand so many, first in the same groups."""
    here = withstanding(averaging.design, collusion)
    if here.collusion == collusion:
        yield _words(f"shares of strength {here.strength}", protocol=SHARES.name, collusion=collusion)
        return
    other = nearest(averaging.n, collusion=collusion, seed=averaging.seed)
    if other.collusion == collusion:
        size = other.design.group_size
        words = f"shares of strength {other.strength} in groups of {size}"
        yield _words(words, protocol=SHARES.name, collusion=collusion, group_size=size)


def _words(words: str, **settings: Any) -> str:
    return f"{words} ({', '.join(f'{name} = {value}' for name, value in settings.items())})"
