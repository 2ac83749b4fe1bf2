"""Writes the model that NVFlare has left in a file as numpy does: ``last.py FROM TO``."""

from __future__ import annotations

import sys

import numpy as np
import torch


def main() -> None:
    model = torch.load(sys.argv[1], weights_only=True)
    np.save(sys.argv[2], model.get("model", model)["weight"].numpy().reshape(-1))


if __name__ == "__main__":
    main()
