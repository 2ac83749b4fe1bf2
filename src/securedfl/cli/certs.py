"""``securedfl certs``: the keys of a federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from securedfl.errors import ConfigError

certs = typer.Typer(help="Make and show the keys of a federation.", no_args_is_help=True, rich_markup_mode="markdown")

Folder = Annotated[Path, typer.Option("--dir", help="Folder of the federation's keys.")]

PLACE = "for federation.toml (of a relay: [[relays]], and `securedfl relay` prints it)"


@certs.command()
def init(
    folder: Folder = Path("keys"),
    days: Annotated[int, typer.Option(min=1, help="How long the authority is valid.")] = 3650,
) -> None:
    """Make the federation's certificate authority. Keep ca.key where only you can read it.

    **Example**

    - `securedfl certs init --dir keys`
    """
    from securedfl.network.wire.keys import create_authority

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
    from securedfl.network.wire import keys as certificates

    files = certificates.issue(folder, name, host or (), days=days, renew=renew)
    typer.echo(f"Give {files.key}, {files.certificate} and {files.authority} to {name} only; {PLACE}:\n")
    typer.echo(_roster_line(files.certificate))


@certs.command()
def request(
    name: Annotated[str, typer.Argument(help="The peer's name in the roster.")],
    host: Annotated[list[str] | None, typer.Option(help="Host name or address; may be repeated.")] = None,
    folder: Folder = Path("keys"),
    renew: Annotated[
        bool, typer.Option("--renew", help="Make a new key beside the one in use, which stays until `certs install`.")
    ] = False,
) -> None:
    """Make this site's own key, which never leaves it, and a request for a certificate.

    **Examples**

    - `securedfl certs request hospital-a --host a.example.org`
    - `securedfl certs request hospital-a --host a.example.org --renew`
    """
    from securedfl.network.wire import requests

    asked = requests.request(folder, name, host or (), renew=renew)
    again = " --renew" if renew else ""
    typer.echo(f"Keep {asked.key} here. Send {asked.csr} to whoever holds the federation's authority, who runs:\n")
    if (folder / "ca.key").exists():
        typer.echo(f"securedfl certs sign {asked.csr} --dir {folder}{again}")
    else:
        typer.echo(
            f"securedfl certs sign {asked.csr.name} --dir KEYS{again}    # KEYS is the folder with ca.key; the file is "
            "wherever it was put"
        )
    if renew:
        typer.echo(f"\nNothing changes here until its certificate is back: {_install(f'{name}.crt', folder)}")
    elif not (folder / "ca.key").exists():
        typer.echo(f"\nPut {name}.crt and ca.crt, which come back, into {folder}")


@certs.command()
def sign(
    csr: Annotated[Path, typer.Argument(metavar="NAME.csr", help="What `securedfl certs request` made.")],
    folder: Folder = Path("keys"),
    days: Annotated[int, typer.Option(min=1, help="How long the certificate is valid.")] = 365,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate.")] = False,
) -> None:
    """Sign a site's request with the federation's authority, and print the site's line of the roster.

    **Example**

    - `securedfl certs sign hospital-a.csr --dir keys`
    """
    from securedfl.network.wire import requests

    path = requests.sign(folder, csr, days=days, renew=renew)
    if path.name.endswith(".next.crt"):
        typer.echo(f"{path} is for the key that waits here: {_install(path, folder)}")
        return
    typer.echo(f"Send {path} and {folder / 'ca.crt'} back to the site; {PLACE}:\n")
    typer.echo(_roster_line(path))
    if renew:
        typer.echo(f"\nIf it renews its key while the federation runs, the site runs: {_install(path.name, 'KEYS')}")


@certs.command()
def install(
    certificate: Annotated[Path, typer.Argument(metavar="NAME.crt", help="What came back from the authority.")],
    folder: Folder = Path("keys"),
) -> None:
    """Put a renewed certificate and the key that waits for it in the place of the old ones, both at once.

    If that is cut short, run it again.

    **Example**

    - `securedfl certs install hospital-a.crt`
    """
    from securedfl.network.wire.requests import install as put_in_place

    info = put_in_place(folder, certificate)
    path = folder / f"{info.name}.crt"
    typer.echo(f"{path} and {path.with_suffix('.key')} are the new pair, fingerprint {info.fingerprint}.")
    typer.echo(f"Tell all others, while the peer runs: securedfl roster renew PEER.toml --certificate {path}")


def _install(certificate: object, folder: object) -> str:
    return f"securedfl certs install {certificate} --dir {folder}"


@certs.command()
def show(
    files: Annotated[list[Path] | None, typer.Argument(help="Certificates; by default all of the folder.")] = None,
    folder: Folder = Path("keys"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show names, hosts, expiry and fingerprints of certificates.

    **Examples**

    - `securedfl certs show`
    - `securedfl certs show keys/hospital-a.crt --json`
    """
    from securedfl.network.wire.keys import describe

    found = files or sorted(folder.glob("*.crt"))
    if not found:
        raise ConfigError(f"there are no certificates in {folder}; make some: securedfl certs init --dir {folder}")
    infos = {path: describe(path) for path in found}
    if as_json:
        rows = [
            {
                "file": str(path),
                "name": info.name,
                "hosts": info.hosts,
                "not_before": info.not_before.isoformat(),
                "not_after": info.not_after.isoformat(),
                "fingerprint": info.fingerprint,
                "warning": info.expiry(),
            }
            for path, info in infos.items()
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("Name", "Hosts", "Valid until (UTC)")
    for info in infos.values():
        table.add_row(info.name, ", ".join(info.hosts), f"{info.not_after:%Y-%m-%d %H:%M}")
    console = Console(soft_wrap=True, highlight=False, emoji=False)
    console.print(table)
    # on lines of their own, because a table would cut them to the width of the terminal
    for info in infos.values():
        console.print(f"{info.fingerprint}  {info.name}", markup=False)
    for info in infos.values():
        if info.expiry():
            console.print(f"warning: {info.expiry()}", style="yellow", markup=False)


def _roster_line(certificate: Path) -> str:
    from securedfl.network.wire.keys import describe

    info = describe(certificate)
    where = next((host for host in info.hosts if host != info.name), "HOST")
    return roster_entry(info.name, f"{where}:7443", info.fingerprint)


def roster_entry(name: str, address: str, fingerprint: str, *, added: bool = False, kind: str = "peers") -> str:
    """Return the entry of a peer, or of ``relays``, for federation.toml; a peer without an address only dials out."""
    values = {"name": name, "address": address, "fingerprint": fingerprint}
    lines = [f"[[{kind}]]", *(f'{key} = "{value}"' for key, value in values.items() if value)]
    return "\n".join([*lines, "added = true"] if added else lines)
