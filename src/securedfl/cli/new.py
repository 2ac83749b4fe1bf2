"""``securedfl new``: a project that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from securedfl.errors import needing


def new(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make.")],
    framework: Annotated[
        Literal["pytorch", "huggingface", "lightning"], typer.Option(help="What the model is written with.")
    ] = "pytorch",
) -> None:
    """Write a project that runs: an app, a test, a federation of three sites on this machine, and a README.

    **Examples**

    - `securedfl new trial`
    - `securedfl new reviews --framework huggingface`
    """
    with needing("real peers"):
        from securedfl.federation.founding.project import NEEDS, new_project

    for path in new_project(name, framework):
        typer.echo(path)
    typer.echo(f"\nThe app needs: {NEEDS[framework]}")
    typer.echo(f"Next: cd {name} && securedfl train --entry app:make --peers 9 --rounds 5")
