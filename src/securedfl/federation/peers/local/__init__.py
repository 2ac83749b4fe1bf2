"""A federation of real processes on this machine, for `securedfl up`: one peer each, and one run folder of it all."""

from securedfl.federation.peers.local.processes import COMMAND, LocalPeer
from securedfl.federation.peers.local.running import ProcessLostError, up

__all__ = ["COMMAND", "LocalPeer", "ProcessLostError", "up"]
