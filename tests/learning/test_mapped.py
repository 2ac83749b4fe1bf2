"""Samples that stay on disk: a folder of arrays gives the numbers that the same arrays in memory give."""

import os
import pickle

import numpy as np
import pytest

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.task import make_task
from securedfl.federation.train import train
from securedfl.learning.data import dataset as module
from securedfl.learning.data.dataset import Dataset, Mapped
from securedfl.learning.data.folder import read_folder
from securedfl.learning.training.known import KnownTask


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 600)
    np.save(tmp_path / "x.npy", (random.normal(size=(600, 5)) + y[:, None]).astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    return tmp_path


def settings(folder, **changes):
    return TrainConfig.resolve(
        {"dataset": str(folder), "peers": 9, "rounds": 2, "methods": "secured", "workers": 1, **changes}
    )


class Counting(Mapped):
    """Counts the rows that are read at a time."""

    most = 0

    def __getitem__(self, chosen):
        found = super().__getitem__(chosen)
        Counting.most = max(Counting.most, len(found))
        return found


def test_samples_are_read_when_a_peer_trains_and_numbers_are_those_of_arrays_in_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("securedfl.learning.data.folder.Mapped", Counting)
    monkeypatch.setattr("securedfl.learning.data.dataset.Mapped", Counting)
    monkeypatch.setattr("securedfl.learning.slices.Mapped", Counting)
    # all of it is checked once, some at a time
    monkeypatch.setattr(module, "BLOCK", 20 * 50)
    config = settings(folder, out=str(tmp_path / "run"))
    assert (config.model, config.dealing, config.held_back) == ("mlp", "even", 0.1)
    train(config)
    # the common test set has 60 samples, a peer 60
    assert 0 < Counting.most <= 60

    task = make_task(config)
    assert isinstance(task.dataset.x, Counting)
    inside = Dataset(**{**vars(task.dataset), "x": task.dataset.x[:]})
    again = KnownTask(inside, task.dealt, task.options, task.common)
    monkeypatch.setattr("securedfl.federation.train.task_of", lambda *_: again)
    train(config.model_copy(update={"out": tmp_path / "inside"}))
    read = [[row.loss for row in read_rows(tmp_path / name, Row)] for name in ("run", "inside")]
    assert read[0] == read[1]
    assert read[0][-1] < read[0][0]


def test_another_process_maps_the_file_itself(folder):
    make = make_task(settings(folder)).maker([2, 5])
    sent = pickle.dumps(make)
    # the places and labels of these two peers, and the common test set
    assert len(sent) < folder.joinpath("x.npy").stat().st_size
    data, copied = make.args[0], pickle.loads(sent).args[0]  # noqa: S301 - our own bytes
    assert tuple(copied) == (2, 5)
    np.testing.assert_equal(vars(copied[5]), vars(data[5]))


def test_what_is_read_by_kind(tmp_path):
    whole = np.arange(24).reshape(4, 6)
    for kind, wanted, most in (
        (np.uint8, np.float32, 23 / 255),
        (np.int16, np.int64, 23),
        (np.float64, np.float32, 23),
    ):
        np.save(tmp_path / "x.npy", whole.astype(kind))
        mapped = Mapped(tmp_path / "x.npy")
        assert mapped.dtype == mapped[1:].dtype == wanted
        assert mapped[3].max() == wanted(most)
        some = mapped.only(np.array([True, False, True, True])).only(np.array([2, 0]))
        np.testing.assert_array_equal(some[:], mapped[np.array([3, 0])])
        assert (some.shape, some.nbytes, len(some)) == ((2, 6), 12 * mapped.dtype.itemsize, 2)


def test_users_and_a_common_test_set(folder):
    np.save(folder / "users.npy", np.arange(600) % 20 + 100)
    np.save(folder / "common.npy", np.arange(600) < 40)
    config = settings(folder)
    assert (config.dealing, config.held_back) == ("natural", 0.0)
    task = make_task(config)
    assert (len(task.dataset), len(task.common), task.dataset.user_count) == (560, 40, 20)


def test_what_is_no_data_is_told(folder):
    with pytest.raises(ConfigError, match="leave label, user, features and coding away"):
        read_folder(folder, label="y")
    x = np.load(folder / "x.npy")
    x[417, 2] = np.nan
    np.save(folder / "x.npy", x)
    with pytest.raises(InvalidInputError, match=r"sample 417 of .*NaN"):
        read_folder(folder)
    np.save(folder / "x.npy", np.zeros(600))
    with pytest.raises(InvalidInputError, match="samples are numbers"):
        read_folder(folder)
    folder.joinpath("x.npy").write_bytes(b"no array")
    with pytest.raises(InvalidInputError, match=r"x\.npy cannot be mapped"):
        read_folder(folder)
    np.save(folder / "x.npy", np.zeros((600, 2)))
    np.save(folder / "y.npy", np.linspace(0, 1, 600))
    with pytest.raises(InvalidInputError, match="one whole number for each sample"):
        read_folder(folder)
    folder.joinpath("y.npy").unlink()
    with pytest.raises(ConfigError, match=r"no y\.npy"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("y.npy", np.zeros(600, dtype=np.int64), "of one class"),
        ("y.npy", np.full(600, 2**40), "one whole number for each sample"),
        ("common.npy", np.arange(600), "True or False for each sample"),
        ("common.npy", np.zeros((600, 2), dtype=bool), "True or False for each sample"),
        ("x.npy", np.zeros((600, 0), dtype=np.float32), "samples are numbers"),
        ("x.npy", np.zeros((600, 2), dtype=np.uint64), "samples are numbers"),
    ],
)
def test_arrays_that_mean_nothing_are_refused(folder, name, array, message):
    np.save(folder / name, array)
    with pytest.raises(InvalidInputError, match=message):
        read_folder(folder)


@pytest.mark.parametrize("name", ["x.npy", "y.npy"])
def test_an_archive_or_a_broken_head_is_no_array(folder, name):
    for content in (b"PK\x03\x04 an archive", b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((       "):
        folder.joinpath(name).write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"write it with numpy\.save"):
            read_folder(folder)


def test_a_file_that_was_cut_while_in_use_is_an_error_and_not_the_end_of_the_process(folder):
    samples = read_folder(folder).x
    os.truncate(folder / "x.npy", 200)
    with pytest.raises(InvalidInputError, match="was changed while it is in use"):
        samples[[500]]
