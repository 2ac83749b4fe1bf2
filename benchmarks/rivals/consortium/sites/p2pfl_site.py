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


def make_node(site: int, address: str, model: np.ndarray) -> Any:
    """Return a node that trains."""
    from datasets import Dataset
    from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset
    from p2pfl.learning.frameworks.learner import Learner
    from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel
    from p2pfl.node import Node

    class Plain(P2PFLModel):
        def get_parameters(self):
            return self.model

        def set_parameters(self, params):
            if isinstance(params, bytes):
                params, info = self.decode_parameters(params)
                self.additional_info.update(info)
            self.model = list(params)

        def get_framework(self):
            return "pytorch"

    class Site(Learner):
        def fit(self):
            model = self.get_model()
            model.set_parameters([train(site, round_now(), model.get_parameters()[0])])
            model.set_contribution([self.addr], 1)
            return model

        def set_model(self, model):
            super().set_model(model)
            if NODES and NODES[0].state.round is not None:
                hold(site, round_now(), self.get_model().get_parameters()[0])
                save(CHECKPOINT, round_now(), self.get_model().get_parameters()[0])

        def interrupt_fit(self):
            pass

        def evaluate(self):
            return {}

        def get_framework(self):
            return "pytorch"

    rows = P2PFLDataset(Dataset.from_dict({"x": [0.0, 1.0]}))
    return Node(Plain([model]), rows, addr=address, learner=Site())


def main() -> None:
    keys, own, *others = sys.argv[1:]
    site, rounds, folder = int(os.environ[SITE]), int(os.environ["CONSORTIUM_ROUNDS"]), Path(os.environ[NOTES])
    choose(keys, site)
    done, model = load(CHECKPOINT)
    node = make_node(site, own, model)
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
