"""The network driver: one peer per process, gRPC with mutual TLS between them."""

from __future__ import annotations

import os

# gRPC's core writes refused handshakes to stderr by itself; this package logs and counts them in its own words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
