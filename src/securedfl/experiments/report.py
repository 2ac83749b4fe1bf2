"""One HTML page with all experiments that a folder holds: the paper beside ours, figures, and every claim checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from securedfl.errors import RunFolderError
from securedfl.experiments.exhibit import Exhibit, Finding, Picture, Verdict
from securedfl.experiments.output import ADVICE, PRESENT, Record, read_records
from securedfl.reporting import parts
from securedfl.reporting.svg import inline_svg
from securedfl.storage import write_text

TITLE = "The paper's evaluation, repeated"

KINDS = {"holds": "", "within noise": "warn", "differs": "bad", "not measured": "warn"}
"""How each verdict's badge looks."""


TILES: dict[Verdict, str] = {
    "holds": "claims hold",
    "within noise": "claims cannot be told from noise",
    "differs": "claims differ",
    "not measured": "claims are not measured",
}

SHORT = 12
"""Rows up to which a table is shown before the figures; longer ones are folded up behind them."""


def write_report(out: Path) -> Path:
    """Write report.html into a folder of results, from its EXPERIMENT.json files alone."""
    records = read_records(out)
    if not records:
        raise RunFolderError(
            f"there are no results in {out}; make some first, for instance with `securedfl reproduce groups`"
        )
    path = out / "report.html"
    write_text(path, render(records), ADVICE)
    return path


def render(records: Sequence[Record]) -> str:
    """Return the page."""
    exhibits = {record["experiment"]: PRESENT[record["experiment"]](record["data"]) for record in records}
    verdicts = Counter(finding.verdict for exhibit in exhibits.values() for finding in exhibit.findings)
    return parts.page(
        title=TITLE,
        eyebrow="SecureD-FL",
        result=_result(verdicts),
        banners=_banner(exhibits),
        tiles=parts.tiles([(str(verdicts[kind]), about) for kind, about in TILES.items() if verdicts[kind]]),
        contents={record["experiment"]: parts.text(record["title"]) for record in records},
        sections=[_section(record, exhibits[record["experiment"]]) for record in records],
        source="the results in this folder",
    )


def _result(verdicts: Counter[Verdict]) -> str:
    measured = sum(count for verdict, count in verdicts.items() if verdict != "not measured")
    told = f"Of {measured} claims that were measured, {verdicts['holds']} hold"
    if verdicts["within noise"]:
        told += f", {verdicts['within noise']} cannot be told from noise"
    return f"{told} and {verdicts['differs'] or 'none'} differ{'s' * (verdicts['differs'] < 2)}."


def _banner(exhibits: dict[str, Exhibit]) -> str:
    scaled = list(dict.fromkeys(text for exhibit in exhibits.values() for text in exhibit.scaled))
    if not scaled:
        return ""
    return parts.banner("Some results are scaled: smaller than the paper's.", ". ".join(scaled) + ".")


def _section(record: Record, exhibit: Exhibit) -> str:
    name = record["experiment"]
    shown = exhibit.charts or ([exhibit.figure] if exhibit.figure else [])
    charts = parts.grid(*(_chart(picture, f"{name}{n}") for n, picture in enumerate(shown)))
    table = _table(exhibit)
    if len(exhibit.rows) > SHORT:
        table = parts.folded("All numbers", table)
    card = f'<div class="card">{table}{_notes(exhibit)}</div>'
    shown_first = (card, charts) if len(exhibit.rows) <= SHORT else (charts, card)
    repeat = f"<pre><code>{parts.text(chr(10).join(record['commands']))}</code></pre>"
    about = parts.folded(
        "Repeat it",
        repeat
        + parts.facts(
            {
                "Seeds": ", ".join(map(str, record["seeds"])) or "–",
                **record["versions"],
                "Numbers": f"{name}.csv, {name}.json",
            }
        ),
    )
    lead = f"The paper's {record['paper']}." + (
        f" Scaled: {'; '.join(exhibit.scaled)}." if exhibit.scaled else ""
    )
    return parts.section(name, record["title"], *shown_first, _claims(exhibit.findings), about, lead=lead)


def _table(exhibit: Exhibit) -> str:
    remark, columns, rows = exhibit.compact or ("", exhibit.columns, exhibit.rows)
    head = "".join(f'<th scope="col" role="columnheader">{parts.text(column)}</th>' for column in columns)
    body = ""
    for first, *others in rows:
        cells = "".join(
            f'<td role="cell" data-label="{parts.text(column)}"><span>{parts.text(value)}</span></td>'
            for column, value in zip(columns[1:], others, strict=True)
        )
        named = f' data-label="{parts.text(columns[0])}"' if first.isdigit() else ""
        body += f'<tr role="row"><th scope="row" role="rowheader"{named}>{parts.text(first)}</th>{cells}</tr>'
    caption = f"<caption>{parts.text(remark[:1].upper() + remark[1:])}</caption>" if remark else ""
    return (
        f'<div class="scroll"><table class="results" role="table">{caption}'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead><tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _claims(findings: Sequence[Finding]) -> str:
    items = "".join(
        f"<li>{parts.badge(f.verdict, KINDS[f.verdict])} {parts.text(f.claim)}"
        + (f'<br><span class="soft">{parts.text(f.numbers)}</span>' if f.numbers else "")
        + "</li>"
        for f in findings
    )
    return f'<ul class="card claims">{items}</ul>'


def _notes(exhibit: Exhibit) -> str:
    paragraphs = "".join(f'<p class="soft">{parts.text(note)}</p>' for note in exhibit.notes)
    return f'<div class="notes">{paragraphs}</div>'


def _chart(picture: Picture, prefix: str) -> str:
    svg = inline_svg(
        picture.draw(), prefix=prefix, description=picture.description, colours=parts.theme_colours()
    )
    return parts.chart(picture.title, picture.caption, svg)
