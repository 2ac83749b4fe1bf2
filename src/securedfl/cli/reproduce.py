"""``securedfl reproduce``: the paper's evaluation again, its numbers beside ours."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from securedfl.cli.progress import progress_on
from securedfl.cli.tables import LOOK, show
from securedfl.errors import unknown
from securedfl.experiments.presets import NAMES, Preset, Scale, names, read_preset, whole_numbers
from securedfl.experiments.runs import training
from securedfl.experiments.runs.training import RUNS, NeededRun, Turn, needed_runs
from securedfl.federation.observer import Observer
from securedfl.learning.training.task import Initial
from securedfl.reporting.units import data_size, duration

reproduce = typer.Typer(
    help="Repeat the paper's evaluation: one command per table and figure, the paper's numbers beside ours.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

OUT = Path("runs/reproduce")
STARTS = get_args(Initial)
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all results; runs are shared between experiments.")]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user asked for: the name of the command, and all options that commands have."""

    name: str
    out: Out = OUT
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|rounds=..,users=..,width=..",
            help="Run a share of the rounds, users and model width; everything is labelled as scaled.",
        ),
    ] = None
    seeds: Annotated[str | None, typer.Option(metavar="0,1,2|0-4", help="Seeds; several give mean and spread.")] = None
    datasets: Annotated[str | None, typer.Option(metavar="NAME,...", help="Only these data sets.")] = None
    peers: Annotated[str | None, typer.Option(metavar="9,15", help="Only these numbers of peers.")] = None
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these methods: local,fedavg,paper,secured,shares.")
    ] = None
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds instead of 50; labelled as scaled.")] = None
    initial: Annotated[
        str | None,
        typer.Option(
            metavar="common|own",
            help="How peers begin: with one model for all, or each with its own.",
            show_default="common",
        ),
    ] = None
    most: Annotated[int | None, typer.Option(metavar="N", help="The largest number of peers.", show_default="60")] = (
        None
    )
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder that holds the data sets; or SECUREDFL_DATA_DIR.")
    ] = None
    workers: Annotated[str | None, typer.Option(metavar="auto|NUMBER", help="Processes that train peers.")] = None
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda|mps", help="Where models are trained.", show_default="cpu")
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue runs that were stopped.")] = False
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Train nothing: show what is there, and what is missing.")
    ] = False
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Train nothing: measure a round of each run, and say how long all of them will take."
        ),
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and progress to stderr.")] = False
    tidy: Annotated[
        bool, typer.Option("--tidy", help="Delete the kept parameters of all peers once they are measured.")
    ] = False

    def preset(self, name: str) -> Preset:
        """Return an experiment's settings with the seeds, and the largest number of peers, that were chosen."""
        seeds = whole_numbers(self.seeds, "--seeds") if self.seeds is not None else None
        chosen = {"seeds": seeds, "most": self.most}
        return read_preset(name).model_copy(update={k: v for k, v in chosen.items() if v is not None})

    def runs(self, name: str) -> list[NeededRun]:
        """Return the runs that an experiment needs."""
        machine: dict[str, Any] = {} if self.data_dir is None else {"data_dir": self.data_dir}
        if self.workers is not None:
            machine["workers"] = int(self.workers) if self.workers.isdecimal() else self.workers
        if self.device is not None:
            machine["device"] = self.device
        return needed_runs(
            self.preset(name),
            self.out,
            scale=Scale.parse(self.scale) if self.scale is not None else None,
            datasets=names(self.datasets, "--datasets") if self.datasets is not None else None,
            peers=whole_numbers(self.peers, "--peers") if self.peers is not None else None,
            methods=names(self.methods, "--methods") if self.methods is not None else None,
            rounds=self.rounds,
            initial=self._initial,
            machine=machine,
        )

    @property
    def _initial(self) -> Initial | None:
        if self.initial is None or self.initial in STARTS:
            return cast("Initial | None", self.initial)
        raise unknown("--initial", self.initial, STARTS)

    @property
    def chosen(self) -> dict[str, object]:
        """What was chosen instead of the preset's settings."""
        keys = ("scale", "seeds", "datasets", "peers", "methods", "rounds", "initial", "device", "most")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}

    def command(self, name: str) -> str:
        """Return the command line that gives the same numbers, wherever data and results are."""
        options = [part for key, value in self.chosen.items() for part in (f"--{key}", str(value))]
        shown = ["--no-train"] if self.no_train else []
        return shlex.join(["securedfl", "reproduce", name, *options, *shown])

    @property
    def again(self) -> str:
        """The command line that continues what was stopped."""
        places = {"--out": self.out if self.out != OUT else None, "--data-dir": self.data_dir}
        options = [part for key, value in places.items() if value is not None for part in (key, str(value))]
        return shlex.join([*shlex.split(self.command(self.name)), *options, "--resume"])


HELP = {
    "table": """Best test accuracy of every method (Table 2): 3 data sets, 9 and 15 peers.

    **Examples**

    - `securedfl reproduce table --data-dir data --estimate` : how long all of it takes here; on two cores, a week
    - `securedfl reproduce table --data-dir data`
    - `securedfl reproduce table --data-dir data --datasets femnist --peers 9 --seeds 0-2`
    - `securedfl reproduce table --data-dir data --scale 0.1` : a tenth of rounds, users and width
    - `securedfl reproduce table --datasets cifar10 --scale width=0.125 --methods local,fedavg,paper --resume`
    - `securedfl reproduce table --data-dir data --datasets cifar10 --device cuda --workers 1` : in full, on a GPU
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
    "groups": """Partitions found by number of peers (Figure 6): Algorithm 2, our best designs, the bound.

    **Examples**

    - `securedfl reproduce groups` : up to 60 peers, in half a minute, without any data
    - `securedfl reproduce groups --most 150 --seeds 0-19`
    """,
    "privacy": """Test accuracy with differential privacy: no, central, distributed and local noise at epsilon 4.

    **Examples**

    - `securedfl reproduce privacy --datasets digits` : four trainings in some minutes
    - `securedfl reproduce privacy --data-dir data --datasets femnist --scale users=0.25,width=0.5`
    """,
    "all": """Every experiment, one after the other; scale and seeds are those of the trainings.

    **Examples**

    - `securedfl reproduce all --data-dir data --estimate` : how long it takes, before it starts
    - `securedfl reproduce all --data-dir data --scale 0.1`
    - `securedfl reproduce all --data-dir data --resume` : continue after Ctrl-C
    """,
}
"""What ``--help`` says of each command."""

WITHOUT = {
    "iterations": {"most", "methods"},
    "accuracy": {"most", "tidy", "methods"},
    "privacy": {"most", "tidy", "methods", "initial"},
    "groups": {field.name for field in fields(Asked)} - {"out", "most", "seeds", "as_json"},
    "all": {"datasets", "peers", "methods", "rounds", "initial", "most"},
}
"""Options that a command has no use for; those that are not named here train, and keep no parameters."""


def _command(name: str) -> Callable[..., None]:
    """Return a command that takes its share of the options."""
    left_out = {"name", *WITHOUT.get(name, ("most", "tidy"))}

    def command(**values: Any) -> None:
        _run(Asked(name=name, **values))

    command.__doc__ = HELP[name]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=getattr(Asked, option), annotation=about)
            for option, about in get_type_hints(Asked, include_extras=True).items()
            if option not in left_out
        ]
    )
    return command


for _name in HELP:
    reproduce.command(_name)(_command(_name))


@reproduce.command()
def report(out: Out = OUT) -> None:
    """Write report.html again, from the results that the folder holds.

    **Example**

    - `securedfl reproduce report --out runs/reproduce`
    """
    from securedfl.experiments.result_files import write_report

    typer.echo(write_report(out))


def _run(asked: Asked) -> None:
    """Make one experiment, or all of them."""
    chosen = NAMES if asked.name == "all" else (asked.name,)
    # Hours of training must not end in an error that was there from the start.
    needed = [run for name in chosen if name != "groups" for run in asked.runs(name)]
    if asked.estimate:
        _estimate(needed, asked)
        return
    if not asked.no_train:
        training.look_first(needed, resume=asked.resume)
    # The seeds of all are those of the trainings.
    groups = asked if asked.name == "groups" else Asked(name="all", out=asked.out, as_json=asked.as_json)
    records = [_experiment(name, groups if name == "groups" else asked) for name in chosen]
    if asked.as_json:
        typer.echo(json.dumps(records if asked.name == "all" else records[0], indent=2))


def _experiment(name: str, asked: Asked) -> dict[str, Any]:
    """Train what an experiment needs, collect, write everything, and show the table."""
    from securedfl.experiments import result_files as files

    console = Console(stderr=asked.as_json, highlight=False, emoji=False)
    if name != "groups" and not asked.no_train:
        _train(asked.runs(name), asked, console)
    with console.status("Collecting results ...") as status:
        tell = status.update if name == "groups" or console.is_terminal else console.print
        data = files.EXPERIMENTS[name].collect(asked.preset(name), asked.out, tell)
    record, result = files.make_record(name, data, command=asked.command(name), chosen=asked.chosen)
    if asked.no_train and name != "groups" and not result.cells:
        files.check_replaceable(asked.out, name)
    paths, page = files.write(asked.out, record, result), files.write_report(asked.out)
    if not asked.as_json:
        show(f"{record.title} (the paper's {record.paper})", result, console)
    if name == "iterations":
        _tell_updates(asked, console)
    written = ", ".join(path.name for path in paths)
    console.print(f"Written to {asked.out}: {written}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
    return asdict(record)


def _train(runs: list[NeededRun], asked: Asked, console: Console) -> None:
    @contextmanager
    def watch(turn: Turn) -> Iterator[Observer]:
        word = "continuing" if turn.state == "unfinished" else "training"
        after = f"; the runs after it take about {duration(turn.seconds_after)}" if turn.seconds_after else ""
        if after and turn.unknown:
            after += f", without {', '.join(turn.unknown)}, of which nothing is known yet"
        text = f"Run {turn.number} of {turn.count}: {word} {turn.run.about}{after}"
        console.print(text, markup=False, soft_wrap=True)
        with progress_on(console) as progress:
            yield progress

    try:
        trained = training.train_missing(runs, resume=asked.resume, watch=watch)
    except KeyboardInterrupt:
        console.print(f"Continue with: {asked.again}", markup=False, soft_wrap=True)
        raise
    reused = len(runs) - trained
    if reused:
        finished = "1 finished run" if reused == 1 else f"{reused} finished runs"
        console.print(f"Reused {finished} in {asked.out / RUNS}", markup=False, soft_wrap=True)


def _estimate(runs: list[NeededRun], asked: Asked) -> None:
    """Measure a round of each kind of run, and say how long everything will take."""
    from securedfl.experiments.runs.estimate import estimate, not_measured

    console = Console(stderr=asked.as_json, highlight=False, emoji=False)
    # experiments share runs
    each = list({run.folder: run for run in runs}.values())
    states = training.examine_all(each, resume=True)
    found = estimate(each, states, lambda text: console.print(text, markup=False, soft_wrap=True))
    left_out = not_measured(found)
    total = sum(one.seconds or 0.0 for one in found)
    if asked.as_json:
        typer.echo(json.dumps({"runs": [one.to_dict() for one in found], "seconds": total}, indent=2))
        return
    table = Table(**LOOK)
    for column in ("Run", "State", "Train", "Score", "Averages of all methods", "Left"):
        table.add_column(column, justify="left" if column in ("Run", "State") else "right")
    for one in found:
        parts = () if one.round is None else (one.round.train, one.round.score, sum(one.round.averages.values()))
        told = map(duration, parts) if parts else ("", "", "")
        table.add_row(one.run.about, one.state, *told, "unknown" if one.seconds is None else duration(one.seconds))
    console.print(table)
    console.print("Train and score are of one round of one method, as measured now; a busy machine makes them longer.")
    if hasattr(os, "getloadavg"):
        console.print(f"The load of this machine is {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores")
    for line in left_out:
        console.print(line, markup=False, soft_wrap=True)
    without = ", without those that could not be measured" if left_out else ""
    console.print(f"Everything that is left takes about {duration(total)}{without}", soft_wrap=True)


def _tell_updates(asked: Asked, console: Console) -> None:
    from securedfl.experiments import iterations

    preset = asked.preset("iterations")
    size = sum(iterations.sizes(preset, asked.out).values())
    if asked.tidy:
        console.print(f"Deleted {data_size(iterations.tidy(preset, asked.out))} of peers' parameters")
    elif size:
        console.print(f"The peers' parameters take {data_size(size)}; --tidy deletes them, the results stay")
