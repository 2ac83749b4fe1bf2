"""``securedfl roster``: who belongs to the federation, changed while it runs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securedfl.cli.certs import roster_entry
from securedfl.cli.options import NOWHERE, Json, address_of
from securedfl.cli.stop import OWN, PeerFile, Wait, wanted
from securedfl.errors import ConfigError, needing

if TYPE_CHECKING:
    from securedfl.network.wire.keys import CertificateInfo

roster = typer.Typer(
    help="Show or change who belongs to the federation. To change it, more than half of the peers must run.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(help="The peer's name.")]
Certificate = Annotated[Path, typer.Option(help="The peer's certificate, NAME.crt.")]
Address = Annotated[
    str, typer.Option(metavar="HOST:PORT|none", help="Where others reach it; the word none if it only dials out.")
]


@roster.command()
def show(config: Annotated[Path, typer.Argument(metavar="PEER.toml", help=OWN)], as_json: Json = False) -> None:
    """Show who belongs to the federation now, and where the run is, as this site's own log says.

    Nothing is changed and nobody is asked, so it does not matter whether the peer runs. If it does not, the others may
    be further.

    **Example**

    - `securedfl roster show hospital-a.toml`
    """
    with needing("real peers"):
        from securedfl.federation.checking.standing import standing

    now = standing(config)
    if as_json:
        typer.echo(json.dumps(asdict(now), indent=1))
        return
    typer.echo(f"{now.name}, round {now.round} of {now.rounds}: {now.told}")
    for member in now.members:
        typer.echo(
            f"{member.number:>3}  {member.name}  {member.address or 'only dials out'}  {member.fingerprint}"
            + "  added later" * member.added
        )
    if now.asked:
        typer.echo(f"Asked for at this site, and not decided: {now.asked}")


@roster.command()
def add(config: PeerFile, certificate: Certificate, address: Address = NOWHERE, wait: Wait = 60.0) -> None:
    """Let a new site in. It takes part from the next attempt on, once its peer runs.

    With `absence = "blocks"`, the default of larger federations, that is when a whole block of new sites is there: the
    first total with fewer of them would tell their updates.

    A federation that trains a known data set takes in nobody, because its samples are dealt already.

    Its federation.toml is that of the others, with its own entry at the end, marked `added = true`, which is printed.

    **Example**

    - `securedfl roster add hospital-a.toml --certificate hospital-d.crt --address d.example.org:7443`
    - `securedfl roster add hospital-a.toml --certificate hospital-d.crt --address none`
    """
    with needing("real peers"):
        from securedfl.federation.checking.standing import check_can_grow, standing
    from securedfl.network.operator import Wish

    info, address = _issued(config, certificate), address_of(address)
    check_can_grow(config, info.name)
    typer.echo(wanted(config, Wish("add", name=info.name, address=address, fingerprint=info.fingerprint), wait))
    now = standing(config)
    number = next(member.number for member in now.members if member.name == info.name)
    typer.echo(
        f"It has number {number}, so entry {number + 1} of [[peers]] in its federation.toml, after those of all sites "
        "that ever belonged to the run. The others may add it, too:\n"
    )
    typer.echo(roster_entry(info.name, address, info.fingerprint, added=True))
    if not address:
        typer.echo("\nIts peer.toml says: listen = false")
    if now.block:
        typer.echo(
            f"\nPeers come and go in blocks here: it takes part once {now.block} new sites are there, so that no "
            'total tells less than the sum of them (absence = "blocks").'
        )


@roster.command()
def remove(config: PeerFile, name: Name, wait: Wait = 60.0) -> None:
    """Let a site leave for good; its key counts no more. This is also how a stolen key is revoked.

    **Example**

    - `securedfl roster remove hospital-a.toml hospital-c`
    """
    from securedfl.network.operator import Wish

    typer.echo(wanted(config, Wish("remove", name=name), wait))


@roster.command()
def move(config: PeerFile, name: Name, address: Address, wait: Wait = 60.0) -> None:
    """Tell all that a site has another address.

    **Example**

    - `securedfl roster move hospital-a.toml hospital-c --address c2.example.org:7443`
    - `securedfl roster move hospital-a.toml hospital-c --address none`
    """
    from securedfl.network.operator import Wish

    address = address_of(address)
    typer.echo(wanted(config, Wish("move", name=name, address=address), wait))
    where = '"HOST:PORT", where it listens now' if address else "false"
    typer.echo(f"The peer.toml of {name} says from its next start on: listen = {where}")


@roster.command()
def renew(config: PeerFile, certificate: Certificate, wait: Wait = 60.0) -> None:
    """Tell all that a site has another key. That site runs `securedfl certs install` first.

    **Examples**

    - `securedfl certs install hospital-a.crt`
    - `securedfl roster renew hospital-a.toml --certificate keys/hospital-a.crt`
    """
    from securedfl.network.operator import Wish

    info = _issued(config, certificate)
    _check_installed(config, certificate, info)
    typer.echo(wanted(config, Wish("renew", name=info.name, fingerprint=info.fingerprint), wait))


def _check_installed(config: Path, certificate: Path, info: CertificateInfo) -> None:
    """Refuse to tell all of a certificate that this very site does not have in use: it would be locked out."""
    from securedfl.federation.peers.config import PeerConfig
    from securedfl.network.wire.keys import check_pair

    own = PeerConfig.load(config)
    if own.name == info.name and check_pair(own.files()).fingerprint != info.fingerprint:
        key, place = own.files().key, own.files().certificate
        named = (key.name, place.name) == (f"{info.name}.key", f"{info.name}.crt")
        install = f"securedfl certs install {certificate} --dir {key.parent}"
        mend = install if named else f"put it there, and its key in the place of {key}"
        raise ConfigError(f"{certificate} is not in the place of {place} yet; first: {mend}")


def _issued(config: Path, certificate: Path) -> CertificateInfo:
    """Return what a peer's certificate says; it must be valid now, and of the authority that this site trusts."""
    from securedfl.federation.peers.config import PeerConfig
    from securedfl.network.core.entries import NAME
    from securedfl.network.wire.keys import check_issued

    info = check_issued(certificate, PeerConfig.load(config).files().authority)
    if not re.fullmatch(NAME, info.name):
        raise ConfigError(f"{certificate} is no peer's certificate: {info.name!r} cannot be a peer's name")
    if not info.valid():
        raise ConfigError(f"{certificate}: {info.expiry()}")
    return info
