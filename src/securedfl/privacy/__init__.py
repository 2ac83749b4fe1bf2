"""What others learn: exact audits of the protocols' own code, certificates, the gate and the ledger."""

from __future__ import annotations

from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import Certificate
from securedfl.privacy.certify import certify
from securedfl.privacy.symbolic.view import observe

__all__ = ["Audit", "Certificate", "certify", "observe"]
