"""How the server of either app begins: all sites are there, and the checkpoint says where the work stood."""

from __future__ import annotations

import time
from pathlib import Path


def begun(grid, context) -> tuple[int, int, Path]:
    """Wait for all sites; return how many are enough, how many rounds there are, and where the checkpoint is."""
    given = context.run_config
    while len(list(grid.get_node_ids())) < given["sites"]:
        time.sleep(1)
    return int(given["enough"]), int(given["rounds"]), Path(str(given["checkpoint"]))
