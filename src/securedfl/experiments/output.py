"""Write an experiment's result: CSV, JSON, Markdown and figures; the same input gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import securedfl
from securedfl.errors import RunFolderError
from securedfl.experiments import accuracy, curves, groups, iterations, table
from securedfl.experiments.exhibit import Exhibit
from securedfl.experiments.presets import NAMES, read_preset
from securedfl.reporting.svg import save_figure
from securedfl.storage import cannot_write, write_text

PRESENT = {
    "table": table.present,
    "curves": curves.present,
    "iterations": iterations.present,
    "accuracy": accuracy.present,
    "groups": groups.present,
}
"""What makes tables, figures and findings of each experiment's data."""

ADVICE = "free some space or check the permissions, then run the command again"

Record = dict[str, Any]
"""What EXPERIMENT.json holds: data, settings, versions and findings."""


def make_record(
    name: str, data: Mapping[str, Any], *, command: str, chosen: Mapping[str, Any]
) -> tuple[Record, Exhibit]:
    """Return the record of an experiment and what it shows.

    Parameters
    ----------
    name, data
        The experiment and what was collected.
    command
        The command line that did it. Results hold whatever runs the folder has, so the record also lists a command
        for each of them.
    chosen
        What the user chose instead of the preset's settings.
    """
    preset = read_preset(name)
    exhibit = PRESENT[name](data)
    record = {
        "experiment": name,
        "title": preset.title,
        "paper": preset.place,
        "scaled": list(exhibit.scaled),
        "command": command,
        "commands": commands(name, data) or [command],
        "chosen": dict(chosen),
        "settings": preset.train,
        "seeds": _seeds(exhibit),
        "versions": versions(),
        "findings": [
            {"claim": f.claim, "verdict": f.verdict, "numbers": f.numbers} for f in exhibit.findings
        ],
        "data": dict(data),
    }
    return record, exhibit


def write(out: Path, record: Record, exhibit: Exhibit) -> list[Path]:
    """Write all files of an experiment and return their paths."""
    name = record["experiment"]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error, "choose another --out") from None
    texts = {
        out / f"{name}.csv": csv_text(exhibit.records),
        out / f"{name}.json": json.dumps(record, indent=2, allow_nan=False) + "\n",
        out / f"{name}.md": markdown(record, exhibit),
    }
    for path, text in texts.items():
        write_text(path, text, ADVICE)
    pictures = [out / f"{name}.svg", out / f"{name}.png"]
    for path in pictures:
        try:
            if exhibit.figure is not None:
                save_figure(exhibit.figure.draw(), path)
            else:
                path.unlink(missing_ok=True)  # an older picture would not belong to these numbers
        except OSError as error:
            raise cannot_write(path, error, ADVICE) from None
    return [*texts, *(path for path in pictures if exhibit.figure is not None)]


def read_records(out: Path) -> list[Record]:
    """Return the records of all experiments in a folder, in the paper's order; a damaged one is an error."""
    records = []
    for name in NAMES:
        path = out / f"{name}.json"
        if not path.exists():
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            PRESENT[name](record["data"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{path} is damaged ({error}); write it again with `securedfl reproduce {name} --no-train`"
            ) from None
        records.append(record)
    return records


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of numbers as CSV; a number that does not apply is empty."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for record in records for key in record))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def markdown(record: Record, exhibit: Exhibit) -> str:
    """Return the table, the claims and the command as Markdown."""
    lines = [f"# {record['title']}", "", f"The paper's {record['paper']}, repeated.", ""]
    if exhibit.scaled:
        lines += ["**Scaled, not the paper's size:**", ""]
        lines += [f"- {text}" for text in exhibit.scaled] + [""]
    lines += [*_table(exhibit.columns, exhibit.rows), ""]
    lines += ["## Claims", ""]
    claims = [[f.claim, f.verdict, f.numbers] for f in exhibit.findings]
    lines += [*_table(["Claim", "Verdict", "Measured"], claims), ""]
    lines += [f"- {note}" for note in exhibit.notes] + [""]
    lines += ["```sh", *record["commands"], "```", ""]
    return "\n".join(lines)


def commands(name: str, data: Mapping[str, Any]) -> list[str]:
    """Return a command line for each cell of an experiment that gives its numbers again."""
    preset = read_preset(name)
    lines = []
    for cell in data.get("cells", []):
        line = f"securedfl reproduce {name} --datasets {cell['dataset']} --peers {cell['peers']}"
        line += f" --seeds {','.join(map(str, cell['seeds']))}"
        shares = [f"{key}={cell[key]:g}" for key in ("users", "width") if cell[key] != 1]
        line += f" --rounds {cell['rounds']}" if cell["rounds"] != preset.rounds else ""
        line += f" --scale {','.join(shares)}" if shares else ""
        lines.append(line)
    return lines


def versions() -> dict[str, str]:
    """Return the versions of what computed the numbers."""
    found = {"securedfl": securedfl.__version__, "python": platform.python_version()}
    for package in ("numpy", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [row(columns), "|" + "---|" * len(columns), *map(row, rows)]


def _seeds(exhibit: Exhibit) -> list[int]:
    return sorted({int(record["seed"]) for record in exhibit.records})
