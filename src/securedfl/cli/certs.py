"""``securedfl certs``: the keys of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from securedfl.errors import ConfigError

certs = typer.Typer(help="Make and show the keys of a federation.", no_args_is_help=True, rich_markup_mode="markdown")

Folder = Annotated[Path, typer.Option("--dir", help="Folder of the federation's keys.")]


@certs.command()
def init(
    folder: Folder = Path("keys"),
    days: Annotated[int, typer.Option(min=1, help="How long the authority is valid.")] = 3650,
) -> None:
    """Make the federation's certificate authority. Keep ca.key where only you can read it.

    **Example**

    - `securedfl certs init --dir keys`
    """
    from securedfl.network.links.keys import create_authority

    info = create_authority(folder, days=days)
    typer.echo(f"{folder / 'ca.crt'} is for every peer; {folder / 'ca.key'} is for nobody but you.")
    typer.echo(f"fingerprint {info.fingerprint}")


@certs.command()
def issue(
    name: Annotated[str, typer.Argument(help="The peer's name in the roster.")],
    host: Annotated[list[str] | None, typer.Option(help="Host name or address; may be repeated.")] = None,
    folder: Folder = Path("keys"),
    days: Annotated[int, typer.Option(min=1, help="How long the certificate is valid.")] = 365,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate.")] = False,
) -> None:
    """Issue a peer's key and certificate, and print its line of the roster.

    **Example**

    - `securedfl certs issue hospital-a --host a.example.org`
    """
    from securedfl.network.links import keys as certificates

    files = certificates.issue(folder, name, host or (), days=days, renew=renew)
    info = certificates.describe(files.certificate)
    where = (host or ["HOST"])[0]
    typer.echo(f"Give {files.key}, {files.certificate} and {files.authority} to {name} only; for federation.toml:\n")
    typer.echo(f'[[peers]]\nname = "{name}"\naddress = "{where}:7443"\nfingerprint = "{info.fingerprint}"')


@certs.command()
def show(
    files: Annotated[list[Path] | None, typer.Argument(help="Certificates; by default all of the folder.")] = None,
    folder: Folder = Path("keys"),
) -> None:
    """Show names, hosts, expiry and fingerprints of certificates."""
    from securedfl.network.links.keys import describe

    found = files or sorted(folder.glob("*.crt"))
    if not found:
        raise ConfigError(f"there are no certificates in {folder}; make some: securedfl certs init --dir {folder}")
    table = Table("Name", "Hosts", "Valid until (UTC)", "Fingerprint")
    warnings = []
    for path in found:
        info = describe(path)
        table.add_row(info.name, ", ".join(info.hosts), f"{info.not_after:%Y-%m-%d %H:%M}", info.fingerprint)
        warnings += [info.expiry()] if info.expiry() else []
    console = Console(soft_wrap=True)
    console.print(table)
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
