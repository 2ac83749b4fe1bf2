"""``securedfl reproduce``: the paper's evaluation again, its numbers beside ours."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from securedfl.cli.progress import progress_on
from securedfl.cli.tables import LOOK, show
from securedfl.errors import unknown
from securedfl.experiments.presets import NAMES, Preset, Scale, names, read_preset, whole_numbers
from securedfl.experiments.runs.training import RUNS, NeededRun, Turn, examine_all, needed_runs, train_missing
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


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for: the name of the command, and all options that commands have."""

    name: str
    out: Path = OUT
    scale: str | None = None
    seeds: str | None = None
    datasets: str | None = None
    peers: str | None = None
    rounds: int | None = None
    initial: str | None = None
    most: int | None = None
    data_dir: Path | None = None
    workers: str | None = None
    device: str | None = None
    resume: bool = False
    no_train: bool = False
    estimate: bool = False
    as_json: bool = False
    tidy: bool = False

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
        keys = ("scale", "seeds", "datasets", "peers", "rounds", "initial", "device", "most")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}

    def command(self, name: str) -> str:
        """Return the command line that gives the same numbers, wherever data and results are."""
        options = [part for key, value in self.chosen.items() for part in (f"--{key}", str(value))]
        return shlex.join(["securedfl", "reproduce", name, *options])

    @property
    def again(self) -> str:
        """The command line that continues what was stopped."""
        places = {"--out": self.out if self.out != OUT else None, "--data-dir": self.data_dir}
        options = [part for key, value in places.items() if value is not None for part in (key, str(value))]
        return shlex.join([*shlex.split(self.command(self.name)), *options, "--resume"])


OPTIONS: dict[str, Any] = {
    "out": typer.Option(metavar="DIR", help="Folder of all results; runs are shared between experiments."),
    "scale": typer.Option(
        metavar="SHARE|rounds=..,users=..,width=..",
        help="Run a share of the rounds, users and model width; everything is labelled as scaled.",
    ),
    "seeds": typer.Option(metavar="0,1,2|0-4", help="Seeds; several give mean and spread."),
    "datasets": typer.Option(metavar="NAME,...", help="Only these data sets."),
    "peers": typer.Option(metavar="9,15", help="Only these numbers of peers."),
    "rounds": typer.Option(min=1, help="Rounds instead of 50; labelled as scaled."),
    "initial": typer.Option(
        metavar="common|own",
        help="How peers begin: with one model for all, or each with its own.",
        show_default="common",
    ),
    "most": typer.Option(metavar="N", help="The largest number of peers.", show_default="60"),
    "data_dir": typer.Option(metavar="DIR", help="Folder that holds the data sets; or SECUREDFL_DATA_DIR."),
    "workers": typer.Option(metavar="auto|NUMBER", help="Processes that train peers."),
    "device": typer.Option(metavar="cpu|cuda|mps", help="Where models are trained.", show_default="cpu"),
    "resume": typer.Option("--resume", help="Continue runs that were stopped."),
    "no_train": typer.Option("--no-train", help="Train nothing: show what is there, and what is missing."),
    "estimate": typer.Option(
        "--estimate", help="Train nothing: measure a round of each run, and say how long all of them will take."
    ),
    "as_json": typer.Option("--json", help="Print the result as JSON, and progress to stderr."),
    "tidy": typer.Option("--tidy", help="Delete the kept parameters of all peers once they are measured."),
}
"""How ``--help`` explains each field of a `Wish`."""

HELP = {
    "table": """Best test accuracy of every method (Table 2): 3 data sets, 9 and 15 peers.

    **Examples**

    - `securedfl reproduce table --data-dir data --estimate` : how long all of it takes here; on two cores, a week
    - `securedfl reproduce table --data-dir data`
    - `securedfl reproduce table --data-dir data --datasets femnist --peers 9 --seeds 0-2`
    - `securedfl reproduce table --data-dir data --scale 0.1` : a tenth of rounds, users and width
    - `securedfl reproduce table --datasets cifar10 --scale rounds=0.2,users=0.1,width=0.25 --resume`
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
    "iterations": {"most"},
    "privacy": {"most", "tidy", "initial"},
    "groups": OPTIONS.keys() - {"out", "most", "seeds", "as_json"},
    "all": {"datasets", "peers", "rounds", "initial", "most"},
}
"""Options that a command has no use for; those that are not named here train, and keep no parameters."""


def _command(name: str) -> Callable[..., None]:
    """Return a command that takes its share of the options."""
    types, left_out = get_type_hints(Wish), WITHOUT.get(name, {"most", "tidy"})

    def command(**values: Any) -> None:
        _run(Wish(name=name, **values))

    command.__doc__ = HELP[name]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(Wish, option),
                annotation=Annotated[types[option], about],
            )
            for option, about in OPTIONS.items()
            if option not in left_out
        ]
    )
    return command


for _name in HELP:
    reproduce.command(_name)(_command(_name))


@reproduce.command()
def report(out: Annotated[Path, OPTIONS["out"]] = OUT) -> None:
    """Write report.html again, from the results that the folder holds.

    **Example**

    - `securedfl reproduce report --out runs/reproduce`
    """
    from securedfl.experiments.result_files import write_report

    typer.echo(write_report(out))


def _run(wish: Wish) -> None:
    """Make one experiment, or all of them."""
    chosen = NAMES if wish.name == "all" else (wish.name,)
    # Hours of training must not end in an error that was there from the start.
    needed = [run for name in chosen if name != "groups" for run in wish.runs(name)]
    if wish.estimate:
        _estimate(needed, wish)
        return
    if not wish.no_train:
        examine_all(needed, resume=wish.resume)
    # The seeds of all are those of the trainings.
    groups = wish if wish.name == "groups" else Wish(name="all", out=wish.out, as_json=wish.as_json)
    records = [_experiment(name, groups if name == "groups" else wish) for name in chosen]
    if wish.as_json:
        typer.echo(json.dumps(records if wish.name == "all" else records[0], indent=2))


def _experiment(name: str, wish: Wish) -> dict[str, Any]:
    """Train what an experiment needs, collect, write everything, and show the table."""
    from securedfl.experiments import result_files as files

    console = Console(stderr=wish.as_json, highlight=False)
    if name != "groups" and not wish.no_train:
        _train(wish.runs(name), wish, console)
    with console.status("Collecting results ...") as status:
        tell = status.update if name == "groups" or console.is_terminal else console.print
        data = files.EXPERIMENTS[name].collect(wish.preset(name), wish.out, tell)
    record, result = files.make_record(name, data, command=wish.command(name), chosen=wish.chosen)
    paths, page = files.write(wish.out, record, result), files.write_report(wish.out)
    if not wish.as_json:
        show(f"{record.title} (the paper's {record.paper})", result, console)
    if name == "iterations":
        _tell_updates(wish, console)
    written = ", ".join(path.name for path in paths)
    console.print(f"Written to {wish.out}: {written}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
    return asdict(record)


def _train(runs: list[NeededRun], wish: Wish, console: Console) -> None:
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
        trained = train_missing(runs, resume=wish.resume, watch=watch)
    except KeyboardInterrupt:
        console.print(f"Continue with: {wish.again}", markup=False, soft_wrap=True)
        raise
    reused = len(runs) - trained
    if reused:
        finished = "1 finished run" if reused == 1 else f"{reused} finished runs"
        console.print(f"Reused {finished} in {wish.out / RUNS}", markup=False, soft_wrap=True)


def _estimate(runs: list[NeededRun], wish: Wish) -> None:
    """Measure a round of each kind of run, and say how long everything will take."""
    from securedfl.experiments.runs.estimate import estimate

    console = Console(stderr=wish.as_json, highlight=False)
    # experiments share runs
    each = list({run.folder: run for run in runs}.values())
    states = examine_all(each, resume=True)
    found = estimate(each, states, lambda text: console.print(text, markup=False, soft_wrap=True))
    total = sum(one.seconds for one in found)
    if wish.as_json:
        typer.echo(json.dumps({"runs": [one.to_dict() for one in found], "seconds": total}, indent=2))
        return
    table = Table(**LOOK)
    for column in ("Run", "State", "Train", "Score", "Averages of all methods", "Left"):
        table.add_column(column, justify="left" if column in ("Run", "State") else "right")
    for one in found:
        parts = () if one.round is None else (one.round.train, one.round.score, sum(one.round.averages.values()))
        told = map(duration, parts) if parts else ("", "", "")
        table.add_row(one.run.about, one.state, *told, duration(one.seconds))
    console.print(table)
    console.print("Train and score are of one round of one method, as measured now; a busy machine makes them longer.")
    if hasattr(os, "getloadavg"):
        console.print(f"The load of this machine is {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores")
    console.print(f"Everything that is left takes about {duration(total)}", soft_wrap=True)


def _tell_updates(wish: Wish, console: Console) -> None:
    from securedfl.experiments import iterations

    preset = wish.preset("iterations")
    size = sum(iterations.sizes(preset, wish.out).values())
    if wish.tidy:
        console.print(f"Deleted {data_size(iterations.tidy(preset, wish.out))} of peers' parameters")
    elif size:
        console.print(f"The peers' parameters take {data_size(size)}; --tidy deletes them, the results stay")
