"""What a site of NVFlare does in a round: takes the model, trains, sends its own."""

from __future__ import annotations

import os

import nvflare.client as flare
import torch

from training import SITE, hold, start, train


def main() -> None:
    flare.init()
    site, rounds = int(os.environ[SITE]), int(os.environ["CONSORTIUM_ROUNDS"])
    while flare.is_running():
        given = flare.receive()
        if given is None:
            break
        model = given.params["weight"]
        model = (model.numpy() if hasattr(model, "numpy") else model).reshape(-1)
        if flare.is_evaluate():
            hold(site, rounds, model)
            flare.send(flare.FLModel(metrics={"accuracy": 0.0}))
            continue
        if given.current_round:
            hold(site, given.current_round, model)
        else:
            # NVFlare's first model is drawn by PyTorch; all systems begin with the same
            model = start()
        mine = torch.from_numpy(train(site, given.current_round + 1, model).reshape(1, -1))
        flare.send(flare.FLModel(params={"weight": mine}, params_type="FULL", meta={"NUM_STEPS_CURRENT_ROUND": 1}))


if __name__ == "__main__":
    main()
