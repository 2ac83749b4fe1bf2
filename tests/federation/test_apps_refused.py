"""Apps that go wrong: what is told, and before what."""

import numpy as np
import pytest

from securedfl import App, Coding, read_folder
from securedfl.errors import AppError, ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.train import resume, train
from tests.federation.torch_app import config

BROKEN = """def make(settings):
    if settings["number"] == 2:
        open("/nowhere/data.csv")"""


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (3, r"must return a securedfl.App, \(model, data, update\)"),
        (({"w": np.zeros(1)}, [1]), "not a tuple"),
        (({"w": np.zeros(1)}, [1], 3), "update of .* must be a function, not a int"),
        (App(model={"w": np.zeros(1)}, data=[1], update=print, evaluate=5), r"evaluate of .* must be a function"),
    ],
)
def test_what_makes_no_app_is_told_before_anything_is_written(tmp_path, made, message):
    with pytest.raises(ConfigError, match=message):
        train(lambda settings: made, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_entries_that_lead_nowhere(module):
    for entry, message in (
        ("my_app", "must be module:function"),
        ("my_app:mak", "my_app has no function 'mak'; did you mean 'make'"),
        ("no_such:make", "there is no module 'no_such' in"),
        ("my_app.inner:make", "there is no module 'my_app.inner' in"),
        ("my_app:torch", "must be a function, not a module"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(entry, out=module / "run")
    with pytest.raises(ConfigError, match="made by a function of a peer's settings"):
        train(App(model={"w": np.zeros(1)}, data=[1], update=print), out=module / "run")


def test_settings_that_contradict_an_app():
    for setting in ({"model": "cnn"}, {"dataset": "femnist"}, {"fraction": 0.5}):
        with pytest.raises(ConfigError, match="leave one"):
            config(**setting)
    with pytest.raises(ConfigError, match="without entry nothing takes it"):
        TrainConfig.resolve({"data": {"path": "x"}})


def _sites(folder, classes):
    """Write a table for each site, with these classes."""
    for number, names in enumerate(classes):
        lines = ["dose,outcome", *(f"{k},{name}" for k, name in enumerate(names.split()))]
        (folder / f"site-{number}.csv").write_text("\n".join(lines) + "\n")


def test_sites_whose_classes_differ_are_refused_unless_they_follow_one_coding(tmp_path):
    def tables(settings):
        data = read_folder(settings["path"], label="outcome", coding=settings.get("coding"))
        return App(model={"w": np.zeros(data.classes)}, data=data.y, update=lambda *_: None)

    settings = {"peers": 3, "rounds": 1, "methods": "secured"}
    _sites(tmp_path, ["mild none", "none severe", "mild none"])
    path = str(tmp_path / "site-{number}.csv")
    with pytest.raises(ConfigError, match=r"peer 1 have other classes or columns.*securedfl data coding"):
        train(tables, out=tmp_path / "refused", data={"path": path}, **settings)
    Coding.together(read_folder(tmp_path / f"site-{k}.csv", label="outcome").coding for k in range(3)).save(
        tmp_path / "coding.json"
    )
    agreed = {"path": path, "coding": str(tmp_path / "coding.json")}
    assert train(tables, out=tmp_path / "run", data=agreed, **settings).finished

    # whoever reads data in another way may say what they mean
    def own(settings):
        return App(model={"w": np.zeros(1)}, data=[1], update=lambda *_: None, coding=str(settings["number"] % 2))

    with pytest.raises(ConfigError, match="peer 1 have other classes"):
        train(own, out=tmp_path / "own", **settings)
    with pytest.raises(ConfigError, match="must be a text"):
        train(lambda _settings: App(model={}, data=[], update=print, coding=3), out=tmp_path / "odd", **settings)


def test_an_app_that_goes_wrong_while_it_trains(tmp_path):
    def growing(settings):
        def update(model, data, round):
            if settings["number"] == 1:
                model["w"][:] = np.inf

        return {"w": np.zeros(1)}, [1], update

    with pytest.raises(InvalidInputError, match="training of peer 1 diverged in round 1"):
        train(growing, methods="secured", out=tmp_path / "run")

    def odd(settings):
        return App(model={"w": np.zeros(1)}, data=[1], update=lambda *_: None, evaluate=lambda *_: 0.5)

    with pytest.raises(InvalidInputError, match=r"evaluate of .*odd must return \(correct, loss, count\), not 0.5"):
        train(odd, methods="secured", out=tmp_path / "other")

    def part(settings):
        return App(model={"w": np.zeros(1)}, data=[1], update=lambda *_: None, evaluate=lambda *_: (0.9, 1.0, 10))

    with pytest.raises(InvalidInputError, match=r"tells that 0\.9 of 10 samples were right"):
        train(part, methods="secured", out=tmp_path / "part")

    def wordy(settings):
        return {"w": np.zeros(1)}, [1], lambda *_: {"loss": 1.0}

    with pytest.raises(InvalidInputError, match="must return the mean loss as a number, or nothing"):
        train(wordy, methods="secured", out=tmp_path / "wordy")

    def different(settings):
        return {"w": np.zeros(1 + settings["number"])}, [1], lambda *_: None

    with pytest.raises(InvalidInputError, match=r"peer 1 has .* where peer 0 has"):
        train(different, methods="secured", out=tmp_path / "third")


def test_what_an_app_raises_is_told_with_its_own_lines_and_the_run_goes_on(tmp_path):
    broken = True

    def make(settings):
        def update(model, data, round):
            if broken and round == 2 and settings["number"] == 1:
                model["w"] += np.zeros((4, 5))

        return {"w": np.zeros(3)}, [1], update

    with pytest.raises(AppError) as told:
        train(make, peers=3, rounds=3, methods="fedavg", out=tmp_path / "run")
    first, *lines = str(told.value).splitlines()
    assert first.startswith("update of ")
    assert " failed at peer-1 in round 2: ValueError: operands could not be broadcast" in first
    # one frame, of this file: neither ours nor numpy's
    assert [line for line in lines if "File" in line] == [line for line in lines if "test_apps_refused.py" in line]
    assert 'model["w"] += np.zeros((4, 5))' in lines[1]
    assert "--resume" in lines[-1]
    assert isinstance(told.value.__cause__, ValueError)

    broken = False
    assert resume(tmp_path / "run", app=make).methods["fedavg"].rounds == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_an_app_that_cannot_be_made_or_imported(module, workers):
    text = (module / "my_app.py").read_text()
    (module / "my_broken.py").write_text(text.replace("def make(settings):", BROKEN))
    with pytest.raises(AppError, match=r"(?s)make of my_broken:make failed at peer-2: .*my_broken\.py.*nowhere"):
        train("my_broken:make", peers=3, rounds=1, methods="fedavg", workers=workers, out=module / "run")
    assert not (module / "run").exists()
    (module / "my_typo.py").write_text("def make(:\n")
    with pytest.raises(AppError, match=r"(?s)import of my_typo:make failed: SyntaxError.*def make\(:"):
        train("my_typo:make", out=module / "run")
    (module / "my_import.py").write_text("import not_installed\n")
    with pytest.raises(AppError, match="No module named 'not_installed'"):
        train("my_import:make", out=module / "run")
