"""FedAvg's mean: everybody sends its parameters in the clear to one peer, which averages."""

from __future__ import annotations

from securedfl.designs.design import Design
from securedfl.protocols.steps import Array, Draw, Steps, total

SERVER = 0
"""The peer that plays FedAvg's server and so sees everybody's parameters."""


def plain(me: int, w: Array, design: Design, *, round: int = 0, draw: Draw) -> Steps:  # noqa: ARG001
    """Average at a server, as FedAvg does; exact, cheap, and private from everybody but the server."""
    if me == SERVER:
        received = yield {}
        mean = total([w if u == me else received[u] for u in range(design.n)]) / design.n
        yield {u: mean for u in range(design.n) if u != me}
        return mean
    yield {SERVER: w}
    received = yield {}
    return received[SERVER]
