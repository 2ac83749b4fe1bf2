"""SecureD-FL between processes: mutual TLS 1.3, votes and results on disk before they count, as `securedfl peer` does.

`--protocol` is grouped (Algorithm 3 in a field), shares or resilient; the last two withstand any two colluders.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import count
from pathlib import Path

import numpy as np
from common import Step, arguments, raise_loopback, side_by_side, tell, vector, versions

sys.path.append(str(Path(__file__).parents[1]))

OPTIONS = {"shares": {"strength": 3}, "resilient": {"strength": 3}, "grouped": {}}


def setup(me, args, job) -> Step:
    from network import peer_settings
    from securedfl.network.data.memory import share_one_heap
    from securedfl.network.peer import Peer

    share_one_heap()
    settings, _ = peer_settings(Path(job["folder"]), me, job)
    running = Peer(settings).__enter__()
    running.begin()
    mine, rounds = vector(me, args.size), count()

    def step() -> np.ndarray:
        return running.average(mine, next(rounds)).vector

    return step


if __name__ == "__main__":
    from network import make_roster

    options = arguments(__doc__)
    raise_loopback()
    with tempfile.TemporaryDirectory() as name:
        job = {"peers": options.peers, "size": options.size, "repeat": options.repeat + 1, "folder": name}
        job |= {"protocol": options.protocol, "options": OPTIONS[options.protocol]}
        job["roster"] = make_roster(Path(name), options.peers)
        found = side_by_side(setup, options, job)
        tell({**found, "versions": versions("securedfl", "numpy", "cryptography")})
