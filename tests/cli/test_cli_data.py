"""``securedfl data``: numbers, pictures and errors as a user meets them."""

import base64
import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.learning.data import pictures as samples
from securedfl.learning.data.datasets import load

SVG = "{http://www.w3.org/2000/svg}"


def invoke(*arguments, **environment):
    return CliRunner().invoke(
        app, ["data", *map(str, arguments)], env={"COLUMNS": "100", "SECUREDFL_DATA_DIR": "", **environment}
    )


def test_info_shows_users_split_classes_and_the_papers_numbers(hub_folder):
    result = invoke("info", "femnist", "--data-dir", hub_folder)
    assert result.exit_code == 0, result.output
    text = result.output
    assert re.search(r"users +18 +3,483", text)
    assert re.search(r"training +324 +351,333", text)
    assert re.search(r"testing +36 +40,668", text)
    assert "20 samples each" in text
    assert "10: 0 (36), 1 (36)" in text
    assert "train-00000.parquet and 2 more" in text
    assert "1 x 28 x 28, float32" in text
    assert re.search(r"decoded +.*data-v\d+-femnist-\w+\.npz \(\d+ kB\)", text)


def test_info_of_text_shows_the_alphabet_and_lines(hub_folder):
    result = invoke("info", "shakespeare", SECUREDFL_DATA_DIR=str(hub_folder))
    assert result.exit_code == 0, result.output
    assert 'alphabet    30 characters: " ' in result.output
    assert "30, most often ' ' (" in result.output
    assert "o·be,·or·not" in result.output


def test_info_as_json_has_everything_and_nothing_else(hub_folder):
    about = json.loads(invoke("info", "cifar10", "--data-dir", hub_folder, "--json").stdout)
    assert about["users"] == 60
    assert about["samples"] == {"all": 360, "train": 300, "test": 60}
    assert about["samples_per_user"]["median"] == 6
    assert about["labels"] == [36] * 10
    assert about["paper"] == {"users": 1000, "train": 50000, "test": 10000}
    assert [path.rpartition("/")[2] for path in about["files"]] == ["train.parquet", "test.parquet"]
    assert about["cache_bytes"] > 360 * 3072


def test_info_of_digits_needs_no_folder():
    result = invoke("info", "digits")
    assert result.exit_code == 0, result.output
    assert re.search(r"users +unknown", result.output)
    assert re.search(r"training +1,617", result.output)
    assert "paper" not in result.output
    assert "█" in result.output


@pytest.mark.parametrize(("name", "mode"), [("femnist", "L"), ("cifar10", "RGB"), ("digits", "L")])
def test_the_contact_sheet_holds_the_samples_themselves(hub_folder, tmp_path, name, mode):
    result = invoke("info", name, "--data-dir", hub_folder, "--svg", tmp_path / "sheet.svg")
    assert result.exit_code == 0, result.output
    tree = ElementTree.fromstring((tmp_path / "sheet.svg").read_text())  # noqa: S314
    images = tree.findall(f"{SVG}image")
    assert len(images) == {"femnist": 60, "cifar10": 36, "digits": 60}[name]
    data = load(name, hub_folder)
    for image in images[:7]:
        sample, label = re.fullmatch(r"sample (\d+), class (\d)", image.find(f"{SVG}title").text).groups()
        assert data.y[int(sample)] == int(label)
        with Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2]))) as picture:
            assert picture.mode == mode
            assert np.array_equal(np.asarray(picture), samples.pixels(data, int(sample)))


def test_the_sheet_of_text_is_text(hub_folder, tmp_path):
    assert invoke("info", "shakespeare", "--data-dir", hub_folder, "--svg", tmp_path / "s.svg").exit_code == 0
    tree = ElementTree.fromstring((tmp_path / "s.svg").read_text())  # noqa: S314
    assert sum("·" in (text.text or "") and len(text.text) == 50 for text in tree.iter(f"{SVG}text")) == 6


def test_a_terminal_with_colours_gets_half_blocks_and_one_without_unicode_gets_ascii():
    digits = load("digits")
    colour = samples.terminal(digits, colour=True)
    assert len(colour) == 4
    assert set(colour[0].plain) == {"▀", " "}
    assert max(len(line) for line in colour) <= 80
    ascii_lines = samples.terminal(digits, colour=True, unicode=False)
    assert all(line.plain.isascii() for line in ascii_lines)


def test_list_tells_where_each_would_be_read_from(hub_folder, tmp_path):
    result = invoke("list", "--data-dir", hub_folder)
    assert result.exit_code == 0
    assert "from a library on this machine" in result.output
    assert "femnist/train-00000.parquet and 2 more" in result.output
    entries = json.loads(invoke("list", "--json").stdout)
    assert [entry["name"] for entry in entries] == ["digits", "femnist", "shakespeare", "cifar10"]
    assert [entry["files"] for entry in entries] == [[]] * 4
    assert "flwrlabs/shakespeare on the hub" in invoke("list").output
    missing = invoke("list", "--data-dir", tmp_path)
    assert missing.exit_code == 0
    assert "not found: the data folder" in missing.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["info", "femnits"], 4, "did you mean 'femnist'?"),
        (["info", "femnist", "--data-dir", "nowhere"], 4, "there is no data folder nowhere"),
        (["info", "digits", "--svg", "no/such/folder.svg"], 8, "cannot write no/such/folder.svg"),
        (["info"], 2, "Missing argument 'NAME'"),
    ],
)
def test_errors_are_one_line(arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_help_has_examples():
    for command in ("info", "list"):
        assert f"securedfl data {command}" in invoke(command, "--help").output
