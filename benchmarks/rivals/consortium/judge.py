"""What came out of an hour: who finished how many rounds, with which model, and who is in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from .campaign import rows_of
from .training import exact, found

SERVER = -1
"""In the place of a site's number: the server's own notes."""


def newest(notes: Path) -> dict[int, tuple[int, np.ndarray, str]]:
    """Return each site's last model, with the round that it is of and its digest; of a run's last beginning."""
    last: dict[int, dict[str, Any]] = {}
    for row in rows_of(notes):
        if row["what"] == "holds":
            last[row["site"]] = row
    return {
        site: (row["round"], np.load(notes / f"model-{site}-{row['round']}.npy"), row["digest"])
        for site, row in sorted(last.items())
    }


def inside(model: np.ndarray, sites: int, rounds: int) -> dict[str, Any]:
    """Return whose training is in a model, and how far it is from the exact mean over them.

    A site counts as a member of a round if the model has at least half of what an even share would be.
    """
    weights = found(model, sites, rounds)
    members = [[k for k in range(sites) if row[k] > 0.5 / sites] for row in weights]
    return {
        "members": ["".join(map(str, each)) for each in members],
        "rounds_with_all": sum(len(each) == sites for each in members),
        "fewest_members": min(map(len, members)),
        "trainings": sum(map(len, members)),
        "distance": float(np.abs(model - exact(members)).max()),
        "weights": [[round(float(weight), 4) for weight in row] for row in weights],
    }


def judge(notes: Path, sites: int, rounds: int) -> dict[str, Any]:
    """Return what came out."""
    last = newest(notes)
    own = {site: value for site, value in last.items() if site != SERVER}
    finished = [site for site, (round, _, _) in own.items() if round == rounds]
    digests = Counter(own[site][2] for site in finished)
    result: dict[str, Any] = {
        "finished": finished,
        "rounds_of_sites": {site: round for site, (round, _, _) in own.items()},
        "models": len(digests),
        "rounds_with_several_models": forks(notes),
    }
    if SERVER in last:
        result["server"] = {"round": last[SERVER][0], "digest": last[SERVER][2]}
    whole = [site for site in last if last[site][0] == rounds]
    if whole:
        # each different model once, the commonest first
        order = sorted({last[site][2] for site in whole}, key=lambda digest: -digests[digest])
        result["inside"] = []
        for digest in order:
            holders = [site for site in whole if last[site][2] == digest]
            result["inside"].append({"held_by": holders, **inside(last[holders[0]][1], sites, rounds)})
    return result


def forks(notes: Path) -> int:
    """Return after how many rounds sites held different models."""
    held: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows_of(notes):
        if row["what"] == "holds" and row["site"] != SERVER:
            held[row["round"]][row["site"]] = row["digest"]
    return sum(len(set(each.values())) > 1 for round, each in held.items() if round)
