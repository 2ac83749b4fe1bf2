"""`securedfl check` opens what the site trains: a wrong app, or a wrong path, is found before anybody waits."""

import json
import os
import sys
import time
import tomllib

import pytest
import tomli_w
from typer.testing import CliRunner

from securedfl.cli import app as command_line
from securedfl.federation.apps.failures import Where, wrong_path
from securedfl.federation.checking.opening import judged

APP = """
import os, sys, time
import numpy as np

def make(settings):
    print("a line that is no answer")
    if settings["how"] == "slow":
        time.sleep(60)
    if settings["how"] == "gone":
        os._exit(7)
    if settings["how"] == "leaves":
        sys.exit("no licence")
    data = np.loadtxt(settings["path"])

    def evaluate(model, data):
        return (0, 0.0, len(data)) if settings["how"] == "well" else 1 / 0

    return {"w": np.zeros(3)}, data, lambda model, data, round: None, evaluate
"""


def invoke(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site whose app does as told, and what `securedfl check` finds of it."""
    (tmp_path / "my_opened.py").write_text(APP)
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, filter(None, sys.path))))
    # where nobody is waited for: this is about the app
    monkeypatch.setattr("securedfl.federation.checking.check.PATIENCE", 0.05)

    def found(how, *options, path="numbers.txt", within=60):
        made = invoke(
            *("federation", "init", "a", "b", "c", "--keys", "--replace"),
            *("--entry=my_opened:make", f"--data=how={how},path={path}", *options),
        )
        assert made.exit_code == 0, made.output
        result = invoke("check", "a.toml", "--json", "--open-within", within)
        finding = next(one for one in json.loads(result.stdout) if one["subject"] == "app and data")
        return finding["ok"], finding["text"]

    return found


def test_an_app_is_made_and_scored(site):
    assert site("well") == (
        True,
        "my_opened:make: 3 training samples, 3 parameters to average, 0 of 3 test samples right before training; "
        "its update was not tried",
    )


def test_a_site_that_weighs_too_much_is_told_before_the_run(site):
    assert site("well", "--weighted", "--max-weight=3")[0]
    assert site("well", "--weighted", "--max-weight=2") == (
        False,
        "a has weight 3, but weights must lie between 0 and max_weight = 2; change max_weight in federation.toml, at "
        "all sites and before the run begins",
    )
    init = ("federation", "init", "a", "b", "c", "--keys", "--dir=new", "--entry=my_opened:make")
    without = invoke(*init, "--weighted")
    assert without.exit_code == 4
    assert "give --max-weight to" in without.stderr


def test_mistakes_are_told_with_function_and_line(site):
    ok, text = site("badly")
    assert not ok
    assert "evaluate of my_opened:make failed at a: ZeroDivisionError: division by zero" in text
    assert "my_opened.py" in text
    assert "else 1 / 0" in text
    ok, text = site("well", path="nowhere.txt")
    assert not ok
    assert "make of my_opened:make failed at a" in text
    assert "It is the path: path = 'nowhere.txt', from --data or [data], leads to " in text
    assert "Mend the app" not in text


def test_an_app_that_takes_too_long_or_ends_the_process(site):
    began = time.monotonic()
    ok, text = site("slow", within=3)
    assert not ok
    assert "it took longer than 3 s" in text
    assert time.monotonic() - began < 30
    ok, text = site("gone")
    assert not ok
    assert "making it and opening the data: the process that opened it ended with exit code 7" in text
    assert not site("leaves")[0]


def test_without_an_entry_nothing_is_opened_and_join_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("securedfl.federation.checking.check.PATIENCE", 0.05)
    made = invoke("federation", "init", "a", "b", "c", "--keys", "--dir", tmp_path)
    assert f'securedfl.join("{tmp_path / "a.toml"}")' in made.stdout
    findings = {one["subject"]: one for one in json.loads(invoke("check", tmp_path / "a.toml", "--json").stdout)}
    assert findings["app and data"]["ok"]
    assert "securedfl.join" in findings["app and data"]["text"]
    # to a site that was added later no part of them is dealt
    shared = tomllib.loads((tmp_path / "federation.toml").read_text())
    shared["peers"][2]["added"] = True
    (tmp_path / "federation.toml").write_text(tomli_w.dumps(shared))
    looked = [json.loads(invoke("check", tmp_path / f"{name}.toml", "--json").stdout) for name in "ac"]
    first, added = (next(one for one in found if one["subject"] == "app and data") for found in looked)
    assert (first["ok"], first["lost"], added["ok"], added["lost"]) == (True, False, True, True)
    assert "`securedfl peer` cannot start here: the data set digits is dealt among the 2 sites" in added["text"]
    left_out = json.loads(invoke("check", tmp_path / "a.toml", "--json", "--open-within=0").stdout)
    assert "app and data" not in {one["subject"] for one in left_out}


def test_what_the_process_says():
    lines = '{"doing": "importing"}\n{"ok": true, "text": "fine"}\n'
    assert judged("app:make", lines, "late").text == "fine"
    assert judged("app:make", '{"doing": "importing"}\n', "late").text == "app:make, importing: late"
    assert judged("app:make", "", "late").text == "app:make, starting Python: late"


def test_which_path_is_wrong(tmp_path):
    settings = {"name": "a", "number": 0, "path": str(tmp_path / "data"), "other": "here"}
    for file in (tmp_path / "data", tmp_path / "data" / "x.csv"):
        with pytest.raises(FileNotFoundError) as caught:
            file.open()
        assert "Correct path" in wrong_path(caught.value, settings)
    # a file of the app's own, and an error of another kind
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "config.json").open()
    assert wrong_path(caught.value, settings) == ""
    assert wrong_path(ValueError(settings["path"]), settings) == ""
    # as numpy tells it
    assert "Correct path" in wrong_path(FileNotFoundError(f"{settings['path']} not found."), settings)
    assert settings["path"] not in repr(Where("app:make", "a", settings))
