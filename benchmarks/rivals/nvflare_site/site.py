"""What a site of NVFlare's swarm does in a round: notes when the average came, returns its vector at once."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import nvflare.client as flare
import torch

sys.path.append(os.environ["RIVALS"])

from common import largest_error, loopback_bytes, processor_of_all, vector


def main() -> None:
    size, peers, folder = int(os.environ["SIZE"]), int(os.environ["PEERS"]), Path(os.environ["NOTES"])
    flare.init()
    name = flare.get_site_name()
    me = int(name.rpartition("-")[2]) - 1
    number = 0
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        if not model.params:
            raise SystemExit("the model came without parameters")
        note = {"round": number, "received": time.time(), "processor": processor_of_all(), "bytes": loopback_bytes()}
        if number:
            note["error"] = largest_error(model.params["weight"].reshape(-1).numpy(), peers)
        mine = {"weight": torch.from_numpy(vector(me, size).reshape(1, -1))}
        note["sent"] = time.time()
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(note) + "\n")
        flare.send(flare.FLModel(params=mine, params_type="FULL", meta={"NUM_STEPS_CURRENT_ROUND": 1}))
        number += 1


if __name__ == "__main__":
    main()
