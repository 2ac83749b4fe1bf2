"""The benchmarks still fit the code that they measure: every script imports, and their baseline averages."""

import importlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.simulation.driver import run

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return {path.stem: importlib.import_module(path.stem) for path in sorted(FOLDER.glob("*.py"))}


def test_every_script_fits_the_code_and_pairwise_masks_give_the_mean(scripts):
    assert {"averaging", "network", "shares"} <= set(scripts)
    models = [np.random.default_rng(peer).normal(size=50).astype(np.float32) for peer in range(9)]
    mean = run(partial(scripts["pairwise"].pairwise, design=best(9, 3, 0)), models).average
    np.testing.assert_allclose(mean, np.mean(models, axis=0), atol=1e-6)
