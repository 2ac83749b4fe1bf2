"""What one site knows before it joins a federation, and all that can be checked without a network."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from securedfl.errors import ConfigError
from securedfl.federation.apps.settings import with_common
from securedfl.federation.budget.planning import check_privacy, make_plan
from securedfl.federation.gate import Plans, pass_gate
from securedfl.federation.methods import SECURED, averaging_of, check_settings
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.network.core.state import State
from securedfl.network.wire.keys import CertificateInfo, KeyFiles, check_pair
from securedfl.parameters import Schema
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import make_folder

log = logging.getLogger("securedfl.peer")

CHECK_OUT = "check out in peer.toml"


@dataclass(frozen=True)
class Site:
    """What one site knows before it joins: its settings, those of all, and what is certified.

    The plan of differential privacy, and a hash of what classes and features mean, follow when the model is known.
    """

    config: PeerConfig
    federation: FederationConfig
    certificates: tuple[RunCertificate, ...]
    plan: Plan | None = None
    coding: str = ""

    @classmethod
    def of(cls, config: PeerConfig) -> Self:
        """Read the federation's settings, make the site's folder, and check all that needs no network."""
        make_folder(config.out, CHECK_OUT, private=True)
        federation = FederationConfig.load(config.federation)
        config.position(federation)
        check_keys(config.files(), config.name)
        check_settings(federation.training)
        check_privacy(federation.training, real=True)
        return cls(config, federation, pass_federation(federation))

    @property
    def me(self) -> int:
        """The number of this site."""
        return self.config.position(self.federation)

    def chosen_by(self, common: Mapping[str, Any], coding: str = "") -> Site:
        """Return the site with what its app says about common model and data; peers compare it when they meet."""
        if not common:
            return replace(self, coding=coding)
        with_common(self.federation.training, common)
        values = self.federation.model_dump(exclude_none=True)
        values["train"] = {**self.federation.train, **common}
        return replace(self, federation=FederationConfig.resolve(values), coding=coding)

    def genesis(self, schema: Schema) -> State:
        """Return the state before the first entry of the log, for a model of that schema."""
        coding = [self.coding] if self.coding else []
        return self.federation.genesis(self.federation.design.hash, schema.hash, *coding)

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan by the method of real peers, if there is one."""
        return {} if self.plan is None else {SECURED: self.plan}

    def planned(self, schema: Schema, samples: int | None = None) -> Site:
        """Return the site with the plan for a model, and a certificate that tells of it; refuse one over budget."""
        config = self.federation.training
        if config.privacy is None or self.plan is not None:
            return self
        agreed = config.privacy.records
        if agreed is not None and samples is not None and samples > agreed:
            raise ConfigError(f"{self.config.name} has {samples} records, but [privacy] says {agreed} of all sites")
        chosen = averaging_of(config, SECURED, self.federation.design)
        plan = make_plan(config, chosen, size=schema.size, dtype=schema.dtype, records=None)
        made = replace(self, plan=plan)
        return replace(made, certificates=pass_federation(self.federation, made.plans))


def pass_federation(federation: FederationConfig, plans: Plans | None = None) -> tuple[RunCertificate, ...]:
    """Return what is certified about a federation of real peers; see `pass_gate`."""
    return pass_gate(federation.training, federation.design, federation.missing, plans)


def check_keys(files: KeyFiles, name: str, own: object = "PEER.toml") -> CertificateInfo:
    """Refuse keys of somebody else, or that have expired; return what the certificate says.

    ``own`` is the path of ``peer.toml``, for the command that renews it.
    """
    info = check_pair(files)
    if info.name != name:
        raise ConfigError(f"{files.certificate} is for {info.name!r} and not for {name!r}")
    warning = expiry_of(info, files, own)
    if not info.valid():
        raise ConfigError(warning)
    if warning:
        log.warning("%s", warning)
    return info


def expiry_of(info: CertificateInfo, files: KeyFiles, own: object = "PEER.toml") -> str:
    """Return a warning with the commands that help, if a site's certificate is not valid or soon will not be."""
    if not (warning := info.expiry()):
        return ""
    told = f"securedfl roster renew {own} --certificate {files.certificate}"
    return f"{warning}; then tell the others: {told} (before the first start: its new fingerprint in federation.toml)"
