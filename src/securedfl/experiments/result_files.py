"""The files of results: CSV, JSON, Markdown and figures of each experiment; the same input gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from securedfl.errors import RunFolderError
from securedfl.experiments import curves, groups, iterations, privacy, table
from securedfl.experiments.presets import NAMES, Preset, read_preset
from securedfl.experiments.results import Finding, Plot, Shown, Verdict
from securedfl.experiments.runs.collected import Cell
from securedfl.experiments.runs.found import merged
from securedfl.experiments.runs.training import RUNS
from securedfl.federation.run_folder.summary import versions
from securedfl.learning.data.hub import Tell
from securedfl.reporting.page import Page, rendered
from securedfl.reporting.svg import inline, save_figure
from securedfl.storage import cannot_write, write_text

TILES: dict[Verdict, str] = {
    "holds": "claims hold",
    "holds for these models": "claims hold for these models",
    "not decided": "claims are not decided",
    "differs for these models": "claims differ for these models",
    "differs": "claims differ",
    "not measured": "claims are not measured",
}

ADVICE = "{mend}, then run the command again"


@dataclass(frozen=True)
class Experiment:
    """How an experiment gets its data, what type they have, and how they are presented."""

    collect: Callable[[Preset, Path, Tell], Any]
    data: type[Any]
    present: Callable[[Any], Shown]


EXPERIMENTS = {
    "table": Experiment(table.collect, table.TableData, table.present),
    "curves": Experiment(curves.collect_by_method, curves.MethodsData, curves.present_by_method),
    "iterations": Experiment(iterations.collect, iterations.ErrorData, iterations.present),
    "accuracy": Experiment(curves.collect_by_iterations, curves.IterationsData, curves.present_by_iterations),
    "groups": Experiment(groups.collect, groups.GroupsData, groups.present),
    "privacy": Experiment(privacy.collect, privacy.PrivacyData, privacy.present),
}
"""All experiments by name."""


@dataclass(frozen=True)
class Record:
    """What EXPERIMENT.json holds.

    Attributes
    ----------
    command, commands
        The command line that wrote it; and one for each cell, as results hold whatever runs the folder has.
    chosen, settings
        What the user chose instead of the preset's settings, and these.
    versions
        Of what trained the runs, as far as they tell; without runs, of what wrote this.
    data
        What the experiment collected.
    """

    experiment: str
    title: str
    paper: str
    scaled: list[str]
    command: str
    commands: list[str]
    chosen: dict[str, Any]
    settings: dict[str, Any]
    seeds: list[int]
    versions: dict[str, str]
    findings: list[Finding]
    data: Any


def make_record(name: str, data: object, *, command: str, chosen: Mapping[str, object]) -> tuple[Record, Shown]:
    """Return the record of an experiment and what it shows; `Record` tells about command and chosen."""
    preset = read_preset(name)
    result = EXPERIMENTS[name].present(data)
    record = Record(
        experiment=name,
        title=preset.title,
        paper=preset.place,
        scaled=result.scaled,
        command=command,
        commands=[_command(preset, cell) for cell in result.cells] or [command],
        chosen=dict(chosen),
        settings=preset.train,
        seeds=sorted({int(str(row["seed"])) for row in result.records}),
        versions=merged(cell.versions for cell in result.cells) or versions(),
        findings=list(result.findings),
        data=data,
    )
    return record, result


def check_replaceable(out: Path, name: str) -> None:
    """Refuse to replace the results of runs that are not here any more by nothing."""
    if (out / f"{name}.json").exists():
        raise RunFolderError(
            f"{out} has no finished run of {name}, but results of some; they are left as they are. Put the runs into "
            f"{out / RUNS}, or remove {name}.json"
        )


def write(out: Path, record: Record, result: Shown) -> list[Path]:
    """Write all files of an experiment and return their paths."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error, "choose another --out") from None
    name = record.experiment
    texts = {
        out / f"{name}.csv": csv_text(result.records),
        out / f"{name}.json": json.dumps(asdict(record), indent=2, allow_nan=False) + "\n",
        out / f"{name}.md": markdown(record, result),
    }
    for path, text in texts.items():
        write_text(path, text, ADVICE)
    pictures = [out / f"{name}.svg", out / f"{name}.png"]
    for path in pictures:
        try:
            if result.figure is not None:
                save_figure(result.figure.make(), path)
            else:
                # An older picture would not belong to these numbers.
                path.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(path, error, ADVICE) from None
    return [*texts, *(pictures if result.figure is not None else [])]


def read(out: Path, name: str) -> tuple[Record, Shown]:
    """Return what EXPERIMENT.json of a folder holds, presented as it is today; a damaged file is an error."""
    path, experiment = out / f"{name}.json", EXPERIMENTS[name]
    try:
        record = TypeAdapter(Record).validate_json(path.read_text(encoding="utf-8"))
        result = experiment.present(TypeAdapter(experiment.data).validate_python(record.data))
    except (OSError, ValueError) as error:
        # pydantic tells all that is wrong, on many lines
        reason = f"{error.error_count()} values do not fit" if isinstance(error, ValidationError) else error
        raise RunFolderError(
            f"{path} is damaged ({reason}); write it again with `securedfl reproduce {name} --no-train`"
        ) from None
    return replace(record, findings=list(result.findings)), result


def write_report(out: Path) -> Path:
    """Write report.html into a folder of results, from its EXPERIMENT.json files alone."""
    found = [read(out, name) for name in NAMES if (out / f"{name}.json").exists()]
    if not found:
        raise RunFolderError(
            f"there are no results in {out}; make some first, for instance with `securedfl reproduce groups`"
        )
    verdicts = Counter(finding.verdict for _, result in found for finding in result.findings)
    page = Page(
        title="The paper's evaluation, repeated",
        result=_sentence(verdicts),
        tiles={about: str(verdicts[kind]) for kind, about in TILES.items() if verdicts[kind]},
        contents={record.experiment: record.title for record, _ in found},
        source="the results in this folder",
    )
    text = rendered(
        "evaluation.html",
        package="securedfl.experiments",
        page=page,
        experiments=[(record, result, _charts(record.experiment, result)) for record, result in found],
        scaled=dict.fromkeys(text for _, result in found for text in result.scaled),
    )
    path = out / "report.html"
    write_text(path, text, ADVICE)
    return path


def csv_text(records: Sequence[Mapping[str, object]]) -> str:
    """Return rows of numbers as CSV; a number that does not apply is empty."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for record in records for key in record))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def markdown(record: Record, result: Shown) -> str:
    """Return the table, the claims and the command as Markdown."""
    lines = [f"# {record.title}", "", f"The paper's {record.paper}, repeated.", ""]
    if result.scaled:
        lines += ["**Scaled, not the paper's size:**", "", *(f"- {text}" for text in result.scaled), ""]
    claims = [[finding.claim, finding.verdict, finding.numbers] for finding in result.findings]
    lines += [*_table(result.table.columns, result.table.rows), "", "## Claims", ""]
    lines += [*_table(["Claim", "Verdict", "Measured"], claims), ""]
    lines += [*(f"- {note}" for note in result.notes), "", "```sh", *record.commands, "```", ""]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [row(columns), "|" + "---|" * len(columns), *map(row, rows)]


def _command(preset: Preset, cell: Cell) -> str:
    """Return the command line that gives a cell's numbers again."""
    line = f"securedfl reproduce {preset.name} --datasets {cell.dataset} --peers {cell.peers}"
    line += f" --seeds {','.join(map(str, cell.seeds))}"
    line += f" --methods {','.join(cell.only)}" if cell.only else ""
    line += f" --rounds {cell.rounds}" if cell.rounds != preset.rounds else ""
    line += " --initial own" if preset.starts and cell.initial == "own" else ""
    parts = {"users": cell.users, "width": cell.width}
    scale = ",".join(f"{key}={part:g}" for key, part in parts.items() if part != 1)
    return line + (f" --scale {scale}" if scale else "")


def _sentence(verdicts: Counter[Verdict]) -> str:
    measured = verdicts.total() - verdicts["not measured"]
    told = f"Of {measured} claims that were measured, {verdicts['holds']} hold"
    if verdicts["holds for these models"]:
        told += f", {verdicts['holds for these models']} hold for the models of one seed"
    if verdicts["not decided"]:
        told += f", {verdicts['not decided']} are not decided"
    differ = verdicts["differs"] + verdicts["differs for these models"]
    return f"{told} and {differ or 'none'} differ{'s' * (differ < 2)}."


def _charts(name: str, result: Shown) -> list[tuple[Plot, str]]:
    """Return what the page draws, with its SVG."""
    plots = result.charts or ([result.figure] if result.figure else [])
    return [(plot, inline(plot.make(), f"{name}{n}", plot.description)) for n, plot in enumerate(plots)]
