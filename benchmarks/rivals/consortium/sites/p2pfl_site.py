"""A site of p2pfl: a node in a process of its own that is connected with all others; the first one begins the learning.

``p2pfl_site.py KEYS ADDRESS OTHERS...``; the keys are those of its user's own authority.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from p2pfl_node import make_node

from training import NOTES, SITE, hold, load, note, save, train

ABSENT, PATIENCE = 15.0, 30
CHECKPOINT = Path("checkpoint.npz")
NODES: list[Any] = []


def choose(keys: str, site: int) -> None:
    """Set p2pfl's settings, before anything else of it is imported: its logger would start Ray."""
    from p2pfl.settings import Settings

    Settings.general.DISABLE_RAY = True
    ssl = Settings.ssl
    ssl.USE_SSL, ssl.CA_CRT = True, f"{keys}/ca.crt"
    ssl.SERVER_CRT = ssl.CLIENT_CRT = f"{keys}/site-{site}.crt"
    ssl.SERVER_KEY = ssl.CLIENT_KEY = f"{keys}/site-{site}.key"
    Settings.heartbeat.TIMEOUT = ABSENT
    Settings.training.VOTE_TIMEOUT = Settings.training.AGGREGATION_TIMEOUT = PATIENCE


def round_now() -> int:
    """Return the round, counted from 1 and over all beginnings."""
    return int((Path(os.environ[NOTES]) / "begun").read_text()) + NODES[0].state.round + 1


def node_of(site: int, address: str, model: np.ndarray) -> Any:
    """Return a node that trains, and notes and keeps what it gets."""

    def took(model: np.ndarray) -> None:
        if NODES and NODES[0].state.round is not None:
            hold(site, round_now(), model)
            save(CHECKPOINT, round_now(), model)

    return make_node(address, model, lambda model: train(site, round_now(), model), took)


def main() -> None:
    keys, own, *others = sys.argv[1:]
    site, rounds, folder = int(os.environ[SITE]), int(os.environ["CONSORTIUM_ROUNDS"]), Path(os.environ[NOTES])
    choose(keys, site)
    done, model = load(CHECKPOINT)
    node = node_of(site, own, model)
    node.start()
    NODES.append(node)
    (folder / f"ready-{site}").touch()
    while len(list(folder.glob("ready-*"))) <= len(others):
        time.sleep(0.2)
    begun = folder / "begun"
    for other in others:
        # at the first start each pair is connected once; one that comes back asks everybody
        if begun.exists() or other < own:
            with suppress(Exception):
                node.connect(other)
    while not site and len(node.get_neighbors()) < len(others):
        time.sleep(0.5)
    if not site:
        begun.write_text(str(done))
        node.set_start_learning(rounds=rounds - done, epochs=1, trainset_size=len(others) + 1)
    while node.state.round is None:
        time.sleep(0.2)
    while node.state.round is not None:
        time.sleep(0.2)
    # learning also ends when something went wrong
    note(site, rounds, "ended" if load(CHECKPOINT)[0] == rounds else "gave up")
    # others may still want something of it
    time.sleep(3600)


if __name__ == "__main__":
    main()
