"""A node of p2pfl whose model is one vector, for an average and for a site of the consortium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def make_node(
    address: str, model: np.ndarray, fit: Callable[[np.ndarray], np.ndarray], took: Callable[[np.ndarray], None]
) -> Any:
    """Return a node that is not started; p2pfl's settings come before.

    Parameters
    ----------
    address, model
        Where it listens, and what it begins with.
    fit
        Gives what it brings to a round, from the model.
    took
        Is given every model that it gets.
    """
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
            model.set_parameters([fit(model.get_parameters()[0])])
            model.set_contribution([self.addr], 1)
            return model

        def set_model(self, model):
            super().set_model(model)
            took(self.get_model().get_parameters()[0])

        def interrupt_fit(self):
            pass

        def evaluate(self):
            return {}

        def get_framework(self):
            return "pytorch"

    rows = P2PFLDataset(Dataset.from_dict({"x": [0.0, 1.0]}))
    return Node(Plain([model]), rows, addr=address, learner=Site())
