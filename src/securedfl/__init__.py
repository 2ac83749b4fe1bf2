"""SecureD-FL: federated learning without a server.

Peers train the same model on private data and average their parameters within small groups, which come from a
combinatorial design. See `average` for the one-liner and ``securedfl --help`` for the command line.
"""

from __future__ import annotations

from securedfl.averaging import average
from securedfl.designs import Design
from securedfl.errors import SecuredFLError
from securedfl.protocols import Schedule
from securedfl.transport import run

__version__ = "0.1.0"

__all__ = ["Design", "Schedule", "SecuredFLError", "__version__", "average", "run"]
