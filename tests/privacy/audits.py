"""Audits of the package's own protocols and of protocols that a test makes up."""

from __future__ import annotations

from securedfl.designs import Design
from securedfl.privacy import Audit, Certificate
from securedfl.privacy.gate import refusal
from securedfl.protocols import Protocol, by_name


def audit(protocol, design, options=None, **more) -> Audit:
    """Return the audit of a known protocol."""
    return Audit(by_name(protocol).on(design, **(options or {})), **more)


def enforce(averaging, *, collusion=1) -> Certificate:
    """Return the certificate if it meets what the gate demands; else raise what the gate raises."""
    certificate = Audit(averaging).certificate(collusion=collusion)
    if not certificate.meets(collusion):
        raise refusal(certificate, averaging)
    return certificate


def own(name, call, n, *, kind="bounded") -> Audit:
    """Return the audit of a protocol of the test's own, called as ``call(me, w, round=round, draw=draw)``."""

    def generator(me, w, design, *, round, draw):
        return call(me, w, round=round, draw=draw)

    arithmetic = "ring" if kind == "perfect" else "reals"
    row = Protocol(name=name, generator=generator, masks=kind, arithmetic=arithmetic, in_groups=False)
    return Audit(row.on(Design.everyone(n)))
