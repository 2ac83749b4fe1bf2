"""What a run certifies about each of its private methods: as a value, in words, and as JSON holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securedfl.privacy.budget.words import Promise
from securedfl.privacy.certificate import Certificate


@dataclass(frozen=True, kw_only=True)
class RunCertificate:
    """What a run certifies about one method.

    Attributes
    ----------
    method
        Its name.
    certificate
        What coalitions learn from an average.
    required_collusion, allow_exposure, masks, remark
        What was asked for, and what the reader must know about this run.
    over_rounds
        What holds over rounds, in words.
    promise
        Of differential privacy, if there is any.
    """

    method: str
    certificate: Certificate
    required_collusion: int
    allow_exposure: bool
    masks: str
    remark: str
    over_rounds: str
    promise: Promise | None = None

    @property
    def sentence(self) -> str:
        """All of it in words."""
        budget = "" if self.promise is None else self.promise.sentence
        return " ".join(filter(None, [budget, self.certificate.sentence, self.over_rounds]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them; what does not apply is left out."""
        values = {
            **self.certificate.to_dict(),
            "method": self.method,
            "required_collusion": self.required_collusion,
            "allow_exposure": self.allow_exposure,
            "masks": self.masks,
            **({"remark": self.remark} if self.remark else {}),
            "sentence": self.sentence,
            "over_rounds": self.over_rounds,
        }
        if self.promise is not None:
            values["differential_privacy"] = self.promise.to_dict("epsilon_by_round")
        return values


def told(certificates: Sequence[RunCertificate]) -> str:
    """Return the sentence of the only certificate; nothing if there are none, or several."""
    return certificates[0].sentence if len(certificates) == 1 else ""
