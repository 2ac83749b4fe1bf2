"""What came out of an hour: who finished how many rounds, with which model, and who is in it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from .campaign import rows_of
from .training import exact, found

SERVER = -1
"""In the place of a site's number: the server's own notes."""
SAME = 1e-5
"""Models that differ by less are the same but for rounding."""


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
    even = [[(k in each) / max(len(each), 1) for k in range(sites)] for each in members]
    return {
        "members": ["".join(map(str, each)) for each in members],
        "rounds_with_all": sum(len(each) == sites for each in members),
        "fewest_members": min(map(len, members)),
        "trainings": sum(map(len, members)),
        "distance": distance(model, exact(members)),
        "largest_weight_off": round(float(np.abs(weights - even).max()), 4),
    }


def judge(notes: Path, sites: int, rounds: int, began: float) -> dict[str, Any]:
    """Return what came out; ``seconds`` is when the last of those who finished had the last model."""
    last = newest(notes)
    finished = [site for site, (round, _, _) in last.items() if round == rounds and site != SERVER]
    whole = {site: model for site, (round, model, _) in last.items() if round == rounds}
    ends = [row["time"] for row in rows_of(notes) if row["what"] == "holds" and row["round"] == rounds]
    sure = [row["time"] for row in rows_of(notes) if row["what"] == "holds" and row["site"] in finished]
    result: dict[str, Any] = {
        "seconds": round(max(sure or ends) - began, 1) if sure or ends else None,
        "finished": finished,
        "server_finished": SERVER in whole,
        "rounds_of_sites": {site: round for site, (round, _, _) in last.items()},
        "different_bits": len({last[site][2] for site in finished}),
        "apart": max((distance(whole[a], whole[b]) for a in finished for b in finished), default=0.0),
        "rounds_with_several_models": forks(notes),
        "inside": [],
    }
    for site, model in sorted(whole.items(), key=lambda item: (item[0] == SERVER, item[0])):
        for known in result["inside"]:
            if distance(whole[known["held_by"][0]], model) < SAME:
                known["held_by"].append(site)
                break
        else:
            result["inside"].append({"held_by": [site], **inside(model, sites, rounds)})
    result["inside"].sort(key=lambda known: -len(known["held_by"]))
    return result


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return by how much two models differ at most."""
    return float(np.abs(one.astype(np.float64) - other).max())


def forks(notes: Path) -> int:
    """Return after how many rounds sites held different models."""
    held: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows_of(notes):
        if row["what"] == "holds" and row["site"] != SERVER:
            held[row["round"]][row["site"]] = row["digest"]
    return sum(len(set(each.values())) > 1 for round, each in held.items() if round)
