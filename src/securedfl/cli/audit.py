"""``securedfl audit``: what coalitions can learn, computed by running the protocol's code on symbols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from securedfl.cli.options import Json, a_file, read_rho, write
from securedfl.designs import Design
from securedfl.designs.best import withstanding
from securedfl.errors import ConfigError, DesignError, RunFolderError
from securedfl.federation.run_folder import files
from securedfl.privacy.audit import Audit
from securedfl.privacy.certificate import Certificate, readable_json
from securedfl.privacy.drawing import exposure_svg, exposure_text
from securedfl.protocols.admm import Schedule
from securedfl.protocols.protocol import Averaging, by_name, design_for

Method = Literal["auto", "symbols"]

PEERS = 9
"""How many, if nothing else is said."""

PeersOption = Annotated[int | None, typer.Option(min=2, help="Number of peers.", show_default="9")]
IterationsOption = Annotated[int | None, typer.Option(min=1, help="ADMM iterations per average.")]
RhoOption = Annotated[str | None, typer.Option(metavar="NUMBER|START,DECAY,PERIOD", help="Of paper and classic.")]
DesignOption = Annotated[Path | None, a_file("A design file instead of the best known design.")]


def audit(
    context: typer.Context,
    peers: PeersOption = None,
    group_size: Annotated[
        str,
        typer.Option(metavar="auto|NUMBER", help="Peers per group; auto takes what protects best, as train does."),
    ] = "auto",
    protocol: Annotated[str, typer.Option(help="grouped, shares, resilient, paper, classic or plain.")] = "grouped",
    iterations: IterationsOption = None,
    rho: RhoOption = None,
    strength: Annotated[
        int | None, typer.Option(min=1, help="Shares per peer; by default as many as --collusion needs.")
    ] = None,
    collusion: Annotated[int, typer.Option(min=1, help="Members of a coalition.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of federated learning; partitions rotate.")] = 1,
    design: DesignOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the design.")] = 0,
    method: Annotated[
        Method, typer.Option(help="symbols runs the code itself even where connected components say all.")
    ] = "auto",
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show certificate and ledger of a run folder instead.")
    ] = None,
    svg: Annotated[Path | None, a_file("Draw who can learn about whom.")] = None,
    as_json: Json = False,
) -> None:
    """Tell exactly what any coalition of peers can learn about the others.

    **Examples**

    - `securedfl audit --peers 9 --group-size 3 --iterations 8` : the paper calls 7 iterations safe
    - `securedfl audit --peers 15 --protocol shares --collusion 3 --svg who.svg`
    - `securedfl audit --protocol paper` : the publication's floats, and what they leak
    - `securedfl audit --peers 999 --json`
    - `securedfl audit --run runs/digits-9-20250101-120000`
    """
    if run is not None:
        check_alone(context, "--run shows what a run has certified", ("run", "as_json"))
        _show_run(run, as_json=as_json)
        return
    audited = Audit(
        chosen(
            protocol,
            peers,
            group_size=parse_group_size(group_size),
            path=design,
            seed=seed,
            collusion=collusion,
            given={"iterations": iterations, "rho": rho, "strength": strength},
        ),
        shortcut=method == "auto",
    )
    certificate = audited.certificate(collusion=collusion, rounds=rounds)
    if svg is not None:
        title = f"{protocol}, {audited.n} peers: who can learn about whom"
        write(svg, [exposure_svg(certificate.levels, title, collusion=collusion)])
    if as_json:
        typer.echo(certificate.to_json())
        return
    typer.echo(describe(certificate))
    picture = exposure_text(certificate.levels)
    if picture:
        who = "a curious peer" if collusion == 1 else f"a member of a coalition of {collusion}"
        typer.echo(f"\nWhat {who} (row) can learn about a peer (column):")
        typer.echo(picture)
        typer.echo(". only the total   o some function of it and others   X its parameters")


def parse_group_size(text: str) -> int | Literal["auto"]:
    """Read a number of peers per group, or "auto"."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 2:
        raise ConfigError(f"--group-size {text}: give auto, or a number of at least 2")
    return int(text)


def check_collusion(collusion: int, n: int) -> None:
    """Refuse a coalition that leaves nobody to learn about."""
    if collusion >= n:
        raise ConfigError(f"--collusion {collusion}: a coalition among {n} peers has 1 to {n - 1} members")


def check_alone(context: typer.Context, why: str, but: Collection[str]) -> None:
    """Refuse options that another one leaves no choice about, instead of not minding them."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in but
        and (source := context.get_parameter_source(name)) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise ConfigError(f"{why}; leave {', '.join(given)} away")


def chosen(
    protocol: str,
    peers: int | None,
    *,
    group_size: int | Literal["auto"],
    path: Path | None,
    seed: int,
    collusion: int,
    given: Mapping[str, Any],
) -> Averaging:
    """Put together what is audited or attacked, from options of which a protocol takes those that it has.

    Parameters
    ----------
    protocol, peers, group_size, path, seed
        What, among how many, and who meets whom: the design of a file, or the one that training would choose.
    collusion
        How many colluders it shall withstand; if the design cannot, as many as it can.
    given
        Options of protocols; None stands for not given.
    """
    row = by_name(protocol)
    for name, value in given.items():
        if value is not None and name not in row.options:
            takes = ", ".join(f"--{option}" for option in given if option in row.options) or "none of these options"
            raise ConfigError(f"--{name} is not for the protocol {row.name}; it takes {takes}")
    n = PEERS if peers is None else peers
    if path is not None:
        design = Design.load(path)
        if peers is not None and design.n != peers:
            raise DesignError(f"the design {path} is for {design.n} peers, but --peers says {peers}")
    check_collusion(collusion, n if path is None else design.n)
    if path is None:
        design = design_for([row], n, collusion=collusion, group_size=group_size, seed=seed)
    options = {name: value for name, value in given.items() if value is not None}
    if "rho" in options:
        options["rho"] = parse_rho(options["rho"])
    if options.get("iterations") == 1 and "finish" in row.options:
        options["finish"] = "literal"
    if "strength" in row.options and "strength" not in options:
        # where nothing withstands the wish, all partitions: the audit shows what that is worth
        enough = withstanding(design, collusion)
        options["strength"] = enough.strength if enough.collusion == collusion else design.gap
    return row.on(design, seed=seed, **options)


def parse_rho(text: str) -> float | Schedule:
    """Read a number, or START,DECAY,PERIOD, as protocols take it."""
    read = read_rho(text)
    return Schedule(**read) if isinstance(read, dict) else float(Schedule(start=read).start)


def describe(certificate: Certificate) -> str:
    """Return a certificate for people."""
    c = certificate
    options = ", ".join(f"{name} {value}" for name, value in c.options.items() if value is not None)
    scope = f"all {c.examined}" if c.exhaustive else f"{c.examined} (a search, not all)"
    lines = [
        f"{c.protocol}{f' ({options})' if options else ''}: {c.peers} peers in groups of {c.group_size}, "
        f"{c.gap} partition{'s' * (c.gap != 1)} (design {c.design})",
        f"  verdict               {c.verdict}",
        f"  masks                 {c.kind}"
        + (f", {c.width:.4g} wide" if c.width is not None else "")
        + (", TOO NARROW to hide an update" if c.narrow else ""),
        f"  coalitions of {c.collusion:<7} {scope}; {c.breaking} of them expose somebody",
        f"  worst coalition       {_numbers(c.worst_coalition)}: exposes {len(c.exposed)} peers, "
        f"learns {c.dimension} functions beyond the total",
    ]
    if len(c.exposed_by_iteration) > 1:
        lines += [
            f"  exposed by iteration  {_numbers(c.exposed_by_iteration)}",
            f"  functions learned     {_numbers(c.dimension_by_iteration)}",
            f"  safe iterations       {c.safe_iterations} (the paper's theorem: {c.paper_bound})",
        ]
    if c.partial_sums:
        shown = [f"{{{', '.join(map(str, peers))}}}" for peers in c.partial_sums[:4] if len(peers) <= 20]
        if shown:
            lines.append(f"  learns the sums over  {' '.join(shown)}{' ...' * (len(c.partial_sums) > len(shown))}")
    return "\n".join([*lines, "", c.sentence])


def _numbers(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _show_run(folder: Path, *, as_json: bool) -> None:
    if not folder.is_dir():
        raise RunFolderError(f"there is no run folder {folder}")
    certificates, ledgers = files.read_certificates(folder), files.read_ledgers(folder)
    if as_json:
        told = files.one_or_all({method: one.to_dict() for method, one in certificates.items()})
        ledger = files.one_or_all({method: account.to_dict() for method, account in ledgers.items()})
        typer.echo(readable_json({**told, "ledger": ledger}))
        return
    for method, one in certificates.items():
        if one.allow_exposure:
            typer.echo("WARNING: this run was started with --allow-exposure.\n")
        if one.promise is not None:
            typer.echo(f"{one.promise.sentence}\n")
        typer.echo(describe(one.certificate))
        for text in filter(None, (one.over_rounds, one.remark)):
            typer.echo(text)
        typer.echo("\nLedger of the run")
        for name, value in _readable(ledgers[method].to_dict() if method in ledgers else {}, _roster(folder)).items():
            typer.echo(f"  {name:<34} {value}")


def _roster(folder: Path) -> Mapping[str, str]:
    """Return the names of peers by number, as far as a run folder knows them."""
    from securedfl.federation.run_folder.summary import read_summary

    with suppress(RunFolderError):
        return read_summary(folder).roster
    return {}


OF_PEERS = ("coalition", "exposed_so_far", "coalition_over_rounds", "smallest_sum_over_rounds")
"""What of a ledger are numbers of peers."""


def _readable(ledger: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    left_out = ("meetings", "peers", "protocol", "kind")

    def named(peers: Sequence[int]) -> str:
        return ", ".join(names.get(str(peer), str(peer)) for peer in peers) or "nobody"

    def shown(name: str, value: Any) -> str:
        if name in OF_PEERS:
            return named(value)
        if name == "irregular_averages":
            return "\n    ".join([str(len(value)), *(_irregular(one, named) for one in value)])
        if isinstance(value, dict):
            return ", ".join(f"{k}: {v}" for k, v in value.items())
        return str(list(value) if isinstance(value, tuple) else value)

    return {
        name.replace("_", " "): shown(name, value)
        for name, value in ledger.items()
        if name not in left_out and value is not None
    }


def _irregular(average: Mapping[str, Any], named: Callable[[Sequence[int]], str]) -> str:
    """Return an average that took several attempts, or was not of everybody: who tried it, and what was opened."""
    tried = [
        ("all" if one["members"] == "all" else named(one["members"])) + f", {'' if one['opened'] else 'not '}opened"
        for one in average["attempts"]
    ]
    return f"round {average['parameters']}: {'; then '.join(tried)}"
