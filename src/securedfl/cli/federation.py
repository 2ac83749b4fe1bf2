"""``securedfl federation``: the files of a new federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from securedfl.cli.options import address_of, with_settings
from securedfl.errors import ConfigError, needing

federation = typer.Typer(help="Begin a federation.", no_args_is_help=True, rich_markup_mode="markdown")


@federation.callback()
def _group() -> None:
    """Keep ``init`` a command of its own."""


@with_settings()
def init(
    sites: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=HOST:PORT...",
            help="The sites; NAME=none only dials out (listen = false); with --keys a name is enough.",
        ),
    ],
    folder: Annotated[Path, typer.Option("--dir", help="Where the files go.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Names the run.", show_default="federation")] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Make all keys here, for a trial; else each site makes its own.")
    ] = False,
    max_weight: Annotated[
        float | None, typer.Option(metavar="SAMPLES", help="With --weighted: the most samples of any site.")
    ] = None,
    lying: Annotated[
        int | None, typer.Option(metavar="PEERS", help="How many may lie without forking or forging the log (0).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write files anew; what is not set here stays.")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Write federation.toml, and each site's NAME.toml, from names and addresses.

    Options of training go into federation.toml; `--data` into each site's file, with `{name}` and `{number}` filled in.

    **Examples**

    - `securedfl federation init a=a.example.org:7443 b=b.example.org:7443 c=c.example.org:7443 --entry app:make`
    - `securedfl federation init a=a.example.org:7443 b=none c=none --entry app:make`
    - `securedfl federation init a b c --keys --entry app:make --rounds 5 --data path=data/{name}.csv`
    """
    with needing("real peers"):
        from securedfl.federation.apps.settings import own_data
        from securedfl.federation.config import TrainConfig
        from securedfl.federation.founding.files import (
            FEDERATION,
            KEYS,
            NewSite,
            addresses,
            free_ports,
            write_federation,
        )
        from securedfl.federation.peers.config import NOT_SHARED
        from securedfl.privacy.run_certificate import told

    entry, data = settings.pop("entry", None), settings.pop("data", {})
    for key in NOT_SHARED & settings.keys():
        raise ConfigError(f"--{key.replace('_', '-')} is nothing that all sites share; leave it away")
    known, has_entry = addresses(folder) if replace else ({}, False)
    if data and entry is None and not has_entry:
        raise ConfigError("--data is handed to an app; name one with --entry")
    texts = TrainConfig.checked({"entry": entry, "data": data or None}, "the options")
    ports = iter(free_ports(len(sites)))
    begun = []
    for number, site in enumerate(sites):
        called, _, address = site.partition("=")
        address = address or known.get(called) or (f"127.0.0.1:{next(ports)}" if keys else _unknown(called))
        own = {"data": own_data(texts, number, called)} if data else {}
        begun.append(NewSite(name=called, address=address_of(address), own=own))
    shared = {"name": name, "entry": entry, "max_weight": max_weight, "lying": lying, "train": settings}
    made = write_federation(folder, begun, shared, issue=keys, replace=replace)
    paths = made.files
    for line in (folder / FEDERATION, *paths, *made.kept):
        typer.echo(line)
    typer.echo(f"\n{told(made.certificates)}")
    typer.echo(_silent(begun) + "\nNext:\n" + "\n".join(_next(made.missing, begun, folder / KEYS, paths)))
    if made.federation.entry is None:
        typer.echo(_trial(made.federation.training.dataset, paths[0]))


def _trial(dataset: str | None, first: Path) -> str:
    """Return what peers do in a federation without an app."""
    return (
        f"\nWithout --entry, `securedfl peer` trains the data set {dataset}, dealt to the "
        "sites, for a trial. For data of your own\nname an app with --entry, or join from your own loop at each "
        f'site: securedfl.join("{first}") (docs/guides/own-models.md)'
    )


def _unknown(name: str) -> NoReturn:
    raise ConfigError(
        f"where do others reach {name}? Give {name}=HOST:PORT, {name}=none if it only dials out, or --keys for a trial "
        "here"
    )


def _silent(sites: list[Any]) -> str:
    """Return who joins those that only dial out, if there are any."""
    names = [site.name for site in sites if not site.address]
    listed = ", ".join(names)
    if not names:
        return ""
    if len(names) == len(sites):
        return (
            f"\nAll sites ({listed}) only dial out: without a relay nobody reaches anybody. Run one (`securedfl relay "
            "--help`), and name it under [[relays]] in federation.toml of all sites (docs/guides/network.md).\n"
        )
    who = "Each dials the sites that listen, and two of them are joined by one of those."
    return f"\nOnly dialling out: {listed}. {who}\n"


def _next(missing: list[str], sites: list[Any], keys: Path, paths: list[Path]) -> list[str]:
    """Return what is left to do."""
    if not missing:
        first, *others = paths
        checks = [f"securedfl check {path} --wait 60" for path in (first, *others)]
        return [
            *(f"{command}    # at each site, at the same time: is all in place?" for command in checks[:1]),
            *checks[1:],
            *(f"securedfl peer {path}    # then each of these" for path in paths[:1]),
            *(f"securedfl peer {path}" for path in others),
        ]
    # late: the network takes a moment
    from securedfl.network.wire.values import split_address

    hosts = {site.name: f" --host {split_address(site.address)[0]}" if site.address else "" for site in sites}
    return [
        f"securedfl certs init --dir {keys}    # once, by whoever holds the federation's authority",
        *(f"securedfl certs request {site}{hosts[site]} --dir {keys}    # at {site}" for site in missing),
        *(f"securedfl certs sign {keys / site}.csr --dir {keys}    # the file that {site} sends" for site in missing),
        "then the same command again with --replace: it fills in the fingerprints, and what you added stays;",
        "each site gets federation.toml, its own NAME.toml, its NAME.crt and ca.crt;",
        "then `securedfl check NAME.toml --wait 60` at all sites at once",
    ]


federation.command("init")(init)
