"""A tiny model for peers in tests: every update adds numbers that depend on peer and round only."""

from __future__ import annotations

import sys
import time

import numpy as np

from securedfl import App


def make(settings):
    own = int(settings["name"].removeprefix("p"))
    size = int(settings.get("size", 1000))
    random = np.random.default_rng(own)
    model = {"a": random.normal(size=(size // 2, 2)), "b": random.normal(size=3).astype(np.float32)}

    def update(model, data, round):
        noise = np.random.default_rng(None if settings.get("random") else [own, round])
        for value in model.values():
            value += noise.normal(size=value.shape).astype(value.dtype)
        if round == settings.get("nan_round"):
            model["a"][0, 0] = np.nan
        if round == settings.get("failing_round"):
            raise ArithmeticError("this site's data")
        if round == settings.get("leaving_round"):
            sys.exit()
        time.sleep(float(settings.get("pause", 0)))
        if round == settings.get("slow_round"):
            time.sleep(float(settings["slow_seconds"]))
        return 0.5

    data = list(range(10 + own))
    if "coding" in settings:
        return App(model=model, data=data, update=update, coding=settings["coding"])
    return model, data, update


def replay(names, rounds, average, size=1000):
    """Return what all peers hold after the rounds, given an ``average(vectors, round)`` of what they bring."""
    made = [make({"name": name, "size": size}) for name in names]

    def flat(model):
        return np.concatenate([np.asarray(value, dtype=np.float64).reshape(-1) for value in model.values()])

    def load(model, vector):
        at = 0
        for value in model.values():
            value[...] = vector[at : at + value.size].reshape(value.shape)
            at += value.size

    held = np.zeros_like(flat(made[0][0]))
    for round in range(rounds + 1):
        if round:
            for model, data, update in made:
                update(model, data, round)
        held = held + average([flat(model) - held for model, _, _ in made], round)
        for model, _, _ in made:
            load(model, held)
    return flat(made[0][0])
