"""The paper's data sets: folders that cannot be read, missing packages, and a hub that fails."""

import builtins
import os
import re
import shutil
import sys
import types

import numpy as np
import pyarrow
import pytest

from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError, SecuredFLError
from securedfl.learning.data import hub as tables
from securedfl.learning.data.datasets import load
from securedfl.learning.data.dealing import deal
from tests.learning.hub_data import (
    cifar10_columns,
    digit_images,
    encoded,
    femnist_columns,
    image_column,
    write,
    write_cifar10,
    write_femnist,
)

pytestmark = pytest.mark.usefixtures("cache")

NOISE = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)


def without(columns, name):
    return {key: value for key, value in columns.items() if key != name}


# bad folders


def test_missing_folders_and_files_are_named(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"no data folder .*data; check --data-dir or SECUREDFL_DATA_DIR"):
        load("femnist", folder)
    folder.mkdir()
    with pytest.raises(ConfigError, match="has no folder 'femnist' with parquet files"):
        load("femnist", folder)
    (folder / "femnist").mkdir()
    with pytest.raises(ConfigError, match=r"no parquet file for the split 'train'.*femnist/train\*\.parquet"):
        load("femnist", folder)
    write_cifar10(folder)
    (folder / "cifar10" / "test.parquet").unlink()
    with pytest.raises(ConfigError, match="no parquet file for the split 'test' of 'cifar10'"):
        load("cifar10", folder)


def test_an_empty_test_split_is_named(folder):
    with pytest.raises(InvalidInputError, match="the 'test' parquet files of 'cifar10' hold no rows"):
        load("cifar10", write_cifar10(folder, test=0))


@pytest.mark.parametrize("name", ["image", "writer_id", "character"])
def test_a_missing_column_is_named_with_those_there_are(folder, name):
    write(folder / "femnist" / "train.parquet", **without(femnist_columns(1, 12), name))
    with pytest.raises(InvalidInputError, match=f"no column '{name}' \\(they have .*hsf_id"):
        load("femnist", folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"character": [None, *range(35)]}, "'character' .* a number in every row, not 1 empty values"),
        ({"writer_id": ["a"] * 35 + [None]}, "'writer_id' .* a text in every row, not 1 empty values"),
        ({"character": ["0"] * 36}, "'character' .* a number in every row, not values of type string"),
        ({"character": [0.5] * 36}, "not values of type double"),
        ({"writer_id": list(range(36))}, "'writer_id' .* a text in every row, not values of type int64"),
        ({"image": ["picture"] * 36}, "'image' of 'femnist' must hold images"),
        ({"image": [{"path": "a.png"}] * 36}, "'image' of 'femnist' must hold images"),
        ({"character": [99] * 36}, "no digits of writers with at least 10"),
        ({"writer_id": [f"w{i // 9}" for i in range(36)]}, "no digits of writers with at least 10"),
    ],
)
def test_wrong_values_are_refused_with_the_column(folder, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        load("femnist", write_femnist(folder, **changes))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"no image", r"row 7 of 'femnist': the image cannot be decoded \(cannot identify image file\)"),
        (b"", "row 7 of 'femnist' has no image"),
        (None, "row 7 of 'femnist' has no image"),
        (encoded(NOISE)[:400], "row 7 of 'femnist': the image cannot be decoded"),
        (encoded(np.zeros((30, 20), np.uint8)), "row 7 of 'femnist': the image has 20x30 pixels, not 28x28"),
    ],
    ids=["no image", "empty", "none", "cut", "size"],
)
def test_a_bad_image_is_named_by_its_row(folder, bad, message):
    images = [*digit_images(np.zeros(36, int), np.random.default_rng(0))]
    images[7] = bad
    with pytest.raises(InvalidInputError, match=message):
        load("femnist", write_femnist(folder, image=image_column(images)))


def test_an_empty_table_and_short_texts_are_refused(folder):
    write(folder / "femnist" / "train.parquet", **{k: v[:0] for k, v in femnist_columns(1, 12).items()})
    with pytest.raises(InvalidInputError, match="the 'train' parquet files of 'femnist' hold no rows"):
        load("femnist", folder)
    write(folder / "shakespeare" / "train.parquet", character_id=["A"], text=["To be"])
    with pytest.raises(InvalidInputError, match="no sequences of 50 characters of roles with at least 10"):
        load("shakespeare", folder)


def test_corrupt_and_unlike_files_are_named(folder):
    path = write_femnist(folder) / "femnist" / "train.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InvalidInputError, match=r"train\.parquet cannot be read as parquet .*; fetch it again"):
        load("femnist", folder)
    write_femnist(folder)
    write(folder / "femnist" / "train2.parquet", image=[1])
    with pytest.raises(InvalidInputError, match=r"differ in their columns: .*train2\.parquet"):
        load("femnist", folder)


def test_labels_beyond_the_classes_are_refused(folder):
    write_cifar10(folder)
    write(folder / "cifar10" / "train.parquet", **{**cifar10_columns(30), "label": np.arange(30)})
    with pytest.raises(InvalidInputError, match="go from 0 to 29, but its 10 classes"):
        load("cifar10", folder)


def test_one_user_is_too_few_for_peers(folder):
    data = load("femnist", write_femnist(folder, writer_id=["me"] * 36))
    with pytest.raises(InvalidInputError, match="has 1 user, too few for 3 peers"):
        deal(data, 3, dealing="natural")


# without libraries or network


def hide(monkeypatch, *names):
    """Let imports of some packages fail as if they were not installed."""
    original = builtins.__import__

    def missing(name, *rest, **options):
        if name.partition(".")[0] in names:
            raise ImportError(f"No module named {name!r}", name=name)
        return original(name, *rest, **options)

    for name in [*sys.modules]:
        if name.partition(".")[0] in names:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)


@pytest.mark.parametrize("package", ["pyarrow", "PIL"])
def test_missing_packages_are_named_with_the_command_that_installs_them(folder, monkeypatch, package):
    write_femnist(folder)
    hide(monkeypatch, package)
    with pytest.raises(MissingDependencyError, match=re.escape("pip install 'securedfl[data]'")):
        load("femnist", folder)


def test_without_folder_and_hub_library_the_error_says_both_ways(monkeypatch):
    monkeypatch.setattr(tables, "_unreachable", lambda: False)
    hide(monkeypatch, "datasets")
    with pytest.raises(MissingDependencyError) as caught:
        load("cifar10")
    text = str(caught.value)
    for part in ("--data-dir", "SECUREDFL_DATA_DIR", "pip install 'securedfl[hub]'", "uoft-cs/cifar10"):
        assert part in text


class Split:
    """What the hub's library returns, as far as it is used."""

    def __init__(self, table):
        self.table = table

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def __getitem__(self, rows):
        assert rows == slice(None)
        return self.table


def hub(monkeypatch, load_dataset):
    library = types.ModuleType("datasets")
    library.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", library)


def test_the_hub_is_asked_once_for_every_split(monkeypatch):
    asked, heard = [], []

    def load_dataset(address, *, split):
        asked.append((address, split))
        return Split(pyarrow.table(cifar10_columns({"train": 30, "test": 20}[split])))

    hub(monkeypatch, load_dataset)
    data = load("cifar10", report=heard.append)
    assert np.array_equal(load("cifar10").x, data.x)
    assert (len(data), data.user_count) == (50, 20)
    assert asked == [("uoft-cs/cifar10", "train"), ("uoft-cs/cifar10", "test")]
    assert heard[0] == "Fetching uoft-cs/cifar10 (train) from the hub"


@pytest.mark.parametrize("error", [ConnectionError("no route\nto the host"), RuntimeError()])
def test_a_hub_that_fails_is_one_clear_error(monkeypatch, error, cache):
    def load_dataset(address, *, split):
        raise error

    hub(monkeypatch, load_dataset)
    reason = "no route" if str(error) else "RuntimeError"
    with pytest.raises(ConfigError, match=rf"could not be fetched from the hub \({reason}\); .*--data-dir"):
        load("femnist")
    assert not cache.exists()


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(tables, "_unreachable", lambda: True)
    hide(monkeypatch, "datasets")
    with pytest.raises(SecuredFLError):
        load("femnist")
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_whether_the_hub_answers(monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr(tables, "getproxies", dict)
    monkeypatch.setattr(tables.socket, "create_connection", refuse)
    assert tables._unreachable()
    monkeypatch.setattr(tables, "getproxies", lambda: {"https": "http://proxy:3128"})
    assert not tables._unreachable()


def test_the_made_up_folder_can_be_moved(hub_folder, tmp_path):
    shutil.copytree(hub_folder / "shakespeare", tmp_path / "elsewhere" / "shakespeare")
    assert len(load("shakespeare", tmp_path / "elsewhere")) == len(load("shakespeare", hub_folder)) == 252
