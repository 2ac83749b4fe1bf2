"""What the averages of a run gave away so far, as a value and as ledger.json holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from securedfl.errors import PrivacyError
from securedfl.privacy.budget.words import PrivacyPromise
from securedfl.protocols.protocol import Masks
from securedfl.storage import look_at_types


@dataclass(frozen=True, kw_only=True)
class Account:
    """What all averages of a run gave away so far, as ledger.json holds it.

    ``coalition`` is the one that the certificate calls the worst, and ``coalition_over_rounds`` the one that computes
    the smallest sum from all rounds. The last three are the run's: who is not told them need not know them.
    """

    peers: int
    protocol: str
    kind: Masks
    averages: int
    attempts: int
    retries_with_the_same_parameters: int
    irregular_averages: list[dict[str, Any]]
    most_meetings_of_a_pair: int
    pairs_by_meetings: Mapping[str, int]
    coalition: tuple[int, ...]
    exposed_so_far: tuple[int, ...]
    coalition_over_rounds: tuple[int, ...]
    smallest_sum_over_rounds: tuple[int, ...]
    mask_width: float | None
    interval_after_one_message: float | None
    interval_after_all_meetings: float | None
    meetings: list[list[int]] | None = None
    allow_exposure: bool = False
    rounds_with_messages: tuple[int, ...] | None = None
    differential_privacy: PrivacyPromise | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them; what does not apply is left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.differential_privacy is not None:
            values["differential_privacy"] = self.differential_privacy.to_dict("sentence")
        optional = ("meetings", "rounds_with_messages", "differential_privacy")
        return {key: value for key, value in values.items() if value is not None or key not in optional}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Account:
        """Read `to_dict`'s values; what is missing or wrong is a `PrivacyError`."""
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            raise PrivacyError(f"not a ledger: {error}") from None


look_at_types(Account)
