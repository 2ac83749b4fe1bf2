"""federation.toml, each site's own settings and, for a trial on one machine, the keys: from names and addresses."""

from __future__ import annotations

import dataclasses
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.founding.kept import Kept, found_in, keeping
from securedfl.federation.peers.config import FederationConfig
from securedfl.federation.peers.site import pass_federation
from securedfl.network.core.entries import NAME
from securedfl.network.wire import keys
from securedfl.network.wire.values import split_address
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import make_folder

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
    """A federation that begins: its settings, what is certified, the sites' files, whose certificates are missing.

    ``kept`` tells what stays of files that were there.
    """

    federation: FederationConfig
    certificates: tuple[RunCertificate, ...]
    files: list[Path]
    missing: list[str]
    kept: tuple[str, ...] = ()


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
        Write over files that are there; settings that are not given here stay as they are.

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
    place = folder / FEDERATION
    found, homes = found_in(place), [found_in(path) for path in paths]
    before = _by_name(found, place)
    roster = _roster(sites, before)
    given = {key: value for key, value in shared.items() if value not in (None, {})}
    where = str(place) if found else "the federation"
    federation = keeping(place, found, {**given, "peers": roster}, {"name": "federation"})
    certificates = pass_federation(_resolved(federation.values, where))
    own = [_own_settings(site, path, home) for site, path, home in zip(sites, paths, homes, strict=True)]
    make_folder(folder, ADVICE)
    if issue:
        _issue(folder / KEYS, sites)
    values = dict(federation.values)
    for key in ("peers", "relays"):
        if key in values:
            values[key] = [_with_fingerprint(folder / KEYS, entry) for entry in values[key]]
    config = _resolved(values, where)
    told = [dataclasses.replace(federation, values=values).write(ABOUT[True], ADVICE)]
    told += [file.write(ABOUT[False], ADVICE) for file in own]
    if gone := before.keys() - {site.name for site in sites}:
        told.append(f"No longer among the sites: {', '.join(sorted(gone))}")
    return NewFederation(
        federation=config,
        certificates=certificates,
        files=paths,
        missing=[entry["name"] for entry in values["peers"] if not entry["fingerprint"]],
        kept=tuple(filter(None, told)),
    )


def _entries(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the entries of peers or relays; none if a file says something else there, which is told when checked."""
    entries = values.get(key)
    whole = isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)
    return list(entries) if whole and entries else []


def addresses(folder: Path) -> tuple[dict[str, str], bool]:
    """Return where the sites are that a folder's federation.toml lists, and whether it names an entry."""
    found = found_in(folder / FEDERATION)
    by_name = _by_name(found, folder / FEDERATION)
    return {name: str(entry.get("address") or "none") for name, entry in by_name.items()}, "entry" in found


def _by_name(found: Mapping[str, Any], place: Path) -> dict[str, Mapping[str, Any]]:
    """Return the entries of the peers in a federation.toml."""
    entries = _entries(found, "peers")
    if not all(isinstance(entry.get("name"), str) for entry in entries):
        raise ConfigError(f"an entry of peers in {place} has no name, or one that is no text; mend it first")
    return {entry["name"]: entry for entry in entries}


def _roster(sites: Sequence[NewSite], before: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of the sites; of those that were there already, what an address does not say."""
    return [
        {
            "name": site.name,
            **({"address": site.address} if site.address else {}),
            "fingerprint": "",
            **{key: value for key, value in before.get(site.name, {}).items() if key not in ("name", "address")},
        }
        for site in sites
    ]


def _with_fingerprint(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the fingerprint of its certificate, if that is there."""
    certificate = folder / f"{entry['name']}.crt"
    return {**entry, **({"fingerprint": keys.describe(certificate).fingerprint} if certificate.exists() else {})}


def _own_settings(site: NewSite, path: Path, found: Mapping[str, Any]) -> Kept:
    """Return the settings of one site, with what its file says already."""
    defaults = {
        "name": site.name,
        "federation": FEDERATION,
        "out": site.out or f"runs/{site.name}",
        "key": f"{KEYS}/{site.name}.key",
        "certificate": f"{KEYS}/{site.name}.crt",
        "authority": f"{KEYS}/ca.crt",
    }
    # it was written for a site without an address
    old = {"listen"} if site.address and found.get("listen") is False else set()
    kept = {key: value for key, value in found.items() if key not in old}
    given = {"name": site.name, **({} if site.address else {"listen": False}), **site.own}
    return dataclasses.replace(keeping(path, kept, given, defaults), found=found)


def _resolved(values: Mapping[str, Any], where: str) -> FederationConfig:
    """Check the settings; fingerprints that are missing yet are made up, each another."""
    filled = {
        key: [
            {**entry, "fingerprint": entry.get("fingerprint") or f"{start + number:064x}"}
            for number, entry in enumerate(_entries(values, key), 1)
        ]
        for start, key in ((0, "peers"), (1000, "relays"))
        if _entries(values, key)
    }
    return FederationConfig.resolve({**values, **filled}, where=where)


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
