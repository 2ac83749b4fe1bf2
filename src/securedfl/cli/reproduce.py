"""``securedfl reproduce``: the paper's evaluation again, its numbers beside ours."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from securedfl.cli.progress import progress_on
from securedfl.experiments.exhibit import Exhibit
from securedfl.experiments.plan import RUNS, Cell, make_plan, names, whole_numbers
from securedfl.experiments.presets import NAMES, Preset, read_preset
from securedfl.experiments.running import Turn, examine_all, run_cells
from securedfl.experiments.scale import Scale
from securedfl.federation.observer import Observer
from securedfl.reporting.units import data_size, duration

reproduce = typer.Typer(
    help="Repeat the paper's evaluation: one command per table and figure, the paper's numbers beside ours.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

OUT = Path("runs/reproduce")

OutOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of all results; runs are shared between experiments.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|rounds=..,users=..,width=..",
        help="Run a share of the rounds, users and model width; everything is labelled as scaled.",
    ),
]
SeedsOption = Annotated[
    str | None,
    typer.Option(metavar="0,1,2|0-4", help="Seeds; several give mean and spread.", show_default=False),
]
DatasetsOption = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Only these data sets.", show_default=False)
]
PeersOption = Annotated[
    str | None, typer.Option(metavar="9,15", help="Only these numbers of peers.", show_default=False)
]
RoundsOption = Annotated[
    int | None, typer.Option(min=1, help="Rounds instead of 50; labelled as scaled.", show_default=False)
]
DataOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder that holds the data sets; or SECUREDFL_DATA_DIR."),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(metavar="auto|NUMBER", help="Processes that train peers.", show_default=False),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue runs that were stopped.")]
NoTrainOption = Annotated[
    bool, typer.Option("--no-train", help="Train nothing: show what is there, and what is missing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and progress to stderr.")]
TidyOption = Annotated[
    bool, typer.Option("--tidy", help="Delete the kept parameters of all peers once they are measured.")
]
MostOption = Annotated[
    int | None, typer.Option(metavar="N", help="The largest number of peers.", show_default="60")
]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for."""

    name: str
    out: Path
    scale: str | None = None
    seeds: str | None = None
    datasets: str | None = None
    peers: str | None = None
    rounds: int | None = None
    most: int | None = None
    data_dir: Path | None = None
    workers: str | None = None
    resume: bool = False
    no_train: bool = False
    as_json: bool = False
    tidy: bool = False

    def plan(self, preset: Preset) -> list[Cell]:
        """Return the runs that an experiment needs."""
        machine: dict[str, Any] = {} if self.data_dir is None else {"data_dir": self.data_dir}
        if self.workers is not None:
            machine["workers"] = int(self.workers) if self.workers.isdecimal() else self.workers
        return make_plan(
            preset,
            self.out,
            scale=Scale.parse(self.scale) if self.scale is not None else None,
            datasets=names(self.datasets, "--datasets") if self.datasets is not None else None,
            peers=whole_numbers(self.peers, "--peers") if self.peers is not None else None,
            seeds=self.seed_list,
            rounds=self.rounds,
            machine=machine,
        )

    @property
    def seed_list(self) -> tuple[int, ...] | None:
        """The seeds, if any are given."""
        return whole_numbers(self.seeds, "--seeds") if self.seeds is not None else None

    @property
    def chosen(self) -> dict[str, Any]:
        """What was chosen instead of the preset's settings."""
        keys = ("scale", "seeds", "datasets", "peers", "rounds", "most")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}

    @property
    def command(self) -> str:
        """The command line that gives the same numbers, wherever data and results are."""
        options = [part for key, value in self.chosen.items() for part in (f"--{key}", str(value))]
        return shlex.join(["securedfl", "reproduce", self.name, *options])

    @property
    def again(self) -> str:
        """The command line that continues what was stopped."""
        places = {"--out": self.out if self.out != OUT else None, "--data-dir": self.data_dir}
        options = [part for key, value in places.items() if value is not None for part in (key, str(value))]
        return shlex.join([*shlex.split(self.command), *options, "--resume"])


HELP = {
    "table": """Best test accuracy of every method (Table 2): 3 data sets, 9 and 15 peers.

    **Examples**

    - `securedfl reproduce table --data-dir data` : all of it, which takes a day on two cores
    - `securedfl reproduce table --data-dir data --datasets femnist --peers 9 --seeds 0-2`
    - `securedfl reproduce table --data-dir data --scale 0.1` : a tenth of rounds, users and width
    - `securedfl reproduce table --datasets cifar10 --scale rounds=0.2,users=0.1,width=0.25 --resume`
    """,
    "curves": """Test accuracy per round (Figure 3), from the same runs as the table.

    **Examples**

    - `securedfl reproduce curves --no-train` : draw what `reproduce table` has trained
    - `securedfl reproduce curves --data-dir data --datasets femnist --seeds 0-2`
    """,
    "iterations": """Error of the average by number of iterations (Figure 4), on parameters of a FedAvg training.

    **Examples**

    - `securedfl reproduce iterations --data-dir data`
    - `securedfl reproduce iterations --data-dir data --rounds 10 --tidy`
    """,
    "accuracy": """Test accuracy per round by number of iterations (Figure 5): eight trainings on FEMNIST.

    **Examples**

    - `securedfl reproduce accuracy --data-dir data`
    - `securedfl reproduce accuracy --data-dir data --scale rounds=0.4,users=0.25`
    """,
}
"""What ``--help`` says of the experiments that train."""


def _training(name: str) -> Callable[..., None]:
    """Return the command of an experiment that trains."""

    def command(
        out: OutOption = OUT,
        scale: ScaleOption = None,
        seeds: SeedsOption = None,
        datasets: DatasetsOption = None,
        peers: PeersOption = None,
        rounds: RoundsOption = None,
        data_dir: DataOption = None,
        workers: WorkersOption = None,
        resume: ResumeOption = False,
        no_train: NoTrainOption = False,
        as_json: JsonOption = False,
        **more: Any,
    ) -> None:
        _one(
            Wish(
                name=name, out=out, scale=scale, seeds=seeds, datasets=datasets, peers=peers, rounds=rounds,
                data_dir=data_dir, workers=workers, resume=resume, no_train=no_train, as_json=as_json, **more,
            )
        )  # fmt: skip

    own = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    if name == "iterations":
        own.append(
            inspect.Parameter("tidy", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TidyOption)
        )
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    command.__doc__ = HELP[name]
    return command


for _name in HELP:
    reproduce.command(_name)(_training(_name))


@reproduce.command()
def groups(
    out: OutOption = OUT,
    most: MostOption = None,
    seeds: SeedsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Partitions found by number of peers (Figure 6): Algorithm 2, our best designs, the bound.

    **Examples**

    - `securedfl reproduce groups` : up to 60 peers, in half a minute, without any data
    - `securedfl reproduce groups --most 150 --seeds 0-19`
    """
    _one(Wish(name="groups", out=out, seeds=seeds, most=most, as_json=as_json))


@reproduce.command(name="all")
def everything(
    out: OutOption = OUT,
    scale: ScaleOption = None,
    seeds: SeedsOption = None,
    data_dir: DataOption = None,
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    no_train: NoTrainOption = False,
    as_json: JsonOption = False,
    tidy: TidyOption = False,
) -> None:
    """Every experiment, one after the other; scale and seeds are those of the trainings.

    **Examples**

    - `securedfl reproduce all --data-dir data --scale 0.1`
    - `securedfl reproduce all --data-dir data --resume` : continue after Ctrl-C
    """
    wish = Wish(
        name="all", out=out, scale=scale, seeds=seeds, data_dir=data_dir, workers=workers, resume=resume,
        no_train=no_train, as_json=as_json, tidy=tidy,
    )  # fmt: skip
    if not no_train:  # hours of training must not end in an error that was there from the start
        examine_all([cell for name in HELP for cell in wish.plan(read_preset(name))], resume=resume)
    records = []
    for name in NAMES:
        own = wish if name != "groups" else Wish(name="all", out=out, as_json=as_json)
        records.append(_run(name, own))
    if as_json:
        typer.echo(json.dumps(records, indent=2))


@reproduce.command()
def report(out: OutOption = OUT) -> None:
    """Write report.html again, from the results that the folder holds.

    **Example**

    - `securedfl reproduce report --out runs/reproduce`
    """
    from securedfl.experiments.report import write_report

    typer.echo(write_report(out))


def _one(wish: Wish) -> None:
    record = _run(wish.name, wish)
    if wish.as_json:
        typer.echo(json.dumps(record, indent=2))


def _run(name: str, wish: Wish) -> dict[str, Any]:
    """Train what an experiment needs, collect, write everything, and show the table."""
    console = Console(stderr=wish.as_json, highlight=False)
    preset = read_preset(name)
    if preset.datasets:
        cells = wish.plan(preset)
        if not wish.no_train:
            _train(cells, wish, console)
    from securedfl.experiments import output
    from securedfl.experiments.report import write_report

    data = _collect(preset, wish, console)
    command = replace(wish, name=name).command
    record, exhibit = output.make_record(name, data, command=command, chosen=wish.chosen)
    paths = output.write(wish.out, record, exhibit)
    page = write_report(wish.out)
    if not wish.as_json:
        show(record, exhibit, console)
    if name == "iterations":
        _tell_updates(preset, wish, console)
    written = ", ".join(path.name for path in paths)
    console.print(f"Written to {wish.out}: {written}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
    return record


def _train(cells: list[Cell], wish: Wish, console: Console) -> None:
    @contextmanager
    def watch(turn: Turn) -> Iterator[Observer]:
        word = "continuing" if turn.state == "unfinished" else "training"
        after = f"; the runs after it take about {duration(turn.seconds_after)}" if turn.seconds_after else ""
        if after and turn.unknown:
            after += f", without {', '.join(turn.unknown)}, of which nothing is known yet"
        text = f"Run {turn.number} of {turn.count}: {word} {turn.cell.about}{after}"
        console.print(text, markup=False, soft_wrap=True)
        with progress_on(console) as progress:
            yield progress

    try:
        trained = run_cells(cells, resume=wish.resume, watch=watch)
    except KeyboardInterrupt:
        console.print(f"Continue with: {wish.again}", markup=False, soft_wrap=True)
        raise
    reused = len(cells) - trained
    if reused:
        runs = "1 finished run" if reused == 1 else f"{reused} finished runs"
        console.print(f"Reused {runs} in {wish.out / RUNS}", markup=False, soft_wrap=True)


def _collect(preset: Preset, wish: Wish, console: Console) -> dict[str, Any]:
    """Read, or compute, what an experiment shows."""
    from securedfl.experiments import accuracy, curves, groups, iterations, table

    if preset.name == "groups":
        with console.status("Building designs ...") as status:

            def step(done: int, every: int) -> None:
                status.update(f"Building designs: {done} of {every}")

            return groups.collect(preset, most=wish.most, seeds=wish.seed_list, step=step)
    if preset.name == "iterations":
        with console.status("Measuring averages ...") as status:

            def tell(text: str) -> None:
                status.update(text)
                if not console.is_terminal:
                    console.print(text)

            return iterations.collect(preset, wish.out, tell)
    collectors = {"table": table.collect, "curves": curves.collect, "accuracy": accuracy.collect}
    return collectors[preset.name](preset, wish.out)


def _tell_updates(preset: Preset, wish: Wish, console: Console) -> None:
    from securedfl.experiments import iterations

    size = sum(iterations.sizes(preset, wish.out).values())
    if wish.tidy:
        console.print(f"Deleted {data_size(iterations.tidy(preset, wish.out))} of peers' parameters")
    elif size:
        console.print(f"The peers' parameters take {data_size(size)}; --tidy deletes them, the results stay")


def show(record: dict[str, Any], exhibit: Exhibit, console: Console) -> None:
    """Print the table, the paper's values beside ours, and the claims."""
    title = f"{record['title']} (the paper's {record['paper']})"
    columns, rows = exhibit.columns, exhibit.rows
    if exhibit.compact is not None:
        remark, columns, rows = exhibit.compact
        title += f", {remark}"
    elif columns[-1] == "Scale":
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    claims = Table(
        title="Claims",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=False,
    )
    claims.add_column(no_wrap=True)
    claims.add_column()
    for finding in exhibit.findings:
        numbers = f": {finding.numbers}" if finding.numbers else ""
        claims.add_row(COLOURS[finding.verdict], Text(finding.claim + numbers))
    console.print(claims)
    for text in (*(f"Scaled: {text}" for text in exhibit.scaled), *exhibit.notes):
        console.print(text, markup=False, soft_wrap=True)


COLOURS = {
    "holds": "[green]holds[/]",
    "within noise": "[yellow]within noise[/]",
    "differs": "[red]differs[/]",
    "not measured": "[dim]not measured[/]",
}
