"""Tables of what came out, as they stand in docs/evidence/comparison.md."""

from __future__ import annotations

from typing import Any

from .hour import ALONE, BAD
from .judge import SAME
from .one import chosen

KINDS = {
    "slow": "slow line, 60 s",
    "break": "link breaks, 12 s",
    "leave": "site stops and is started again, 10 s",
    "kill": "site killed, comes back with a stale key",
    "freeze": "site frozen, 8 s",
    "full": "disk full, 12 s",
    "silent": "link silent, 10 s",
}
"""What the faults are called in the page."""


def row(cells: list[str]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def head(columns: list[str]) -> list[str]:
    """Return the first two lines of a table."""
    return [row(columns), "|" + "---|" * len(columns)]


def who(run: dict[str, Any]) -> str:
    """Return who finished."""
    text = f"{len(run['finished'])} of {run['sites']} sites"
    return f"the server, {text}" if run["server_finished"] else text


def which(run: dict[str, Any]) -> str:
    """Return whether those who finished have the same model."""
    if len(run["finished"]) < 2:
        return "–"
    if run["different_bits"] == 1:
        return "same bits"
    if run["apart"] < SAME:
        return f"same but for rounding ({run['apart']:.0e})"
    return f"{run['different_bits']} different ones, up to {run['apart']:.2g} apart"


def members(run: dict[str, Any]) -> list[str]:
    """Return whose training is in the model that most have, and how far it is from the exact mean over them."""
    if not run["inside"]:
        return ["–", "–", "–"]
    one = run["inside"][0]
    whole = run["sites"] * run["rounds"]
    off = "" if one["distance"] < 1e-4 else f"; weights off by up to {one['largest_weight_off']:.2g}"
    return [f"{one['trainings']} of {whole}", str(one["rounds_with_all"]), f"{one['distance']:.1e}{off}"]


def lasted(run: dict[str, Any]) -> str:
    """Return how long it took."""
    if not run["over"]:
        return f"not over after {run['over_after']:.0f} s"
    return f"{run['seconds']:.0f} s" if run["seconds"] is not None else f"ended after {run['over_after']:.0f} s"


def by_hand(run: dict[str, Any]) -> str:
    """Return what was needed besides starting sites again whose fault was over, and the right key."""
    planned = sum(kind in run["hour_faults"] for kind in ("leave", "kill")) + bool(run["put_right"])
    more = sum(run["starts"].values()) - run["sites"] - planned
    acts = [f"{more} more start{'s' * (more != 1)} by the service manager"] if more else []
    again = sum("again" in act for act in run["acts"])
    acts += [f"job begun again {times(again)}"] if again else []
    return "; ".join([*acts, *(act for act in run["acts"] if "again" not in act)]) or "nothing"


def times(count: int) -> str:
    """Say how often."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def tables(runs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the tables by the names of their marks."""
    return {"consortium": hours(runs), "faults": faults(runs), "deployments": deployments(runs)}


def hours(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of the bad hour, with how long the quiet one took where that ran."""
    quiet = {run["name"]: run for run in runs if run["hour_name"] == "quiet"}
    calm = ["without faults"] if quiet else []
    columns = ["system", "finished", "took", *calm, "models", "trainings in it", "rounds with all sites"]
    lines = head([*columns, "from the exact mean", "needed besides"])
    for run in runs:
        if run["hour_name"] != "bad":
            continue
        before = [_calm(quiet.get(run["name"]))] * len(calm)
        if "failed" in run:
            lines.append(row([run["system"], f"failed: {run['failed'][:200]}", "", *before, "", "", "", "", ""]))
        else:
            took = f"{lasted(run)} (load {run['load']:.0f})"
            lines.append(row([run["system"], who(run), took, *before, which(run), *members(run), by_hand(run)]))
    return lines


def _calm(run: dict[str, Any] | None) -> str:
    return "–" if run is None or "failed" in run else f"{lasted(run)}, {who(run)}"


def faults(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of faults that came alone: who finished, trainings in the model, seconds."""
    kinds = [fault.kind for fault in BAD.faults]
    lines = head(["system", *(KINDS[kind] for kind in kinds)])
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        if run["hour_name"] in ALONE:
            found.setdefault(run["system"], {})[run["hour_name"]] = cell(run)
    lines += [row([system, *(cells.get(kind, "–") for kind in kinds)]) for system, cells in found.items()]
    return lines if found else ["Not run yet."]


def deployments(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of how systems were set up, and of what was read about the stale key."""
    lines = head(["system", "versions", "set up as", "what is read about the stale key"])
    for run in runs:
        if run["hour_name"] == "bad":
            versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            stale = chosen(run["name"]).without.get("stale")
            told = f"does not apply: {stale}" if stale else run.get("stale_key_was_told") or "nothing"
            lines.append(row([run["system"], versions, run["settings"], told]))
    return lines


def cell(run: dict[str, Any]) -> str:
    """Return one run of a fault alone in a few words."""
    if "failed" in run:
        return f"failed: {run['failed'][:80]}"
    apart = [f"{run['different_bits']} models"] if which(run).endswith("apart") else []
    return ", ".join([who(run).replace(" sites", ""), members(run)[0].replace(" of ", "/"), *apart, lasted(run)])
