"""SecureD-FL: federated learning without a server.

Peers train the same model on private data and average their parameters within small groups, which come from a
combinatorial design. See `average` for the one-liner and ``securedfl --help`` for the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from securedfl.designs import Design, best_design
from securedfl.errors import SecuredFLError
from securedfl.protocols import Schedule
from securedfl.simulation import run
from securedfl.simulation.average import average

if TYPE_CHECKING:
    from securedfl.federation.peers.join import JoinedPeer

__version__ = "0.1.0"


def join(path: str | Path) -> JoinedPeer:
    """Join a federation of real peers from your own training loop; see `securedfl.federation.peers.join.join`."""
    from securedfl.federation.peers.join import join as connect  # late: needs the extra "network"

    return connect(path)


__all__ = ["Design", "Schedule", "SecuredFLError", "__version__", "average", "best_design", "join", "run"]
