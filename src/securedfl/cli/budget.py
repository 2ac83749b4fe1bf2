"""``securedfl budget``: noise, epsilon, rounds and batches of differential privacy; give some, get the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from securedfl.cli.audit import check_collusion
from securedfl.cli.options import Json, a_file
from securedfl.cli.tables import LOOK
from securedfl.errors import ConfigError, needing
from securedfl.privacy.budget import words
from securedfl.privacy.budget.plan import Plan, Unit
from securedfl.storage import cannot_write

SPREAD = 40
"""Points of a line in the picture."""

NOT_GIVEN = {"noise": "--noise-multiplier", "epsilon": "--epsilon", "rounds": "--rounds", "sampling": "--batch"}


def budget(
    unit: Annotated[Unit, typer.Option(help="What is protected.")] = "record",
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", "--sigma", help="Honest noise of the total, over the clip.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget.")] = None,
    delta: Annotated[float, typer.Option(help="Below 1/records.")] = 1e-5,
    rounds: Annotated[int | None, typer.Option(min=1, help="Averages, so steps of the common model.")] = None,
    records: Annotated[int | None, typer.Option(min=1, help="Of all sites together.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Records of all sites per step, on average.")] = None,
    sites: Annotated[int, typer.Option("--sites", "--peers", min=2, help="Peers that average.")] = 9,
    collusion: Annotated[int, typer.Option(min=1, help="Colluders, whose noise does not count.")] = 1,
    parameters: Annotated[int, typer.Option(min=1, help="Of the model: decide how fine the grid must be.")] = 1_000_000,
    picture: Annotated[Path | None, a_file("Draw epsilon against noise, as .svg or .png.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what noise a budget takes, what epsilon a noise gives, or how many rounds or how large batches fit.

    Leave away what you want to know: one of --noise-multiplier, --epsilon, --rounds and --batch. Clips do not matter:
    noise is told in parts of the clip.

    **Examples**

    - `securedfl budget --sigma 1.5 --rounds 308 --records 62985 --batch 2048 --collusion 2` : what epsilon?
    - `securedfl budget --epsilon 2 --rounds 308 --records 62985 --batch 2048 --picture budget.svg` : what noise?
    - `securedfl budget --epsilon 2 --sigma 1.5 --records 62985 --batch 2048` : how many rounds?
    - `securedfl budget --unit site --sites 500 --epsilon 4 --rounds 50 --delta 1e-4`
    """
    check_collusion(collusion, sites)
    given = {"noise": noise_multiplier, "epsilon": epsilon, "rounds": rounds, "sampling": batch}
    wanted = _wanted(unit, given, records=records, delta=delta)
    plan = Plan(
        unit=unit,
        noise="distributed",
        clip=1.0,
        noise_multiplier=noise_multiplier or 0.0,
        sampling=(batch or 1) / records if records else 1.0,
        delta=delta,
        peers=sites,
        collusion=collusion,
        rounds=rounds or 1,
        size=parameters,
        units=records or sites,
    )
    with needing("differential privacy", "dp"):
        import dp_accounting  # noqa: F401 - an error before any work if it is missing
    from securedfl.privacy.budget import compare

    found = compare.solve(plan, epsilon=epsilon, find=wanted)
    shown = compare.cases(found)
    if picture is not None:
        _draw(found, picture)
    colluders = dict(compare.by_colluders(found))
    if as_json:
        kinds = {
            case.plan.noise: {
                "epsilon": case.plan.planned,
                "epsilon_by_privacy_loss": case.tighter,
                "noise_in_mean": case.plan.noise_in_mean,
            }
            for case in shown
        }
        promise = words.PrivacyPromise.of(found).to_dict("sentence", "epsilon_by_round")
        by = {str(count): value if math.isfinite(value) else None for count, value in colluders.items()}
        more = {"rounds": found.rounds, "sites": sites, "collusion": collusion, "kinds": kinds}
        typer.echo(json.dumps({"found": wanted, **promise, **more, "epsilon_by_colluders": by}, indent=2))
        return
    _tell(found, shown, colluders)


def _wanted(unit: Unit, given: Mapping[str, float | None], *, records: int | None, delta: float) -> str:
    """Return which one thing is to be found; what was given must make sense."""
    batch = given["sampling"]
    if unit == "record":
        if records is None:
            raise ConfigError("--records: say how many records all sites have together")
        if batch is not None and batch > records:
            raise ConfigError(f"--batch {batch}: there are only {records} records")
    elif batch is not None or records is not None:
        raise ConfigError("--batch and --records are for --unit record; all sites take part in every round")
    for name in ("noise", "epsilon"):
        value = given[name]
        if value is not None and not (0 < value < math.inf):
            raise ConfigError(f"{NOT_GIVEN[name]} {value}: give a number above 0")
    if not 0 < delta < 1:
        raise ConfigError(f"--delta {delta}: give a probability between 0 and 1")
    asked = [name for name in given if unit == "record" or name != "sampling"]
    missing = [name for name in asked if given[name] is None]
    if len(missing) != 1:
        names = ", ".join(NOT_GIVEN[name] for name in asked)
        raise ConfigError(f"leave away exactly one of {names}: what you want to know; {len(missing)} are not given")
    return missing[0]


def _tell(plan: Plan, shown: list[Any], colluders: dict[int, float]) -> None:
    console = Console(highlight=False, emoji=False)
    batch = f", batches of {plan.sampling * plan.units:.0f} of {plan.units} records" if plan.unit == "record" else ""
    console.print(
        f"Noise multiplier {plan.noise_multiplier:.4g}, {plan.rounds} rounds{batch}, {plan.peers} sites, "
        f"{plan.collusion} may collude, delta {plan.delta:g}: epsilon {plan.planned:.3g}",
        soft_wrap=True,
    )
    table = Table(title="\nThe same promise, kept in three ways", **LOOK)
    for number, column in enumerate(("Noise", "Epsilon", "Gaussian", "In the mean", "Holds against")):
        table.add_column(column, justify="left" if number in (0, 4) else "right", no_wrap=True)
    against = {
        "distributed": f"any {plan.collusion} of {plan.peers} peers",
        "local": "all others together",
        "central": "readers; a server sees all",
    }
    for case in shown:
        values = (f"{case.plan.planned:.3g}", f"{case.tighter:.3g}", f"{case.plan.noise_in_mean:.3g} clip")
        table.add_row(case.plan.noise, *values, against[case.plan.noise])
    console.print(table)
    console.print("Gaussian: by privacy loss distributions, for comparison. In the mean: noise of each number.")
    other = Table(title="\nWith the same noise at every site, if", **LOOK)
    other.add_column("Colluders, or honest members missing", justify="right")
    other.add_column("Epsilon", justify="right")
    for count, value in colluders.items():
        if count <= 3 or count in (plan.collusion, plan.peers // 2, plan.peers - 1):
            other.add_row(str(count), f"{value:.3g}" if math.isfinite(value) else "no bound")
    console.print(other)
    console.print(f"\n{words.sentence(plan, 0.0)}", soft_wrap=True)


def _draw(plan: Plan, path: Path) -> None:
    from securedfl.privacy.budget import compare
    from securedfl.reporting.budget import epsilon_by_noise
    from securedfl.reporting.svg import save_figure

    if path.suffix not in (".svg", ".png"):
        raise ConfigError(f"--picture {path}: give a file that ends in .svg or .png")
    middle = plan.noise_multiplier
    multipliers = [middle * 10 ** (2 * place / SPREAD - 1) for place in range(SPREAD + 1)]
    chosen = ([plan.noise_in_mean], [plan.planned])
    figure = epsilon_by_noise(compare.curves(plan, multipliers), chosen)
    try:
        save_figure(figure, path)
    except OSError as error:
        raise cannot_write(path, error) from None
