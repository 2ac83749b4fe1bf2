"""``securedfl attack``: run an average on random numbers and attack it from what a coalition received."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from securedfl.attacks.intervals import narrow
from securedfl.attacks.rings import solve_ring
from securedfl.attacks.solving import Loot, max_error, record, recovered, solve
from securedfl.cli.audit import (
    DesignOption,
    IterationsOption,
    PeersOption,
    RhoOption,
    check_alone,
    check_collusion,
    chosen,
)
from securedfl.cli.options import Json, write
from securedfl.errors import ConfigError
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import readable_json
from securedfl.protocols.fixedpoint import FixedPoint
from securedfl.protocols.protocol import PAPER
from securedfl.protocols.steps import Array, Options


def attack(
    context: typer.Context,
    protocol: Annotated[str, typer.Option(help="classic, paper, grouped, shares, resilient or plain.")] = "classic",
    peers: PeersOption = None,
    group_size: Annotated[int, typer.Option(min=2, help="Peers per group.")] = 3,
    iterations: IterationsOption = None,
    parameters: Annotated[int, typer.Option(min=1, help="Length of every peer's vector.")] = 100_000,
    rho: RhoOption = None,
    strength: Annotated[int | None, typer.Option(min=1, help="Shares per peer.")] = None,
    collusion: Annotated[int, typer.Option(min=1, help="Size of the coalition; the worst one attacks.")] = 1,
    coalition: Annotated[
        str | None, typer.Option(metavar="PEER,...", help="The coalition itself, instead of its size.")
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(min=1, help="More than one: intersect intervals over rounds (paper, constant rho)."),
    ] = 1,
    dtype: Annotated[Literal["float32", "float64"], typer.Option(help="Of the vectors that travel.")] = "float32",
    design: DesignOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of design and numbers.")] = 0,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Steal images of digits and draw them (PNG or SVG).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack an average with nothing but what a coalition of its peers received.

    **Examples**

    - `securedfl attack` : the paper's lemma, all-to-all and two iterations
    - `securedfl attack --protocol paper --iterations 6` : group sums give everybody away
    - `securedfl attack --protocol grouped --collusion 2` : two colluders, behind perfect masks
    - `securedfl attack --protocol paper --rounds 40` : the same neighbours again and again, and rotation
    - `securedfl attack --picture stolen.png` : images stolen from peers, side by side with protected ones
    """
    if picture is not None:
        check_alone(context, "--picture shows classic beside grouped", ("picture", "seed", "as_json"))
        _picture(picture, seed=seed, as_json=as_json)
        return
    attacked = chosen(
        protocol,
        peers,
        group_size=group_size,
        path=design,
        seed=seed,
        collusion=1,
        given={"iterations": iterations, "rho": rho, "strength": strength},
    )
    members = None if coalition is None else _members(coalition, attacked.n)
    size = collusion if members is None else len(members)
    check_collusion(size, attacked.n)
    audited = Audit(attacked, shortcut=False)
    if rounds > 1:
        if size > 1:
            raise ConfigError(
                "--rounds attacks with one peer; leave --collusion away, and name one --coalition at most"
            )
        _rounds(audited, rounds, 0 if members is None else members[0], parameters, dtype, seed, as_json=as_json)
        return
    if members is None:
        members = Audit(attacked).certificate(collusion=size).worst_coalition
    if attacked.protocol.masks == "perfect":
        # every coordinate is solved for; these few stand for all
        parameters = max(audited.places, 4)
    result = _result(audited, members, _vectors(attacked.n, parameters, dtype, seed))
    typer.echo(readable_json(asdict(result)) if as_json else _words(result))


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """What an attack gave, in the order of ``--json``."""

    protocol: str
    options: Options
    parameters: int
    dtype: str
    coalition: tuple[int, ...]
    recovered: int
    recovered_peers: tuple[int, ...]
    claimed_peers: tuple[int, ...]
    exposed_by_audit: tuple[int, ...]
    max_abs_error: float | None
    expected_error: float | None
    condition: float | None
    seconds: float
    guessed_peers: tuple[int, ...]
    guessed_because: str | None


def _result(audited: Audit, members: tuple[int, ...], vectors: list[Array]) -> Attacked:
    """Attack, and compare what was recovered with the truth and with what the audit says."""
    started = time.perf_counter()
    loot = _attack(audited, members, vectors)
    exposed = audited.learns(members).exposed
    seconds = time.perf_counter() - started
    right = recovered(loot, vectors)
    guessed = tuple(sorted(set(right) - set(exposed)))
    return Attacked(
        protocol=audited.averaging.protocol.name,
        options=audited.options,
        parameters=len(vectors[0]),
        dtype=vectors[0].dtype.name,
        coalition=members,
        recovered=len(right),
        recovered_peers=right,
        claimed_peers=loot.claimed,
        exposed_by_audit=exposed,
        max_abs_error=max_error(loot, vectors, loot.claimed),
        expected_error=max(loot.expected_error.values(), default=None),
        condition=loot.condition,
        seconds=round(seconds, 3),
        guessed_peers=guessed,
        guessed_because=_why_guessed(audited.averaging.settled.widths) if guessed else None,
    )


def _attack(audit: Audit, members: tuple[int, ...], vectors: list[Array]) -> Loot:
    """Run the real protocol, take what the coalition holds, and solve."""
    attacked = audit.averaging
    held = record(attacked, vectors).overheard_by(members)
    if attacked.protocol.masks != "perfect":
        return solve(held, attacked, attacked.n)
    return solve_ring(held, audit.on_symbols(), attacked.n, attacked.codec or FixedPoint(), audit.ring)


def _words(result: Attacked) -> str:
    alone = len(result.coalition) == 1
    who, does, its = ("peer", "attacks", "it") if alone else ("peers", "attack", "they")
    names = ", ".join(map(str, result.coalition))
    options = ", ".join(f"{name} {value}" for name, value in result.options.items())
    lines = [
        f"{result.protocol}{f' ({options})' if options else ''}: {who} {names} {does} "
        f"an average of {result.parameters} parameters with what {its} received.",
        f"  recovered       {result.recovered} peer{'s' * (result.recovered != 1)} {_listed(result.recovered_peers)}",
        f"  audit says      {len(result.exposed_by_audit)} exposed {_listed(result.exposed_by_audit)}",
    ]
    if result.max_abs_error is not None:
        lines.append(
            f"  largest error   {result.max_abs_error:.3g} (expected: about {result.expected_error:.1g}; "
            f"condition {result.condition:.3g})"
        )
    lost = sorted(set(result.exposed_by_audit) - set(result.recovered_peers))
    if lost:
        lines.append(f"  drowned         peers {lost} are determined, but rounding of {result.dtype} hides them")
    if result.guessed_peers:
        lines.append(
            f"  guessed         peers {_listed(result.guessed_peers)} are not computed, but guessed near enough: "
            f"{result.guessed_because}"
        )
    return "\n".join(lines)


def _listed(peers: tuple[int, ...]) -> str:
    return str(list(peers)) if peers else ""


def _why_guessed(widths: tuple[float, ...]) -> str:
    """Return why an estimate is right although the audit says that the parameters cannot be computed."""
    if widths:
        return (
            f"masks are only {widths[0]:.3g} wide, and a message leaves an interval of "
            f"{min(widths):.3g} (training refuses such masks)"
        )
    return "by luck; attack more --parameters"


def _rounds(
    audited: Audit, rounds: int, attacker: int, parameters: int, dtype: str, seed: int, *, as_json: bool
) -> None:
    """Intersect what one peer learns about a neighbour over rounds, and print it."""
    design, row = audited.averaging.design, audited.averaging.protocol
    if row is not PAPER or not isinstance(audited.options["rho"], int | float):
        raise ConfigError("--rounds is an attack on bounded masks: use --protocol paper and a constant --rho")
    if audited.averaging.settled.parts != 2:
        raise ConfigError("--rounds attacks averages of 2 iterations; leave --iterations away")
    vectors = _vectors(design.n, min(parameters, 1000), dtype, seed)
    result: dict[str, Any] = {
        "rounds": rounds,
        "rho": audited.options["rho"],
        "mask_width": 1 / audited.options["rho"],
    }
    for name, rotate in (("neighbours_fixed", False), ("partitions_rotate", True)):
        found = narrow(
            lambda _round: vectors,
            design,
            rounds=rounds,
            rho=audited.options["rho"],
            attacker=attacker,
            rotate=rotate,
        )
        result[name] = {"messages": found.messages[-1], "width": found.widths[-1], "error": found.errors[-1]}
    result["spread_of_parameters"] = float(np.std(vectors[1]))
    if as_json:
        typer.echo(readable_json(result))
        return
    typer.echo(f"Peer {attacker} attacks a neighbour over {rounds} rounds; parameters do not move (the worst case).")
    for name in ("neighbours_fixed", "partitions_rotate"):
        line = result[name]
        typer.echo(
            f"  {name.replace('_', ' '):<18} {line['messages']:>4} messages; interval {line['width']:.3g} wide "
            f"(one mask: {result['mask_width']:.3g}); guess off by {line['error']:.3g} on average"
        )
    typer.echo(f"  parameters themselves spread by {result['spread_of_parameters']:.3g}")


def _picture(path: Path, *, seed: int, as_json: bool) -> None:
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"the picture {path} must be a .png or .svg file")
    write(path, [])  # before the work, so that a place that cannot be written is known at once
    from securedfl.attacks import demonstration

    images, filters = demonstration.picture(path, seed=seed)
    result = {
        "picture": str(path),
        "images_stolen": images.recovered,
        "images_stolen_from_grouped": images.recovered_protected,
        "filters_stolen": filters.recovered,
        "filters_stolen_from_grouped": filters.recovered_protected,
        "peers": len(images.peers),
    }
    if as_json:
        typer.echo(readable_json(result))
    else:
        typer.echo(
            f"{path}: {images.recovered} of {result['peers']} private images stolen from an all-to-all average, "
            f"{images.recovered_protected} from a grouped one."
        )


def _members(text: str, n: int) -> tuple[int, ...]:
    try:
        members = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise ConfigError(f"--coalition {text}: give peers as numbers, such as 0,3") from None
    if not all(0 <= member < n for member in members) or len(members) >= n:
        raise ConfigError(f"--coalition {text}: name 1 to {n - 1} of the peers 0 to {n - 1}")
    return members


def _vectors(n: int, parameters: int, dtype: str, seed: int) -> list[Array]:
    source = np.random.default_rng(seed)
    return [source.normal(0, 0.05, parameters).astype(dtype) for _ in range(n)]
