"""The report's section on the design: who meets whom, drawn like the paper's Figure 1."""

from __future__ import annotations

import importlib

from securedfl.designs import Design
from securedfl.reporting import parts
from securedfl.reporting.runs import Run

MOST_PEERS_DRAWN = 120
MOST_PARTITIONS_DRAWN = 12
MOST_PARTITIONS_LISTED = 60


def design_section(run: Run) -> str:
    """Return the design as a drawing, in words and in figures."""
    design = run.design
    if design is None:
        return parts.section("design", "Design", '<p class="card">This run used no design.</p>')
    sizes = " and ".join(str(size) for size in design.sizes)
    counted = "1 partition" if design.gap == 1 else f"{design.gap} partitions"
    about = {
        "Partitions (gap)": f"{design.gap} of at most {design.bound}",
        "Built by": design.method,
        "Hash": design.hash,
    }
    listed = parts.folded("All groups in words", _groups(design))
    return parts.section(
        "design", "Design", _drawing(design), f'<div class="card">{parts.facts(about)}{listed}</div>',
        lead=f"{design.n} peers meet in groups of {sizes}. In {counted} no two peers meet twice.",
    )  # fmt: skip


def _drawing(design: Design) -> str:
    if design.n > MOST_PEERS_DRAWN:
        return (
            f'<p class="card">{design.n} peers are too many for a drawing; design.json has every group.</p>'
        )
    drawn = min(design.gap, MOST_PARTITIONS_DRAWN)
    caption = "One circle of peers per partition; a polygon joins the peers of a group."
    if drawn < design.gap:
        caption += f" The first {drawn} of {design.gap} partitions."
    try:
        svg = importlib.import_module("securedfl.designs.drawing").design_svg(design.first(drawn))
    except ModuleNotFoundError:
        return ""
    description = f"{drawn} partitions of {design.n} peers, each drawn as polygons on a circle of peers."
    return parts.picture("Who meets whom", caption, svg, description)


def _groups(design: Design) -> str:
    rows = "".join(
        f"<dt>Partition {i + 1}</dt><dd>{'; '.join(' '.join(map(str, group)) for group in design.partition(i))}</dd>"
        for i in range(min(design.gap, MOST_PARTITIONS_LISTED))
    )
    return f'<dl class="facts">{rows}</dl>'
