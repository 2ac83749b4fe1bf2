"""The app of a site of SecureD-FL: the training that all systems do."""

from __future__ import annotations

from training import hold, start, train


def make(settings):
    site = int(settings["name"].removeprefix("p"))

    def update(model, data, round):
        if round > 1:
            hold(site, round - 1, model["weights"])
        model["weights"][...] = train(site, round, model["weights"])
        return 0.0

    return {"weights": start()}, [0], update
