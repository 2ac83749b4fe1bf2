"""What a run certifies about each of its private methods: as a value, in words, and as JSON holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from securedfl.errors import PrivacyError
from securedfl.privacy.budget.words import PrivacyPromise
from securedfl.privacy.certificate import UNION, Certificate
from securedfl.storage import look_at_types


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
    sentence
        All of it in words.
    """

    method: str = ""
    certificate: Certificate
    required_collusion: int = 0
    allow_exposure: bool = False
    masks: str = ""
    remark: str = ""
    over_rounds: str = ""
    promise: PrivacyPromise | None = None
    sentence: str = ""

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

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> RunCertificate:
        """Read `to_dict`'s values; what is missing or wrong is a `PrivacyError`."""
        own = {field.name: found[field.name] for field in fields(cls) if field.name in found}
        # the method of the run stands where that of the audit would, which the arithmetic tells as well
        audited = {**found, "method": "components" if found.get("arithmetic") == UNION else "symbols"}
        try:
            return msgspec.convert({**own, "certificate": audited, "promise": found.get("differential_privacy")}, cls)
        except msgspec.ValidationError as error:
            raise PrivacyError(f"not a certificate: {error}") from None


def told(certificates: Sequence[RunCertificate]) -> str:
    """Return the sentence of the only certificate; nothing if there are none, or several."""
    return certificates[0].sentence if len(certificates) == 1 else ""


look_at_types(RunCertificate)
