"""The certificate: what coalitions of a size can learn, as a value, as JSON and as sentences."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import msgspec
import numpy as np

from securedfl.designs.coalition_search import Levels
from securedfl.errors import PrivacyError
from securedfl.protocols.protocol import Masks

Verdict = Literal["only the total", "partial sums", "exposed"]

UNION = "union of groups"
"""What stands for the arithmetic where connected components tell all."""

UPDATE_NORM = 4.0
"""The norm of an update that bounded masks must hide: what a round of training moves all parameters by, in all. The
networks of our tests move by 3.7."""

MOST_TOLD = 0.125
"""How large an update may be beside a mask's standard deviation. Who guesses updates correlates a message with them,
over all parameters at once; at this ratio one message tells two guesses apart little better than a coin does."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The answer to "what can any coalition of this size learn?", and how it was found.

    Attributes
    ----------
    peers, protocol, options, design, gap, group_size
        What was audited; ``design`` is its hash.
    collusion
        Members of a coalition.
    verdict
        ``only the total``, ``partial sums`` (some linear functions of several peers' parameters), or ``exposed``.
    kind
        Of the masks: ``perfect``, ``bounded`` or ``none``.
    width, narrowest
        Of a bounded mask: 1/rho, and the interval that the most telling single message leaves for a parameter.
    rounds, meetings
        Rounds of the run, and the most often that the same two peers meet in them.
    worst_coalition, exposed, partial_sums, dimension
        The coalition that learns most, and what: the peers whose parameters it computes, sets of peers whose sum it
        computes, and the number of independent functions beyond the total.
    exposed_by_iteration, dimension_by_iteration
        The same counts for the worst coalition after each iteration.
    safe_iterations
        How many iterations expose nobody.
    paper_bound
        How many the paper's Theorem III.1 calls safe: 2 gap - 1.
    exhaustive, examined, breaking
        Whether all coalitions (in all rounds) were examined, how many, and how many of them expose somebody.
    rounds_examined
        Rounds with different partitions that were examined.
    method
        ``symbols`` (the protocol's code run on symbols) or ``components`` (the graph that tests prove equal to it).
    arithmetic
        In which the code was run.
    levels
        ``levels[i, u]``: the most that coalitions with member i learn about peer u; for pictures, not part of the JSON.

    Examples
    --------
    >>> import securedfl
    >>> certificate = securedfl.certify(9, protocol="shares", collusion=2)
    >>> certificate.verdict, certificate.kind, certificate.exhaustive
    ('only the total', 'perfect', True)
    """

    peers: int
    protocol: str
    options: Mapping[str, Any]
    design: str | None
    gap: int | None
    group_size: int | None
    collusion: int
    verdict: Verdict
    kind: Masks
    width: float | None
    narrowest: float | None
    rounds: int
    meetings: int | None
    worst_coalition: tuple[int, ...]
    exposed: tuple[int, ...]
    partial_sums: tuple[tuple[int, ...], ...]
    dimension: int
    exposed_by_iteration: tuple[int, ...]
    dimension_by_iteration: tuple[int, ...]
    safe_iterations: int
    paper_bound: int | None
    exhaustive: bool
    examined: int
    breaking: int
    rounds_examined: int
    method: Literal["symbols", "components"]
    arithmetic: str
    levels: Levels = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int8), compare=False, repr=False)

    @property
    def told(self) -> float | None:
        """An update's norm over the standard deviation of the narrowest mask; None where masks tell nothing or all."""
        if self.kind != "bounded":
            return None
        return math.inf if self.narrowest is None else UPDATE_NORM / (self.narrowest / math.sqrt(12))

    @property
    def narrow(self) -> bool:
        """Whether masks are so narrow that a guessed update can be recognised in a message."""
        return self.told is not None and self.told > MOST_TOLD

    @property
    def sentence(self) -> str:
        """What a data-protection officer needs to know, in words."""
        if not self.narrow:
            return self._algebra
        width = "of unknown width"
        if self.narrowest is not None:
            enough = UPDATE_NORM * math.sqrt(12) / MOST_TOLD
            width = (
                f"only {self.narrowest:.3g} wide where a message tells most (in units of a parameter's value; to hide "
                f"an update they must be {enough:.3g} wide)"
            )
        why = (
            f"masks are {width}, so whoever guesses an update can recognise it in a single message, and knows then "
            'that the guess is right; use a protocol with perfect masks ("grouped", "shares" or "resilient")'
        )
        if self.verdict == "exposed":
            return f"{self._algebra} Besides, {why}."
        return f"These settings do not protect the peers: {why}. As to exact values: {self._algebra}"

    @property
    def _algebra(self) -> str:
        """What can be computed, whatever the width of the masks."""
        pool = "peers who pool what they received"
        alone = self.collusion == 1
        if self.verdict == "exposed":
            some = "One single peer" if alone else f"{self.collusion} {pool}"
            return (
                f"These settings do not protect the peers. {some} can compute the private parameters of "
                f"{_count(len(self.exposed))} ({_list(self.exposed)}): "
                f"for instance {_peers(self.worst_coalition)}."
            )
        whom = "single peer" if alone else f"{self.collusion} {pool}"
        if self.verdict == "partial sums":
            what = (
                f"from one average no {whom} can compute the parameters of any other peer, but "
                f"{_peers(self.worst_coalition)} can "
                f"compute {self.dimension} linear function{'s' * (self.dimension > 1)} of several peers' parameters "
                "beyond the total that everybody learns."
            )
        else:
            exactly = "" if self.kind == "perfect" else " exactly"
            what = (
                f"from one average any {whom} learn{'s' * alone} the total over all peers, which is its purpose, and "
                f"no other function of the others' parameters{exactly}."
            )
        what = what[0].upper() + what[1:] if self.exhaustive else f"As far as was examined, {what}"
        return " ".join(filter(None, [what, self._masks, self._proof]))

    @property
    def _masks(self) -> str:
        if self.kind == "perfect":
            return (
                "Whatever else they see is uniformly random and says nothing, as far as AES-256 is as good as random."
            )
        if self.kind == "none":
            return "Parameters travel without masks."
        bits = "Floats keep bits that are finer than the masks, so unchanged parameters can be recognised."
        if self.narrowest is None:
            return f"Masks are of bounded width, so single messages narrow parameters down to intervals. {bits}"
        again = (
            f" The same two peers meet up to {self.meetings} times in {self.rounds} rounds, which narrows it "
            "further where parameters move slowly."
            if self.meetings is not None and self.meetings > 1
            else ""
        )
        several = " Several messages together narrow it further." if len(self.exposed_by_iteration) > 2 else ""
        return (
            f"A single message still narrows a parameter down to an interval of width {self.narrowest:.3g} "
            f"(masks are {self.width:.3g} wide).{several}{again} {bits}"
        )

    @property
    def _proof(self) -> str:
        if self.exhaustive:
            return "This was computed for every such coalition."
        if self.examined < math.comb(self.peers, self.collusion):
            return f"Not every such coalition was examined: {self.examined} were, chosen by a search for the worst."
        return f"Not every round was examined: {self.rounds_examined} with different partitions were."

    def meets(self, collusion: int, *, promise: Verdict = "partial sums") -> bool:
        """Tell whether it promises at least this much against that many colluders, behind masks wide enough.

        The verdict is about what can be computed; narrow masks (`narrow`) give nearly as much away without computing,
        so they never meet a promise.
        """
        order = ("exposed", "partial sums", "only the total")
        enough = order.index(self.verdict) >= order.index(promise)
        return self.collusion >= collusion and enough and not self.narrow

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, sentence included."""
        values = {name: getattr(self, name) for name in _names()}
        return {**values, "sentence": self.sentence}

    def to_json(self) -> str:
        """Return JSON; `from_json` reads it back."""
        return readable_json(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read `to_json`'s text; what is missing or wrong is a `PrivacyError`."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise PrivacyError(f"not a certificate: {error}") from None


def readable_json(data: Mapping[str, Any]) -> str:
    """Return JSON with one line per entry, and lists of numbers in one line."""
    text = json.dumps(data, indent=2)
    return re.sub(
        r"\[[\s\d,.\-+e]*\]",
        lambda match: re.sub(r"\s+", " ", match[0]).replace("[ ", "[").replace(" ]", "]"),
        text,
    )


def _names() -> list[str]:
    """Return the fields that a file holds."""
    return [field.name for field in fields(Certificate) if field.name != "levels"]


def _count(number: int) -> str:
    return "one other peer" if number == 1 else f"{number} other peers"


def _peers(peers: tuple[int, ...]) -> str:
    return f"peer {peers[0]}" if len(peers) == 1 else f"peers {_list(peers)}"


def _list(peers: tuple[int, ...], most: int = 12) -> str:
    words = [str(peer) for peer in peers[:most]]
    if len(peers) > most:
        return ", ".join(words) + f" and {len(peers) - most} more"
    return "".join(words) if len(words) < 2 else ", ".join(words[:-1]) + " and " + words[-1]
