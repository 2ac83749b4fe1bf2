"""The paper's data sets, read from made-up parquet files in the hub's layout."""

import builtins
import os
import re
import shutil
import sys
import types
import zipfile

import numpy as np
import pyarrow
import pytest

from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError, SecuredFLError
from securedfl.learning.data import hub as tables
from securedfl.learning.data import public
from securedfl.learning.data.datasets import load
from securedfl.learning.data.dealing import deal
from securedfl.storage import recall
from tests.learning.hub_data import (
    cifar10_columns,
    digit_images,
    encoded,
    femnist_columns,
    image_column,
    shakespeare_columns,
    write,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep decoded arrays out of the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(tables.DATA_DIR, raising=False)
    return tmp_path / "cache" / "securedfl"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def femnist(folder, **changes):
    """Write FEMNIST of 3 writers, 12 digits each, with some columns changed, and return the folder."""
    write(folder / "femnist" / "train.parquet", **{**femnist_columns(3, 12), **changes})
    return folder


NOISE = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)


def cifar10(folder, train=30, test=20):
    write(folder / "cifar10" / "train.parquet", **cifar10_columns(train))
    write(folder / "cifar10" / "test.parquet", **cifar10_columns(test))
    return folder


def without(columns, name):
    return {key: value for key, value in columns.items() if key != name}


# what is read


def test_femnist_has_the_pixels_labels_and_writers_of_the_files(folder):
    data = load("femnist", femnist(folder))
    expected = digit_images(np.tile(np.arange(12) % 10, 3), np.random.default_rng(0))
    assert (data.x.shape, data.x.dtype, data.classes) == ((36, 1, 28, 28), np.float32, 10)
    assert np.array_equal(data.x[:, 0], expected.astype(np.float32) / 255)
    assert np.array_equal(data.y, np.tile(np.arange(12) % 10, 3))
    assert np.array_equal(data.users, np.repeat([0, 1, 2], 12))


def test_writers_with_few_digits_and_letters_are_left_out(folder):
    labels = np.r_[np.arange(10), np.arange(9), np.arange(9), 10, 61]
    writers = ["ten"] * 10 + ["nine"] * 9 + ["nine and two letters"] * 11
    images = digit_images(labels % 10, np.random.default_rng(1))
    data = load(
        "femnist",
        femnist(folder, image=image_column(images), writer_id=writers, hsf_id=labels, character=labels),
    )
    assert (len(data), data.user_count) == (10, 1)
    assert np.array_equal(data.x[:, 0] * 255, images[:10])


def test_what_is_left_out_is_not_decoded(folder):
    broken = femnist_columns(2, 12)
    write(
        folder / "femnist" / "train-2.parquet",
        image=image_column([b"no image"]),
        writer_id=["a letter"],
        hsf_id=[0],
        character=[30],
    )
    write(folder / "femnist" / "train-1.parquet", **broken)
    assert len(load("femnist", folder)) == 24


def test_every_user_is_split_nine_to_one(hub_folder):
    data = load("femnist", hub_folder)
    for share in deal(data, 9, dealing="natural"):
        for user in np.unique(data.users[share.train]):
            assert (data.users[share.train] == user).sum() == 18
            assert (data.users[share.test] == user).sum() == 2


def test_images_may_be_plain_bytes_of_any_format_and_in_colour(folder):
    images = digit_images(np.arange(12) % 10, np.random.default_rng(2))
    grey = [encoded(image, "WEBP" if i % 2 else "PNG") for i, image in enumerate(np.repeat(images[..., None], 3, 3))]
    columns = femnist_columns(1, 12)
    write(folder / "femnist" / "train.parquet", **{**columns, "image": pyarrow.array(grey, pyarrow.binary())})
    data = load("femnist", folder)
    assert np.array_equal(data.x[::2, 0] * 255, images[::2])


def test_shakespeare_is_cut_into_sequences_whose_labels_are_the_next_characters(folder):
    columns = shakespeare_columns(roles=3, sequences=12)
    write(folder / "shakespeare" / "train.parquet", **columns)
    data = load("shakespeare", folder)
    assert (data.x.shape, data.y.shape, data.x.dtype, data.user_count) == ((36, 50), (36, 50), np.int64, 3)
    assert data.alphabet == "".join(sorted(set("".join(columns["text"]))))
    assert data.classes == len(data.alphabet)
    assert np.array_equal(data.x[:, 1:], data.y[:, :-1])
    for role, text in enumerate(columns["text"]):
        read = "".join(data.alphabet[code] for code in data.x[data.users == role].reshape(-1))
        assert read == text[:600]
        assert data.alphabet[data.y[data.users == role][-1, -1]] == text[600]


def test_roles_that_say_little_or_nothing_are_left_out(folder):
    texts = ["a" * 501, "b" * 500, "", "c"]
    write(folder / "shakespeare" / "train.parquet", character_id=list("ABCD"), text=texts)
    data = load("shakespeare", folder)
    assert (len(data), data.user_count, data.alphabet) == (10, 1, "abc")


def test_the_hubs_overlapping_windows_give_the_same_sequences_as_whole_texts(folder, tmp_path):
    columns = shakespeare_columns(roles=3, sequences=12)
    write(folder / "shakespeare" / "train.parquet", **columns)
    rows = [
        (role, text[at : at + 80], text[at + 80])
        for at in range(521)  # roles take turns
        for role, text in zip(columns["character_id"], columns["text"], strict=True)
    ]
    names, before, after = zip(*rows, strict=True)
    write(tmp_path / "hub" / "shakespeare" / "train.parquet", character_id=names, x=before, y=after)
    whole, joined = load("shakespeare", folder), load("shakespeare", tmp_path / "hub")
    assert joined.alphabet == whole.alphabet
    for name in ("x", "y", "users"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))


def test_windows_that_do_not_follow_each_other_are_samples_of_their_own():
    roles, texts = public._joined(["A", "B", "A", "A"], ["abc", "xyz", "bcd", "zzz"], ["d", "!", "e", "f"])
    assert (roles, texts) == (["A", "B", "A"], ["abcde", "xyz!", "zzzf"])


def test_cifar10_keeps_its_test_images_and_deals_both_splits_evenly(folder):
    data = load("cifar10", cifar10(folder, train=40, test=20))
    assert (data.x.shape, data.x.dtype, data.user_count) == ((60, 3, 32, 32), np.float32, 20)
    assert (data.x.min() >= -1, data.x.max() <= 1) == (True, True)
    assert data.held_out.tolist() == [False] * 40 + [True] * 20
    assert np.bincount(data.users[:40]).tolist() == [2] * 20
    assert np.bincount(data.users[40:]).tolist() == [1] * 20
    assert data.x.flags.c_contiguous
    red = np.round((data.x[:, 0] + 1) * 127.5).mean(axis=(1, 2))
    assert np.corrcoef(red, data.y)[0, 1] > 0.9  # channels are where they should be


def test_a_thousand_clients_get_equal_numbers_of_cifar10(monkeypatch):
    tiny = {
        "x": np.zeros((6000, 1, 1, 3), np.uint8),
        "y": np.arange(6000) % 10,
        "held_out": np.arange(6000) >= 5000,
    }
    monkeypatch.setattr(tables.Hub, "arrays", lambda *_: tiny)
    data = load("cifar10")
    assert np.bincount(data.users[:5000]).tolist() == [5] * 1000
    assert np.bincount(data.users[5000:]).tolist() == [1] * 1000
    assert np.array_equal(data.users, load("cifar10").users)


# where it is read from


def test_files_may_be_nested_in_parts_and_named_as_the_hub_does(folder):
    columns = femnist_columns(3, 12)
    place = folder / "femnist"
    parts = {
        "data/train-00000-of-00003.parquet": slice(0, 12),
        "default/train/0001.parquet": slice(12, 24),
        "train-2.parquet": slice(24, 36),
    }
    for name, rows in parts.items():
        write(place / name, **{key: values[rows] for key, values in columns.items()})
    write(place / "test-0.parquet", **columns)  # another split is not read
    assert len(load("femnist", folder)) == 36


def test_the_folder_may_be_the_data_sets_own(folder):
    assert len(load("femnist", femnist(folder) / "femnist")) == 36


def test_the_environment_names_the_folder_where_no_option_does(folder, monkeypatch, tmp_path):
    monkeypatch.setenv(tables.DATA_DIR, str(femnist(folder)))
    assert len(load("femnist")) == 36
    other = femnist(tmp_path / "other", **femnist_columns(2, 12))
    assert len(load("femnist", other)) == 24
    monkeypatch.setenv(tables.DATA_DIR, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no data folder .*nowhere"):
        load("femnist")


# the cache


def test_the_second_time_nothing_is_decoded_and_the_listener_hears_nothing(folder, cache, monkeypatch):
    heard = []
    first = load("femnist", femnist(folder), heard.append)
    assert heard == ["Decoding femnist: 0 of 36 images (only this time)"]
    assert [path.suffix for path in cache.iterdir()] == [".npz"]
    monkeypatch.setattr(tables, "_read", None)
    again = load("femnist", folder, heard.append)
    assert len(heard) == 1
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.users, again.users)


def test_changed_files_are_decoded_again(folder):
    assert len(load("femnist", femnist(folder))) == 36
    path = femnist(folder, **femnist_columns(2, 12)) / "femnist" / "train.parquet"
    assert len(load("femnist", folder)) == 24
    femnist(folder, character=np.zeros(36, np.int64))
    os.utime(path, ns=(1, 1))
    assert load("femnist", folder).y.max() == 0


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", b"not an array")


@pytest.mark.parametrize("damage", [cut, flip, empty, foreign])
def test_a_damaged_cache_is_built_again(folder, cache, damage):
    expected = load("femnist", femnist(folder)).x
    (path,) = cache.iterdir()
    damage(path)
    assert np.array_equal(load("femnist", folder).x, expected)
    assert recall(path) is not None


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load("femnist", femnist(folder))) == 36


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
    cifar10(folder)
    (folder / "cifar10" / "test.parquet").unlink()
    with pytest.raises(ConfigError, match="no parquet file for the split 'test' of 'cifar10'"):
        load("cifar10", folder)


def test_an_empty_test_split_is_named(folder):
    with pytest.raises(InvalidInputError, match="the 'test' parquet files of 'cifar10' hold no rows"):
        load("cifar10", cifar10(folder, test=0))


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
        load("femnist", femnist(folder, **changes))


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
        load("femnist", femnist(folder, image=image_column(images)))


def test_an_empty_table_and_short_texts_are_refused(folder):
    write(folder / "femnist" / "train.parquet", **{k: v[:0] for k, v in femnist_columns(1, 12).items()})
    with pytest.raises(InvalidInputError, match="the 'train' parquet files of 'femnist' hold no rows"):
        load("femnist", folder)
    write(folder / "shakespeare" / "train.parquet", character_id=["A"], text=["To be"])
    with pytest.raises(InvalidInputError, match="no sequences of 50 characters of roles with at least 10"):
        load("shakespeare", folder)


def test_corrupt_and_unlike_files_are_named(folder):
    path = femnist(folder) / "femnist" / "train.parquet"
    cut(path)
    with pytest.raises(InvalidInputError, match=r"train\.parquet cannot be read as parquet .*; fetch it again"):
        load("femnist", folder)
    femnist(folder)
    write(folder / "femnist" / "train2.parquet", image=[1])
    with pytest.raises(InvalidInputError, match=r"differ in their columns: .*train2\.parquet"):
        load("femnist", folder)


def test_labels_beyond_the_classes_are_refused(folder):
    cifar10(folder)
    write(folder / "cifar10" / "train.parquet", **{**cifar10_columns(30), "label": np.arange(30)})
    with pytest.raises(InvalidInputError, match="go from 0 to 29, but its 10 classes"):
        load("cifar10", folder)


def test_one_user_is_too_few_for_peers(folder):
    data = load("femnist", femnist(folder, writer_id=["me"] * 36))
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
    femnist(folder)
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
