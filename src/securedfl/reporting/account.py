"""The ledger of a run as a table: what all averages together gave away, one column per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securedfl.reporting import parts
from securedfl.reporting.units import NONE


def ledger_table(ledgers: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the table of (method's label, ledger) pairs."""
    columns = [_told(ledger) for _, ledger in ledgers]
    head = "".join(f'<th scope="col">{parts.text(name)}</th>' for name, _ in ledgers)
    body = "".join(
        f'<tr><th scope="row">{parts.text(row)}</th>'
        + "".join(f"<td>{parts.text(column[row])}</td>" for column in columns)
        + "</tr>"
        for row in columns[0]
    )
    return (
        '<div class="card"><h3>Ledger of the whole run</h3><div class="scroll"><table>'
        f'<thead><tr><th scope="col">So far</th>{head}</tr></thead><tbody>{body}</tbody></table></div></div>'
    )


def _told(ledger: Mapping[str, Any]) -> dict[str, str]:
    coalition = _peers(ledger.get("coalition"))
    return {
        "Averages": _averages(ledger.get("averages"), ledger.get("attempts")),
        "Any two peers met": _meetings(ledger.get("pairs_by_meetings")),
        "Worst coalition": coalition or NONE,
        "It has computed": _computed(ledger.get("exposed_so_far")),
        "Narrowest interval of a value, on average": _interval(ledger),
    }


def _averages(averages: object, attempts: object) -> str:
    if not isinstance(averages, int):
        return NONE
    return str(averages) if attempts in (None, averages) else f"{averages} in {attempts} attempts"


def _meetings(pairs: object) -> str:
    """Say how often pairs met, from how many pairs met how often."""
    if not isinstance(pairs, Mapping):
        return NONE
    times = sorted(int(key) for key in pairs if str(key).isdecimal())
    if not times:
        return NONE
    low, high = times[0], times[-1]
    unit = "time" if high == 1 else "times"
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def _computed(exposed: object) -> str:
    if not isinstance(exposed, list):
        return NONE
    return f"parameters of {_peers(exposed)}" if exposed else "nobody's parameters"


def _interval(ledger: Mapping[str, Any]) -> str:
    """Say how far messages narrow a value that never changes down, on average."""
    if ledger.get("kind") == "perfect":
        return "none: messages are uniformly random"
    width, mask = ledger.get("interval_after_all_meetings"), ledger.get("mask_width")
    if not isinstance(width, int | float):
        return NONE
    return f"{width:.3g} wide" + (f" (masks: {mask:.3g})" if isinstance(mask, int | float) else "")


def _peers(peers: object, most: int = 12) -> str:
    if not isinstance(peers, list) or not peers:
        return ""
    names = ", ".join(str(peer) for peer in peers[:most]) + (", …" if len(peers) > most else "")
    return f"peer {names}" if len(peers) == 1 else f"peers {names}"
