"""hivemind: a DecentralizedAverager at each peer, found through its DHT; libp2p, butterfly all-reduce, no server."""

from __future__ import annotations

import numpy as np
from common import Step, arguments, raise_loopback, side_by_side, tell, vector, versions


def setup(me, args, address) -> Step:
    import multiprocessing

    # it hands processes what cannot be pickled
    multiprocessing.set_start_method("fork", force=True)
    import hivemind
    import torch
    from hivemind.averaging import DecentralizedAverager

    torch.set_num_threads(1)
    dht = hivemind.DHT(initial_peers=address, start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    mine = torch.from_numpy(vector(me, args.size))
    averager = DecentralizedAverager(
        [mine.clone()],
        dht,
        prefix="rivals",
        target_group_size=args.peers,
        min_group_size=args.peers,
        min_matchmaking_time=2.0,
        request_timeout=1.0,
        start=True,
    )

    def step() -> np.ndarray:
        with averager.get_tensors() as tensors:
            tensors[0].copy_(mine)
        for _ in range(20):
            if averager.step(timeout=60, allow_retries=True) is not None:
                break
        with averager.get_tensors() as tensors:
            return tensors[0].numpy().copy()

    return step


if __name__ == "__main__":
    options = arguments(__doc__)
    raise_loopback()
    import hivemind

    first = hivemind.DHT(start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
    addresses = [str(address) for address in first.get_visible_maddrs()]
    found = side_by_side(setup, options, addresses)
    tell({**found, "versions": versions("hivemind", "torch", "numpy")})
