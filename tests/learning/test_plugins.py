"""Data sets and models of other distributions: found by entry points, also in worker processes; clashes are errors."""

import numpy as np
import pytest

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig
from securedfl.federation.task import make_task
from securedfl.federation.train import train
from securedfl.learning.data.datasets import load, names, source
from securedfl.learning.models.registry import build
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.team import InProcessTeam
from tests.learning.plugin import install

COINS = """
import numpy as np
from torch import nn

from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import Source


def load(data_dir, report):
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 200)
    x = (random.random((200, 1, 8, 8)) + y[:, None, None, None]).astype(np.float32)
    return Dataset(name="coins", x=x, y=y, classes=2, users=np.arange(200) % 10)


coins = Source(load=load, about="made up", defaults={"model": "one-layer", "dealing": "natural"})


def one_layer(shape, classes, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.fixture
def coins(monkeypatch, tmp_path):
    install(
        monkeypatch,
        tmp_path / "site",
        COINS,
        datasets={"coins": "coins"},
        models={"one-layer": "one_layer"},
    )


def test_a_plug_in_trains_also_in_worker_processes(coins, tmp_path):
    """Workers find a plug-in as this process does, and give the same numbers."""
    assert names() == ["digits", "femnist", "shakespeare", "cifar10", "coins"]
    settings = {"dataset": "coins", "rounds": 1, "methods": "secured", "peers": 4, "group_size": 2, "collusion": 0}
    config = TrainConfig.resolve({**settings, "workers": 1, "out": str(tmp_path / "run")})
    assert (config.model, config.dealing) == ("one-layer", "natural")
    assert train(config).methods["secured"].rounds == 1
    task, found = make_task(config), []
    for team in (InProcessTeam(task), ProcessTeam(task, 1)):
        with team:
            team.initialise()
            team.update(1)
            found.append((team.evaluate_each(), team.parameters.copy()))
    np.testing.assert_equal(found[0], found[1])


def test_built_in_names_stay_what_they_are(coins):
    assert source("digits").about.startswith("1,797 handwritten digits")
    assert len(load("coins")) == 200
    with pytest.raises(ConfigError, match="unknown data set 'coin'; did you mean 'coins'"):
        source("coin")
    with pytest.raises(ConfigError, match="did you mean 'one-layer'"):
        build("one-layr", (64,), 2)


def test_a_name_that_is_taken_is_an_error_that_says_whose(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path / "a", COINS, name="first", datasets={"digits": "coins"})
    with pytest.raises(ConfigError, match=r"'first' announces a data set 'digits', which this package has itself"):
        source("femnist")
    install(monkeypatch, tmp_path / "b", COINS, name="second", models={"mine": "one_layer"})
    install(monkeypatch, tmp_path / "c", COINS, name="third", models={"mine": "one_layer"})
    with pytest.raises(ConfigError, match=r"announces a model 'mine', which the package '(second|third)' has itself"):
        build("linear", (4,), 2)


@pytest.mark.parametrize(
    ("code", "attribute", "reason"),
    [
        (
            "raise RuntimeError('no luck')",
            "coins",
            r"the data set 'coins' of the package 'broken' cannot be loaded \(RuntimeError: no luck\)",
        ),
        ("coins = 3", "coins", "'broken:coins' of the package 'broken' is no data set, but a int"),
        ("", "coins", "cannot be loaded .*AttributeError"),
    ],
)
def test_what_is_no_data_set_is_told(monkeypatch, tmp_path, code, attribute, reason):
    install(monkeypatch, tmp_path, code, name="broken", datasets={"coins": attribute})
    with pytest.raises(ConfigError, match=reason):
        source("coins")
    assert source("digits").hub is None


def test_defaults_that_are_no_settings_are_told(monkeypatch, tmp_path):
    install(
        monkeypatch,
        tmp_path,
        COINS.replace('"dealing"', '"partition"'),
        name="old",
        datasets={"coins": "coins"},
    )
    with pytest.raises(ConfigError, match="'partition' in the defaults of the data set 'coins' is called 'dealing'"):
        TrainConfig.resolve({"dataset": "coins"})
