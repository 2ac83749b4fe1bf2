"""Numbers of a run at TensorBoard, Weights & Biases and MLflow; the latter two as stand-ins of their packages."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest

from securedfl.errors import MissingDependencyError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import fingerprint
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.trackers import TRACKERS, trackers

ROWS = [
    Row(method="secured", round=r, accuracy=0.5 + r / 10, loss=math.nan, bytes_per_peer=8.0, peer_accuracy=(1.0, 0.0))
    for r in range(3)
]


class FakeWandb(ModuleType):
    """Keeps what wandb would send."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = {}

    def init(self, **given):
        run = self.runs.setdefault(given["id"], SimpleNamespace(given=given, logged=[], finished=0))
        run.log = lambda values, step: run.logged.append((step, values))
        run.finish = lambda: setattr(run, "finished", run.finished + 1)
        return run


class FakeMlflow(ModuleType):
    """Keeps what mlflow would send."""

    def __init__(self):
        super().__init__("mlflow")
        self.experiments, self.runs = {}, {}

    def MlflowClient(self):
        return self

    def get_experiment_by_name(self, name):
        return self.experiments.get(name)

    def create_experiment(self, name):
        self.experiments[name] = SimpleNamespace(experiment_id="7")
        return "7"

    def create_run(self, experiment, run_name):
        assert experiment == "7"
        number = f"run{len(self.runs)}"
        self.runs[number] = SimpleNamespace(name=run_name, params={}, metrics=[], ended=0)
        return SimpleNamespace(info=SimpleNamespace(run_id=number))

    def log_param(self, run, key, value):
        self.runs[run].params[key] = value

    def log_metric(self, run, key, value, step):
        self.runs[run].metrics.append((step, key, value))

    def set_terminated(self, run):
        self.runs[run].ended += 1


def tell(folder, *names, rows=ROWS, first=0):
    config = TrainConfig.resolve(dict.fromkeys(names, True))
    with trackers(folder, config, "secured", first) as told:
        for row in rows:
            told(row)


def test_weights_and_biases_gets_pooled_numbers_and_goes_on_after_a_stop(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    tell(tmp_path, "wandb", rows=ROWS[:2])
    tell(tmp_path, "wandb", rows=ROWS[2:], first=2)
    ((_, run),) = fake.runs.items()
    assert [step for step, _ in run.logged] == [0, 1, 2]
    assert run.logged[1][1]["accuracy"] == 0.6
    assert not {"loss", "peer_accuracy", "method"} & run.logged[1][1].keys()
    assert run.given["resume"] == "allow"
    assert run.given["config"]["peers"] == 9
    assert run.finished == 2


def test_mlflow_gets_pooled_numbers_and_goes_on_after_a_stop(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", fake := FakeMlflow())
    tell(tmp_path, "mlflow", rows=ROWS[:2])
    tell(tmp_path, "mlflow", rows=ROWS[2:], first=2)
    ((_, run),) = fake.runs.items()
    assert [value for step, key, value in run.metrics if key == "accuracy"] == [0.5, 0.6, 0.7]
    assert run.params["method"] == "secured"
    assert run.params["peers"] == 9
    assert run.ended == 2
    tell(tmp_path / "other", "mlflow")
    assert len(fake.runs) == 2


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'securedfl\[{name}\]'"):
        tell(tmp_path, name)


def test_what_fails_there_says_how_to_go_on_without_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    fake.init = lambda **_given: (_ for _ in ()).throw(OSError("no network"))
    with pytest.raises(RunFolderError, match=r"Weights & Biases failed: no network; .*--no-wandb"):
        tell(tmp_path, "wandb")


def test_if_one_cannot_start_the_others_are_closed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandb())
    monkeypatch.setitem(sys.modules, "mlflow", other := FakeMlflow())
    other.get_experiment_by_name = lambda _name: (_ for _ in ()).throw(ValueError("no store"))
    with pytest.raises(RunFolderError, match="MLflow failed: no store"):
        tell(tmp_path, "wandb", "mlflow")
    ((_, run),) = fake.runs.items()
    assert run.finished == 1


def test_every_tracker_is_a_setting_that_a_resumed_run_may_change():
    base = TrainConfig.resolve({})
    for name in TRACKERS:
        assert fingerprint(TrainConfig.resolve({name: True})) == fingerprint(base)
