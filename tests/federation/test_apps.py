"""Apps: the user's own model, data and update, simulated by any number of processes and between real ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import securedfl
from securedfl import App
from securedfl.cli import app as command_line
from securedfl.errors import ConfigError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.apps.settings import peer_settings
from securedfl.federation.apps.task import AppTask
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import fingerprint
from securedfl.federation.observer import Observer
from securedfl.federation.train import resume, train
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.team import InProcessTeam
from tests.federation.torch_app import config


def points(settings):
    """A model of one number, without torch: the mean of all peers' points."""
    data = np.random.default_rng(settings["number"]).normal(5, 1, 30)

    def update(model, data, round):
        model["centre"] += 0.5 * (data.mean() - model["centre"])

    return App(model={"centre": np.zeros(1)}, data=data, update=update)


def rows(folder):
    """The numbers of a run, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith("seconds")} for line in lines]


def test_every_method_trains_an_app(module):
    settings = {"peers": 4, "rounds": 2, "learning_rate": 0.05, "protocol": "shares"}
    summary = train("my_app:make", methods="local,fedavg,secured,shares", out=module / "run", **settings)
    assert (summary.dataset, summary.samples.train, summary.samples.test) == ("my_app:make", 172, 172)
    found = {name: method.final_loss for name, method in summary.methods.items()}
    assert found["fedavg"] == pytest.approx(found["secured"], rel=1e-5)
    assert found["fedavg"] == pytest.approx(found["shares"], rel=1e-5)
    assert found["local"] != pytest.approx(found["fedavg"], rel=1e-3)
    assert (module / "run" / "report.html").exists() is False
    # the same function, given as it is, has the same name
    import my_app

    again = train(my_app.make, methods="secured", out=module / "again", **settings)
    assert again.dataset == "my_app:make"
    assert again.methods["secured"].final_loss == summary.methods["secured"].final_loss


def test_two_processes_compute_the_same_bits_as_one(module):
    task = AppTask(EntryPoint.of("my_app:make", module), config())
    with InProcessTeam(task) as one, ProcessTeam(task, 2) as two:
        assert one.samples() == two.samples() == [40, 42, 44]
        for team in (one, two):
            team.initialise()
        for round in (1, 2):
            np.testing.assert_equal(one.update(round), two.update(round))
        np.testing.assert_array_equal(one.parameters, two.parameters)
        assert one.evaluate_each() == two.evaluate_each()
        np.testing.assert_equal(one.states(), two.states())


def test_a_resumed_run_ends_like_an_uninterrupted_one(module):
    class Stop(Observer):
        def round_finished(self, row):
            if row.round == 2:
                raise KeyboardInterrupt

    settings = {"methods": ("secured",), "rounds": 4, "protocol": "shares"}
    train(config(**settings, out=module / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(config(**settings, out=module / "run"), observer=Stop())
    assert len(rows(module / "run")) == 3
    resume(module / "run")
    assert rows(module / "run") == rows(module / "whole")
    ends = [load_file(module / name / "checkpoints" / "secured.safetensors") for name in ("run", "whole")]
    np.testing.assert_equal(*ends)


def test_simulated_and_between_processes_it_gives_the_same_bits(module):
    settings = {"peers": 3, "rounds": 2, "learning_rate": 0.05, "protocol": "shares", "data": {"repeat": True}}
    train("my_app:make", methods="secured", out=module / "simulated", **settings)
    simulated = load_file(module / "simulated" / "checkpoints" / "secured.safetensors")["parameters"]
    options = ["--entry=my_app:make", "--peers=3", "--rounds=2", "--learning-rate=0.05", "--protocol=shares"]
    result = CliRunner().invoke(command_line, ["up", *options, "--data=repeat=true", "--json", "--out=real"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["samples"] == {"train": 126, "test": 126}
    for peer in range(3):
        model = np.load(module / "real" / "federation" / f"peer-{peer}" / "model.npz")
        averaged = [model[name].ravel() for name in model.files if model[name].dtype == np.float32]
        np.testing.assert_array_equal(np.concatenate(averaged), simulated[0])


def test_a_function_of_a_notebook_is_trained_in_one_process_and_that_is_told(tmp_path):
    told = []

    class Listen(Observer):
        def preparing(self, text):
            told.append(text)

        def started(self, folder, config, workers):
            told.append(workers)

    given = lambda settings: points(settings)  # noqa: E731
    train(given, methods="secured", rounds=3, workers=2, out=tmp_path / "run", observer=Listen())
    assert told == ["The app cannot be imported by its name, so one process trains it (workers = 1)", 1]
    with pytest.raises(ConfigError, match="hand it over as app="):
        resume(tmp_path / "run")
    summary = resume(tmp_path / "run", app=given)
    assert summary.samples.train == 270
    assert summary.methods["secured"].best_accuracy is None


def test_an_app_may_do_without_torch_and_scores(tmp_path):
    train(points, methods="secured", rounds=8, out=tmp_path / "run")
    centre = load_file(tmp_path / "run" / "checkpoints" / "secured.safetensors")["parameters"]
    truth = np.mean([np.random.default_rng(k).normal(5, 1, 30).mean() for k in range(9)])
    assert centre.dtype == np.float64
    np.testing.assert_allclose(centre[0], truth * (1 - 0.5**8), rtol=1e-6)


def test_settings_tell_an_app_whose_it_is():
    made = config(data={"path": "site-{number}/{name}.csv", "columns": ["{name}", "b"], "part": 0.5}, seed=3)
    found = peer_settings(made, 2)
    assert found.items() >= {"name": "peer-2", "number": 2, "peers": 3, "seed": 3, "learning_rate": 0.01}.items()
    assert (found["path"], found["columns"], found["part"]) == ("site-2/peer-2.csv", ["peer-2", "b"], 0.5)
    assert peer_settings(made, 2, name="here", data={"path": "{x}"})["path"] == "{x}"
    with pytest.raises(ConfigError, match=r"only \{name\} and \{number\} can stand in braces"):
        peer_settings(config(data={"path": "{site}"}), 0)
    again = TrainConfig.resolve(json.loads(json.dumps(made.to_dict())))
    assert fingerprint(again) == fingerprint(made) != fingerprint(config(seed=3))


def test_an_app_may_choose_the_optimiser_of_the_common_model(tmp_path):
    def choosing(common, odd=False):
        def make(settings):
            return replace(points(settings), common_optimizer=None if odd and settings["number"] else common)

        return make

    given = {"peers": 4, "rounds": 3, "methods": "secured"}
    table = {"kind": "adam", "learning_rate": 0.5}
    train(choosing(table), out=tmp_path / "app", **given)
    train(choosing(None), out=tmp_path / "set", common_optimizer="adam", common_learning_rate=0.5, **given)
    train(choosing(None), out=tmp_path / "none", **given)
    app, settings, none = (load_file(tmp_path / run / "model.safetensors")["centre"] for run in ("app", "set", "none"))
    assert app == settings != none
    assert 'common_optimizer = "adam"' in (tmp_path / "app" / "config.toml").read_text()
    assert resume(tmp_path / "app", app=choosing(table), changes={"rounds": 4}).methods["secured"].rounds == 4
    for make, settings, message in (
        (choosing("adm"), {}, "common_optimizer = 'adm' in common_optimizer of the app: must be"),
        (choosing({"kind": "adam", "rate": 1.0}), {}, "unknown key 'rate' in common_optimizer of"),
        (choosing({"kind": "momentum", "adaptivity": 0.1}), {}, "takes none; leave it away"),
        (choosing("adam"), {"common_optimizer": "yogi"}, "'yogi' in the settings and 'adam' in the app"),
        (choosing("adam", odd=True), {}, "the app of peer 1 chooses nothing for the common model"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(make, out=tmp_path / "wrong", **given, **settings)
    assert not (tmp_path / "wrong").exists()


def test_peers_begin_alike_and_draw_apart(tmp_path):
    drawn = {}

    def make(settings):
        def update(model, data, round):
            drawn[settings["number"], round] = np.random.random()  # noqa: NPY002 - what users do

        return {"w": np.random.random(3)}, [1], update  # noqa: NPY002

    train(make, methods="local", peers=3, rounds=2, out=tmp_path / "run")
    parameters = load_file(tmp_path / "run" / "checkpoints" / "local.safetensors")["parameters"]
    # kept as one row, because all are alike
    assert len(parameters) == 1
    assert len(set(drawn.values())) == 6
    assert securedfl.App is App


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ((np.zeros((7, 2)), np.zeros(7)), 7),
        ({"x": np.zeros((5, 3)), "y": np.zeros(5)}, 5),
        ([np.zeros(3), np.zeros(4)], 2),
        (np.zeros((6, 2)), 6),
        (["a", "b", "c"], 3),
        (object(), 1),
    ],
)
def test_samples_are_rows_of_arrays_that_stand_together(data, count):
    """(x, y) is one data set, and not two samples."""
    assert App(model={}, data=data, update=lambda *_: None).size == count
