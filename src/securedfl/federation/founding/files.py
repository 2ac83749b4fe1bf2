"""federation.toml, each site's own settings and, for a trial on one machine, the keys: from names and addresses."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from securedfl.errors import ConfigError
from securedfl.federation.peers.config import FederationConfig
from securedfl.federation.peers.site import pass_federation
from securedfl.network.core.entries import NAME
from securedfl.network.wire import keys
from securedfl.network.wire.values import split_address
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import make_folder, write_text

FEDERATION, KEYS = "federation.toml", "keys"
ABOUT = {
    True: "# The same file at every site; peers compare it when they meet. Keys: docs/reference/configuration.md\n\n",
    False: "# This site's own settings. Paths are relative to this file, but what stands\n"
    "# under [data] is handed to the app as it is: a relative path there counts from where the peer is started.\n"
    "# Keys: docs/reference/configuration.md\n\n",
}
"""What stands above the settings: of all sites, and of one."""

ADVICE = "choose another folder"


@dataclass(frozen=True, kw_only=True)
class NewSite:
    """One site of a federation that begins: its peer's name, and ``HOST:PORT`` where others reach it, if they do.

    Without an address it only dials out. ``out`` is the folder of its results; ``own`` are further settings of its own,
    such as ``data``.
    """

    name: str
    address: str
    out: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewFederation:
    """A federation that begins: its settings, what is certified, the sites' files, whose certificates are missing."""

    federation: FederationConfig
    certificates: tuple[RunCertificate, ...]
    files: list[Path]
    missing: list[str]


def write_federation(
    folder: Path, sites: Sequence[NewSite], shared: Mapping[str, Any], *, issue: bool = False, replace: bool = False
) -> NewFederation:
    """Write federation.toml and one NAME.toml per site.

    Parameters
    ----------
    folder
        Where to; keys lie in its folder ``keys``.
    sites
        The sites, in the order of their numbers.
    shared
        What else all sites share, as in federation.toml.
    issue
        Make keys for all sites here: for a trial on one machine, because a key should never leave its site.
    replace
        Write over files that are there.

    Raises
    ------
    ConfigError, PrivacyError
        Settings that are wrong, or promise too little; nothing is written then.
    """
    paths = [folder / f"{site.name}.toml" for site in sites]
    there = next((path for path in (folder / FEDERATION, *paths) if path.exists()), None)
    if there is not None and not replace:
        raise ConfigError(f"{there} is there already; choose another folder, or write over it with --replace")
    # a mistake is told before anything is written
    for site in sites:
        if not re.fullmatch(NAME, site.name):
            raise ConfigError(f"the name {site.name!r} of a site must have small letters, digits and dashes only")
    roster = [
        {"name": site.name, **({"address": site.address} if site.address else {}), "fingerprint": ""} for site in sites
    ]
    certificates = pass_federation(_resolved(roster, shared))
    make_folder(folder, ADVICE)
    if issue:
        _issue(folder / KEYS, sites)
    for line in roster:
        certificate = folder / KEYS / f"{line['name']}.crt"
        line["fingerprint"] = keys.describe(certificate).fingerprint if certificate.exists() else ""
    federation = _resolved(roster, shared)
    values = {**{key: value for key, value in shared.items() if value not in (None, {})}, "peers": roster}
    write_text(folder / FEDERATION, ABOUT[True] + tomli_w.dumps(values), ADVICE)
    for site, path in zip(sites, paths, strict=True):
        own = {
            "name": site.name,
            "federation": FEDERATION,
            "out": site.out or f"runs/{site.name}",
            "key": f"{KEYS}/{site.name}.key",
            "certificate": f"{KEYS}/{site.name}.crt",
            "authority": f"{KEYS}/ca.crt",
            **({} if site.address else {"listen": False}),
            **site.own,
        }
        write_text(path, ABOUT[False] + tomli_w.dumps(own), ADVICE)
    missing = [line["name"] for line in roster if not line["fingerprint"]]
    return NewFederation(federation=federation, certificates=certificates, files=paths, missing=missing)


def _resolved(roster: Sequence[Mapping[str, str]], shared: Mapping[str, Any]) -> FederationConfig:
    """Check the settings; fingerprints that are missing yet are made up, each another."""
    peers = [{**line, "fingerprint": line["fingerprint"] or f"{number:064x}"} for number, line in enumerate(roster, 1)]
    return FederationConfig.resolve({**shared, "peers": peers})


def _issue(folder: Path, sites: Sequence[NewSite]) -> None:
    """Make the authority and all certificates that are not there yet."""
    if not (folder / "ca.crt").exists():
        keys.create_authority(folder)
    for site in sites:
        if not (folder / f"{site.name}.crt").exists():
            keys.issue(folder, site.name, [split_address(site.address)[0]] if site.address else ())


def free_ports(count: int) -> list[int]:
    """Find free ports outside the range from which the system takes those of outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports
