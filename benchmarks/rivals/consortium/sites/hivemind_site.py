"""A site of hivemind: train, look for a group, average; one that was started again asks its peers for their state."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from hivemind import DHT
from hivemind.averaging import DecentralizedAverager

from training import NOTES, SITE, hold, note, start, train

PATIENCE = 30.0


class Averager(DecentralizedAverager):
    """Tells the round with its state."""

    round = 0

    def get_current_state(self):
        with self.get_tensors() as tensors:
            return {"round": self.round}, [tensor.clone() for tensor in tensors], self.tensor_infos


def first_address(site: int, folder: Path) -> list[str]:
    """Return where to find site 0, which tells everybody as soon as it listens."""
    while site and not (folder / "address").exists():
        time.sleep(0.2)
    return (folder / "address").read_text().split() if site else []


def wait_for_all(site: int, folder: Path) -> None:
    """Begin when all sites are there; later they always are."""
    (folder / f"ready-{site}").touch()
    while len(list(folder.glob("ready-*"))) < int(os.environ["CONSORTIUM_SITES"]):
        time.sleep(0.2)


def main() -> None:
    site, rounds, folder = int(os.environ[SITE]), int(os.environ["CONSORTIUM_ROUNDS"]), Path(os.environ[NOTES])
    torch.set_num_threads(1)
    dht = DHT(
        initial_peers=first_address(site, folder),
        host_maddrs=[f"/ip4/{sys.argv[1]}/tcp/31337"],
        identity_path="identity",
        start=True,
    )
    if not site:
        part = folder / "address.part"
        part.write_text("\n".join(map(str, dht.get_visible_maddrs())))
        part.rename(folder / "address")
    averager = Averager(
        [torch.from_numpy(start())],
        dht,
        prefix="consortium",
        next_chunk_timeout=5.0,
        allreduce_timeout=PATIENCE,
        start=True,
    )
    wait_for_all(site, folder)
    if loaded := averager.load_state_from_peers(timeout=PATIENCE):
        averager.round = int(loaded[0]["round"])
        with averager.get_tensors() as tensors:
            tensors[0].copy_(loaded[1][0])
    while averager.round < rounds:
        round = averager.round + 1
        with averager.get_tensors() as tensors:
            model = tensors[0].numpy().copy()
        model = train(site, round, model)
        with averager.get_tensors() as tensors:
            tensors[0].copy_(torch.from_numpy(model))
        try:
            group = averager.step(timeout=PATIENCE)
        except Exception as error:
            # it failed for good; its guide says to go on with the local parameters
            group = None
            print(f"round {round}: {type(error).__name__}: {error}", flush=True)
        note(site, round, f"group of {len(group) if group else 0}")
        averager.round = round
        with averager.get_tensors() as tensors:
            hold(site, round, np.array(tensors[0].numpy()))
    # others may still need its state
    time.sleep(PATIENCE)
    averager.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
