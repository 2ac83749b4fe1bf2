"""``securedfl design``: build a design and show how good it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from securedfl import designs
from securedfl.cli.options import a_file, write
from securedfl.designs.drawing import design_svg
from securedfl.errors import DesignError

METHODS: dict[str, Callable[[int, int, int], designs.Design]] = {
    "best": designs.best,
    "constructed": designs.constructed,
    "local-search": designs.local_search,
    "randomized": designs.randomized,
}

COMPARED_UP_TO = 300
"""Peers up to which the paper's algorithm runs for comparison; beyond, it takes longer than a reader waits."""

SHOWN = 12
"""Partitions printed; all are in ``--json`` and ``--out``."""


def design(
    peers: Annotated[int, typer.Argument(metavar="N", help="Number of peers, 3 to 20,000.", show_default=False)],
    group_size: Annotated[
        str,
        typer.Option(metavar="SIZE|auto", help="Peers per group; auto: what withstands --collusion, as train does."),
    ] = "3",
    collusion: Annotated[int, typer.Option(help="With --group-size auto: how many colluding peers to withstand.")] = 1,
    method: Annotated[
        str,
        typer.Option(metavar="|".join(METHODS), help="How to build; randomized is the paper's algorithm."),
    ] = "best",
    seed: Annotated[int, typer.Option(help="Other seeds give other designs, equally good.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON and nothing else.")] = False,
    svg: Annotated[Path | None, a_file("Draw the partitions.", dir_okay=False)] = None,
    out: Annotated[Path | None, a_file("Save the design as JSON.", dir_okay=False)] = None,
) -> None:
    """Build a design: who meets whom, such that no two peers meet twice.

    For example:

    * `securedfl design 15` prints 7 partitions of 15 peers into triples

    * `securedfl design 20 --group-size 4 --svg groups.svg` draws them

    * `securedfl design 40 --group-size auto --collusion 3` chooses the group size

    * `securedfl design 9 --method randomized --seed 7 --out design.json` saves one of the paper's
    """
    chosen, reason = _build(peers, group_size, collusion, method, seed)
    picture = "" if svg is None else design_svg(chosen)
    if svg is not None and not picture:
        raise DesignError(f"{chosen.n} peers are too many for a drawing; use --out, which has every group")
    if out is not None:
        write(out, chain(chosen.json_pieces(), "\n"))
    if svg is not None:
        write(svg, [picture, "\n"])
    if as_json:
        for piece in chosen.json_pieces():
            typer.echo(piece, nl=False)
        typer.echo()
        return
    _show(chosen, reason, compare=method != "randomized", seed=seed)
    for path in (out, svg):
        if path is not None:
            typer.echo(f"written     {path}")


def _build(peers: int, group_size: str, collusion: int, method: str, seed: int) -> tuple[designs.Design, str | None]:
    if method not in METHODS:
        raise DesignError(f"unknown method {method!r}; use one of {', '.join(METHODS)}")
    if group_size == "auto":
        choice = designs.choose(peers, collusion=collusion, seed=seed, make=METHODS[method])
        return choice.design, choice.reason
    if not group_size.isdecimal():
        raise DesignError(f"the group size must be a whole number or auto, not {group_size!r}")
    return METHODS[method](peers, int(group_size), seed), None


def _show(chosen: designs.Design, reason: str | None, *, compare: bool, seed: int) -> None:
    sizes = " and ".join(map(str, reversed(chosen.sizes)))
    at_bound = " (met)" if chosen.gap == chosen.bound else ""
    lines = [
        ("peers", f"{chosen.n} in groups of {sizes}"),
        ("partitions", f"{chosen.gap} (the gap); upper bound {chosen.bound}{at_bound}"),
        ("method", chosen.method),
    ]
    if reason:
        lines.append(("chosen", reason))
    if compare and chosen.n <= COMPARED_UP_TO:
        found = designs.randomized(chosen.n, chosen.group_size, seed).gap
        lines.append(("paper", f"its Algorithm 2 finds {found} partition{'s' * (found != 1)} with this seed"))
    lines.append(("hash", chosen.hash))
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    for name, text in lines:
        console.print(f"{name:<11} {text}")
    for i in range(min(chosen.gap, SHOWN)):
        groups = chosen.partition(i)
        text = "  ".join(" ".join(str(p) for p in group) for group in groups[:40])
        console.print(f"{i:>4}  {text}{'  ...' if len(groups) > 40 else ''}")
    if chosen.gap > SHOWN:
        console.print(f"      and {chosen.gap - SHOWN} more: see --json or --out")
