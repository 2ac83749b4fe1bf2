"""``securedfl attack``: run an average on random numbers and attack it from what a coalition received."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
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
from securedfl.cli.options import Json, a_file, write
from securedfl.errors import ConfigError
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import readable_json
from securedfl.protocols.fixedpoint import FixedPoint
from securedfl.protocols.protocol import PAPER
from securedfl.protocols.steps import Array


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
    picture: Annotated[Path | None, a_file("Steal images of digits and draw them (PNG or SVG).")] = None,
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
    attack = _attack(audited, members, _vectors(attacked.n, parameters, dtype, seed))
    typer.echo(readable_json(attack.to_dict()) if as_json else _words(attack))


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What a coalition made of what it received in an average of these vectors, and whom the audit calls exposed."""

    audited: Audit
    coalition: tuple[int, ...]
    vectors: list[Array]
    loot: Loot
    exposed: tuple[int, ...]
    seconds: float

    @cached_property
    def recovered(self) -> tuple[int, ...]:
        """The peers whose parameters the coalition has, compared with the truth."""
        return recovered(self.loot, self.vectors)

    @property
    def guessed(self) -> tuple[int, ...]:
        """Those of them that the audit says cannot be computed."""
        return tuple(sorted(set(self.recovered) - set(self.exposed)))

    @property
    def guessed_because(self) -> str:
        """Why an estimate is right although the audit says that the parameters cannot be computed."""
        widths = self.audited.averaging.settled.widths
        if not widths:
            return "by luck; attack more --parameters"
        return (
            f"masks are only {widths[0]:.3g} wide in units of a parameter's value, and a message leaves an interval of "
            f"{min(widths):.3g} (training refuses such masks)"
        )

    @property
    def max_abs_error(self) -> float | None:
        """How far what it claims to have computed is from the truth."""
        return max_error(self.loot, self.vectors, self.loot.claimed)

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "protocol": self.audited.averaging.protocol.name,
            "options": self.audited.options,
            "parameters": len(self.vectors[0]),
            "dtype": self.vectors[0].dtype.name,
            "coalition": self.coalition,
            "recovered": len(self.recovered),
            "recovered_peers": self.recovered,
            "claimed_peers": self.loot.claimed,
            "exposed_by_audit": self.exposed,
            "max_abs_error": self.max_abs_error,
            "expected_error": max(self.loot.expected_error.values(), default=None),
            "condition": self.loot.condition,
            "seconds": round(self.seconds, 3),
            "guessed_peers": self.guessed,
            "guessed_because": self.guessed_because if self.guessed else None,
        }


def _attack(audited: Audit, members: tuple[int, ...], vectors: list[Array]) -> Attack:
    """Run the real protocol, take what the coalition holds, and solve; then ask the audit about the same coalition."""
    started = time.perf_counter()
    attacked = audited.averaging
    held = record(attacked, vectors).overheard_by(members)
    if attacked.protocol.masks == "perfect":
        codec = attacked.codec or FixedPoint()
        loot = solve_ring(held, audited.on_symbols(), attacked.n, codec, audited.ring)
    else:
        loot = solve(held, attacked, attacked.n)
    exposed = audited.learns(members).exposed
    seconds = time.perf_counter() - started
    return Attack(audited=audited, coalition=members, vectors=vectors, loot=loot, exposed=exposed, seconds=seconds)


def _words(attack: Attack) -> str:
    alone = len(attack.coalition) == 1
    who, does, its = ("peer", "attacks", "it") if alone else ("peers", "attack", "they")
    names = ", ".join(map(str, attack.coalition))
    options = ", ".join(f"{name} {value}" for name, value in attack.audited.options.items())
    count, vector = len(attack.recovered), attack.vectors[0]
    lines = [
        f"{attack.audited.averaging.protocol.name}{f' ({options})' if options else ''}: {who} {names} {does} "
        f"an average of {len(vector)} parameters with what {its} received.",
        f"  recovered       {count} peer{'s' * (count != 1)} {_listed(attack.recovered)}",
        f"  audit says      {len(attack.exposed)} exposed {_listed(attack.exposed)}",
    ]
    if attack.max_abs_error is not None:
        lines.append(
            f"  largest error   {attack.max_abs_error:.3g} (expected: about "
            f"{max(attack.loot.expected_error.values()):.1g}; condition {attack.loot.condition:.3g})"
        )
    lost = sorted(set(attack.exposed) - set(attack.recovered))
    if lost:
        lines.append(f"  drowned         peers {lost} are determined, but rounding of {vector.dtype.name} hides them")
    if attack.guessed:
        lines.append(
            f"  guessed         peers {_listed(attack.guessed)} are not computed, but guessed near enough: "
            f"{attack.guessed_because}"
        )
    return "\n".join(lines)


def _listed(peers: tuple[int, ...]) -> str:
    return str(list(peers)) if peers else ""


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
