"""The table ``[privacy]`` of the settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from securedfl.federation.settings import Settings


class PrivacySettings(Settings):
    """What is promised about each record or site, and how; see docs/guides/differential-privacy.md."""

    unit: Literal["record", "site"] = Field(description="What is protected: each record, or a site as a whole.")
    noise: Literal["distributed", "local", "central"] = Field(
        "distributed",
        description="Who adds it: all sites together, each site enough for itself, or (simulated only) a server.",
    )
    clip: float = Field(gt=0, description="Largest norm of one record's gradient, or of one site's difference.")
    delta: float = Field(gt=0, lt=1, description="Probability that the promise fails; below 1/records.")
    epsilon: float | None = Field(None, gt=0, description="The budget; without noise_multiplier it gives the noise.")
    noise_multiplier: float | None = Field(
        None, gt=0, description="Standard deviation of honest noise in the total, over clip; by default from epsilon."
    )
    sampling: float | None = Field(
        None, gt=0, le=1, description="Of unit record: probability of each record to be in a batch."
    )
    records: int | None = Field(
        None, ge=1, description="Of all sites together, as agreed; real peers need it, a simulation counts."
    )
    over: Literal["refuse", "stop"] = Field(
        "refuse", description="More rounds than the budget allows: refuse to start, or stop when it is spent."
    )
