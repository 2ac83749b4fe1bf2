"""gloo: torch.distributed's all_reduce between processes, without TLS or privacy; what all others are compared with."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from common import Step, arguments, side_by_side, tell, vector, versions


def setup(me, args, folder) -> Step:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(Path(folder) / "store"), args.peers)
    dist.init_process_group("gloo", store=store, rank=me, world_size=args.peers)
    mine = torch.from_numpy(vector(me, args.size))

    def step() -> np.ndarray:
        copy = mine.clone()
        dist.all_reduce(copy)
        return copy.div_(args.peers).numpy()

    return step


if __name__ == "__main__":
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory() as name:
        tell({**side_by_side(setup, options, name), "versions": versions("torch", "numpy")})
