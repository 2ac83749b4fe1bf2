"""The paper's Figure 6: partitions found by number of peers, by its Algorithm 2 and by our constructions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression

from securedfl.designs import best, group_sizes, upper_bound
from securedfl.designs.algorithm2 import randomized
from securedfl.errors import ConfigError
from securedfl.experiments import figures, paper
from securedfl.experiments.figures import Counted
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Plot, Shown
from securedfl.experiments.runs.found import mean, spread
from securedfl.learning.data.hub import Tell
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE

JUDGED = 60
"""Up to how many peers claims are judged, so that no verdict changes with --most."""

LEAST_MOST = 8
"""The smallest --most with which both group sizes have a design."""


@dataclass(frozen=True)
class GroupsData:
    """How many partitions were found, with which seeds, up to how many peers."""

    rows: list[Counted]
    seeds: list[int]
    most: int


def collect(preset: Preset, _out: Path, tell: Tell) -> GroupsData:
    """Build all designs and return how many partitions each has."""
    if preset.most < LEAST_MOST:
        raise ConfigError(f"--most {preset.most} is too few peers for groups of 4; give at least {LEAST_MOST}")
    places = [(s, n) for s in preset.group_sizes for n in range(2 * s, preset.most + 1, s)]
    rows = []
    for done, (s, n) in enumerate(places):
        tell(f"Building designs: {done} of {len(places)}")
        found = [randomized(n, s, seed).gap for seed in preset.seeds]
        rows.append(Counted(s, n, found, best(n, s, 0).gap, upper_bound(group_sizes(n, s))))
    return GroupsData(rows, list(preset.seeds), preset.most)


def present(data: GroupsData) -> Shown:
    """Return the number of partitions, and whether it grows as the paper says."""
    return Shown(
        table=Table(
            ["Group size", "Peers", "Paper's text", "Algorithm 2", "Best known", "Bound"],
            [_row(row) for row in data.rows],
        ),
        records=[record for row in data.rows for record in _records(row, data.seeds)],
        findings=list(_findings([row for row in data.rows if row.peers <= JUDGED], data.most)),
        notes=[
            f"Algorithm 2 with {len(data.seeds)} seeds; our best designs need none of them.",
            f"Claims are judged up to {JUDGED} peers, whatever --most is; fewer leave those about growth unmeasured.",
        ],
        figure=Plot(
            partial(figures.partitions, data.rows),
            "Partitions by number of peers",
            "Algorithm 2: mean over seeds, the band from the fewest to the most. The bound is what counting allows.",
            "Line chart of the number of partitions by number of peers, for groups of 3 and 4.",
        ),
    )


def _known(row: Counted) -> int | None:
    """Return how many partitions the paper found."""
    return paper.PARTITIONS.get(row.peers) if row.group_size == 3 else None


def _row(row: Counted) -> list[str]:
    deviation = f" ± {spread(row.randomized):.1f}" if len(row.randomized) > 1 else ""
    found = f"{mean(row.randomized):.1f}{deviation}"
    known = str(_known(row) or NONE)
    return [str(row.group_size), str(row.peers), known, found, str(row.best), str(row.bound)]


def _records(row: Counted, seeds: Sequence[int]) -> Iterator[dict[str, object]]:
    for seed, found in zip(seeds, row.randomized, strict=True):
        where = {"group_size": row.group_size, "peers": row.peers, "seed": seed}
        yield {**where, "randomized": found, "best": row.best, "bound": row.bound}


def _findings(rows: Sequence[Counted], most: int) -> Iterator[Finding]:
    whole = most >= JUDGED
    for size in dict.fromkeys(row.group_size for row in rows):
        claim = (
            f"On the whole (a line fitted to each seed), Algorithm 2 finds more partitions into groups of {size} the "
        )
        claim += "more peers there are"
        yield Finding.of(claim, [_grows([row for row in rows if row.group_size == size])] if whole else [])
    yield Finding.of("Algorithm 2 finds 4 partitions of 9 peers and 5 of 15, with some seed", _as_stated(rows))
    met = sum(row.best == row.bound for row in rows)
    never_fewer = all(row.best >= max(row.randomized) for row in rows)
    claim = "Ours: the best known designs never have fewer partitions than Algorithm 2 finds"
    told = Check.of(f"the bound is met in {met} of {len(rows)} cases", holds=never_fewer)
    yield Finding.of(claim, [told] if whole else [])


def _grows(rows: Sequence[Counted]) -> Check:
    """Check that partitions grow with the peers: the slope of every seed's line is above 0; steps down are told."""
    means = [(row.peers, mean(row.randomized)) for row in rows]
    drops = [f"{a} to {b} peers" for (a, before), (b, after) in itertools.pairwise(means) if after < before]
    by_seed = zip(*(row.randomized for row in rows), strict=True)
    slopes = [linear_regression([row.peers for row in rows], found).slope for found in by_seed]
    told = f"{min(slopes):.2f} to {max(slopes):.2f} more for each peer, by seed"
    told += f"; on average not from {', '.join(drops)}" if drops else "; on average never fewer with more peers"
    if min(slopes) <= 0 < max(slopes):
        return Check(told, "not decided")
    return Check.of(told, holds=min(slopes) > 0)


def _as_stated(rows: Sequence[Counted]) -> Iterator[Check]:
    """Check that Algorithm 2 finds 4 and 5 partitions of 9 and 15 peers with some seed."""
    for row in rows:
        known, found = _known(row), row.randomized
        if known is not None:
            told = f"{row.peers} peers: {min(found)} to {max(found)}, {known} with {found.count(known)} of {len(found)}"
            yield Check.of(f"{told} seeds", holds=known in found)
