"""The paper's Figure 6: partitions found by number of peers, by its Algorithm 2 and by our constructions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from securedfl.designs import best, group_sizes, upper_bound
from securedfl.designs.algorithm2 import randomized
from securedfl.errors import ConfigError
from securedfl.experiments import figures, paper
from securedfl.experiments.exhibit import Exhibit, Finding, Picture, Verdict, judged, overall
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import mean, spread

LEAST_MOST = 8
"""The smallest --most with which both group sizes have a design."""


def collect(
    preset: Preset,
    *,
    most: int | None = None,
    seeds: Sequence[int] | None = None,
    step: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, Any]:
    """Build all designs and return how many partitions each has.

    Parameters
    ----------
    preset
        Group sizes, seeds and the largest number of peers.
    most, seeds
        Instead of the preset's.
    step
        Told how many of how many designs are built.
    """
    most = preset.most if most is None else most
    if most < LEAST_MOST:
        raise ConfigError(f"--most {most} is too few peers for groups of 4; give at least {LEAST_MOST}")
    seeds = list(preset.seeds if seeds is None else seeds)
    places = [(s, n) for s in preset.group_sizes for n in range(2 * s, most + 1, s)]
    rows = []
    for done, (s, n) in enumerate(places):
        step(done, len(places))
        found = [randomized(n, s, seed).gap for seed in seeds]
        rows.append(
            {
                "group_size": s,
                "peers": n,
                "randomized": found,
                "best": best(n, s, 0).gap,
                "bound": upper_bound(group_sizes(n, s)),
            }
        )
    step(len(places), len(places))
    return {"rows": rows, "seeds": seeds, "most": most}


def present(data: Mapping[str, Any]) -> Exhibit:
    """Return the number of partitions, and whether it grows as the paper says."""
    rows: list[dict[str, Any]] = data["rows"]
    return Exhibit(
        columns=["Group size", "Peers", "Paper's text", "Algorithm 2", "Best known", "Bound"],
        rows=[_row(row) for row in rows],
        records=_records(data),
        findings=[*_grows(rows), _as_stated(rows), _reached(rows)],
        figure=Picture(
            partial(figures.partitions, rows),
            "Partitions by number of peers",
            "Algorithm 2: mean over seeds, the band from the fewest to the most. The bound is what counting allows.",
            "Line chart of the number of partitions by number of peers, for groups of 3 and 4.",
        ),
        notes=[f"Algorithm 2 with {len(data['seeds'])} seeds; our best designs need none of them."],
    )


def _row(row: Mapping[str, Any]) -> list[str]:
    known = paper.PARTITIONS.get(row["peers"]) if row["group_size"] == 3 else None
    found = row["randomized"]
    deviation = f" ± {spread(found):.1f}" if len(found) > 1 else ""
    return [
        str(row["group_size"]),
        str(row["peers"]),
        str(known or "–"),
        f"{mean(found):.1f}{deviation}",
        str(row["best"]),
        str(row["bound"]),
    ]


def _records(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "group_size": row["group_size"],
            "peers": row["peers"],
            "seed": seed,
            "randomized": found,
            "best": row["best"],
            "bound": row["bound"],
        }
        for row in data["rows"]
        for seed, found in zip(data["seeds"], row["randomized"], strict=True)
    ]


def _grows(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check that the number of partitions grows with the peers; a step down in ten steps is no contradiction."""
    findings = []
    for size in dict.fromkeys(row["group_size"] for row in rows):
        values = [(row["peers"], mean(row["randomized"])) for row in rows if row["group_size"] == size]
        drops = [
            f"{a} to {b} peers" for (a, before), (b, after) in itertools.pairwise(values) if after < before
        ]
        told = f"{values[0][1]:.1f} with {values[0][0]} peers to {values[-1][1]:.1f} with {values[-1][0]}"
        told += f"; not from {', '.join(drops)}" if drops else "; never fewer with more peers"
        grows = values[-1][1] > values[0][1] and len(drops) <= len(values) / 10
        claim = f"Algorithm 2 finds more partitions into groups of {size} the more peers there are"
        findings.append(Finding(claim, judged(holds=grows), told))
    return findings


def _as_stated(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that Algorithm 2 finds 4 and 5 partitions of 9 and 15 peers with some seed."""
    verdicts: list[Verdict] = []
    numbers = []
    for row in rows:
        known = paper.PARTITIONS.get(row["peers"])
        if row["group_size"] == 3 and known is not None:
            found = row["randomized"]
            verdicts.append(judged(holds=known in found))
            numbers.append(f"{row['peers']} peers: {min(found)} to {max(found)}, the paper {known}")
    return Finding(
        "Algorithm 2 finds 4 partitions of 9 peers and 5 of 15", overall(verdicts), "; ".join(numbers)
    )


def _reached(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that our designs have at least as many partitions as Algorithm 2 finds."""
    met = sum(row["best"] == row["bound"] for row in rows)
    never_fewer = all(row["best"] >= max(row["randomized"]) for row in rows)
    return Finding(
        "Ours: the best known designs never have fewer partitions than Algorithm 2 finds",
        judged(holds=never_fewer),
        f"the bound is met in {met} of {len(rows)} cases",
    )
