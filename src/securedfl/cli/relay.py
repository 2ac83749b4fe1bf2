"""``securedfl relay``: joins peers that cannot reach each other."""

from __future__ import annotations

import resource
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer


def relay(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")],
    key: Annotated[Path, typer.Option(help="The relay's own key.")],
    certificate: Annotated[Path, typer.Option(help="Its certificate, issued by the federation's authority.")],
    authority: Annotated[Path, typer.Option(help="The federation's authority, ca.crt.")],
    pairs: Annotated[int, typer.Option(min=1, help="Most connections of one peer.")] = 64,
) -> None:
    """Join peers that cannot reach each other. It sees who talks to whom and how much, but not what.

    Peers find it under `relays` of federation.toml. TLS is between the two ends. It keeps nothing on disk and may be
    killed at any time; there may be several. Stop it with Ctrl-C or SIGTERM.

    **Example**

    - `securedfl certs issue relay-a --host relay.example.org`
    - `securedfl relay --listen 0.0.0.0:7444 --key relay-a.key --certificate relay-a.crt --authority ca.crt`
    """
    from securedfl.cli.certs import roster_entry
    from securedfl.network.wire.contact.relay import RelayServer
    from securedfl.network.wire.keys import KeyFiles, describe
    from securedfl.network.wire.values import Limits

    # two descriptors for every pair that it joins
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    server = RelayServer(KeyFiles(key, certificate, authority), listen, Limits(joined=pairs))
    info = describe(certificate)
    typer.echo(f"relay {info.name} listens at {server.address}, fingerprint {info.fingerprint}")
    where = next((host for host in info.hosts if host != info.name), "HOST")
    address = f"{where}:{server.address.rpartition(':')[2]}"
    typer.echo(
        f"for federation.toml of all sites:\n\n{roster_entry(info.name, address, info.fingerprint, kind='relays')}\n"
    )
    if info.expiry():
        typer.echo(f"warning: {info.expiry()}", err=True)
    try:
        stop.wait()
    finally:
        server.close()
        typer.echo(f"stopped; {server.relay.bytes:,} bytes were passed on")
