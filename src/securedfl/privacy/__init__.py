"""What others learn: exact audits of the protocols' own code, certificates, enforcement, a ledger and attacks."""

from __future__ import annotations

from securedfl.privacy.certificate import Certificate, certify
from securedfl.privacy.enforce import enforce
from securedfl.privacy.scenario import Scenario, custom, scenario
from securedfl.privacy.symbolic.view import Knowledge, View, exact_options, observe

__all__ = [
    "Certificate",
    "Knowledge",
    "Scenario",
    "View",
    "certify",
    "custom",
    "enforce",
    "exact_options",
    "observe",
    "scenario",
]
