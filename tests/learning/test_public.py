"""The paper's data sets, read from made-up parquet files in the hub's layout."""

import os
import zipfile

import numpy as np
import pyarrow
import pytest

from securedfl.errors import ConfigError
from securedfl.learning.data import hub as tables
from securedfl.learning.data import public
from securedfl.learning.data.datasets import load
from securedfl.learning.data.dealing import deal
from securedfl.storage import recall
from tests.learning.hub_data import (
    digit_images,
    encoded,
    femnist_columns,
    image_column,
    shakespeare_columns,
    write,
    write_cifar10,
    write_femnist,
)

pytestmark = pytest.mark.usefixtures("cache")


# what is read


def test_femnist_has_the_pixels_labels_and_writers_of_the_files(folder):
    data = load("femnist", write_femnist(folder))
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
        write_femnist(folder, image=image_column(images), writer_id=writers, hsf_id=labels, character=labels),
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
    data = load("cifar10", write_cifar10(folder, train=40, test=20))
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
    monkeypatch.setattr(tables.HubData, "arrays", lambda *_: tiny)
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
    assert len(load("femnist", write_femnist(folder) / "femnist")) == 36


def test_the_environment_names_the_folder_where_no_option_does(folder, monkeypatch, tmp_path):
    monkeypatch.setenv(tables.DATA_DIR, str(write_femnist(folder)))
    assert len(load("femnist")) == 36
    other = write_femnist(tmp_path / "other", **femnist_columns(2, 12))
    assert len(load("femnist", other)) == 24
    monkeypatch.setenv(tables.DATA_DIR, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no data folder .*nowhere"):
        load("femnist")


# the cache


def test_the_second_time_nothing_is_decoded_and_the_listener_hears_nothing(folder, cache, monkeypatch):
    heard = []
    first = load("femnist", write_femnist(folder), heard.append)
    assert heard == ["Decoding femnist: 0 of 36 images (only this time)"]
    assert [path.suffix for path in cache.iterdir()] == [".npz"]
    monkeypatch.setattr(tables, "_read", None)
    again = load("femnist", folder, heard.append)
    assert len(heard) == 1
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.users, again.users)


def test_changed_files_are_decoded_again(folder):
    assert len(load("femnist", write_femnist(folder))) == 36
    path = write_femnist(folder, **femnist_columns(2, 12)) / "femnist" / "train.parquet"
    assert len(load("femnist", folder)) == 24
    write_femnist(folder, character=np.zeros(36, np.int64))
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
    expected = load("femnist", write_femnist(folder)).x
    (path,) = cache.iterdir()
    damage(path)
    assert np.array_equal(load("femnist", folder).x, expected)
    assert recall(path) is not None


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load("femnist", write_femnist(folder))) == 36
