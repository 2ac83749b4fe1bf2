"""A peer's share of data that the user has: every kind of holder, every dealing, nothing lost and nothing twice."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import securedfl
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.dataset import Dataset

X, Y = np.arange(120.0, dtype=np.float32).reshape(60, 2), np.arange(60) % 3


class Samples(torch.utils.data.Dataset):
    """As a user writes one."""

    targets = Y

    def __len__(self):
        return 60

    def __getitem__(self, place):
        return X[place], Y[place]


class Hub:
    """What a Hugging Face dataset can do."""

    column_names = ("x", "label", "who")

    def __init__(self, places=range(60)):
        self.places = list(places)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, key):
        if isinstance(key, str):
            return {"x": X[:, 0], "label": [f"c{k}" for k in Y], "who": [k // 10 for k in range(60)]}[key]
        return {"x": X[self.places[key], 0]}

    def select(self, places):
        return Hub(self.places[place] for place in places)


HOLDERS = {
    "arrays": ((X, Y), lambda part: part[0][:, 0]),
    "tensors": ((torch.tensor(X), torch.tensor(Y)), lambda part: part[0][:, 0]),
    "one array": (X, lambda part: part[:, 0]),
    "list": (X[:, 0].tolist(), lambda part: part),
    "dataset": (Samples(), lambda part: [x[0] for x, _ in part]),
    "tensor dataset": (TensorDataset(torch.tensor(X), torch.tensor(Y)), lambda part: [x[0] for x, _ in part]),
    "loader": (DataLoader(Samples(), batch_size=7), lambda part: [v for x, _ in part for v in x[:, 0]]),
    "hub": (Hub(), lambda part: [part[k]["x"] for k in range(len(part))]),
    "folder": (Dataset(name="f", x=X, y=Y, classes=3), lambda part: part.x[:, 0]),
}


def settings(number, **more):
    return {"number": number, "peers": 4, "seed": 5, **more}


@pytest.mark.parametrize("kind", HOLDERS)
def test_every_sample_goes_to_one_place(kind):
    data, values = HOLDERS[kind]
    shares = [securedfl.deal(data, settings(k), held_back=0.2) for k in range(4)]
    common = {float(value) for value in values(shares[0].common)}
    parts = [common, *({float(v) for v in values(part)} for share in shares for part in (share.train, share.test))]
    assert [len(part) for part in parts] == [12, *([11, 1] * 4)]
    assert set.union(*parts) == set(X[:, 0])
    assert {float(value) for value in values(shares[3].common)} == common
    assert type(shares[0].train) is (
        type(data) if kind not in ("dataset", "tensor dataset") else torch.utils.data.Subset
    )


def test_a_loader_keeps_its_ways():
    loader = DataLoader(Samples(), batch_size=7, shuffle=True, drop_last=True)
    share = securedfl.deal(loader, settings(0))
    assert (share.train.batch_size, share.train.drop_last, len(share.train.dataset)) == (7, True, 13)
    assert isinstance(share.train.sampler, torch.utils.data.RandomSampler)


@pytest.mark.parametrize("kind", ["arrays", "tensors", "dataset", "tensor dataset", "folder"])
def test_labels_are_known_to_deal_unevenly(kind):
    data, values = HOLDERS[kind]
    found = [values(securedfl.deal(data, settings(k, dealing="dirichlet", alpha=0.3)).train) for k in range(4)]
    wanted = [securedfl.deal((X, Y), settings(k, dealing="dirichlet", alpha=0.3)).train[0][:, 0] for k in range(4)]
    for one, other in zip(found, wanted, strict=True):
        assert [float(v) for v in one] == other.tolist()
    assert len({len(part) for part in found}) > 1


def test_columns_say_label_and_user():
    whose = [securedfl.deal(Hub(), settings(k, dealing="natural"), user="who") for k in range(4)]
    users = [{place // 10 for place in (*share.train.places, *share.test.places)} for share in whose]
    assert sum(map(len, users)) == len(set.union(*users)) == 6
    assert securedfl.deal(Hub(), settings(0, dealing="dirichlet"), label="label").train.places
    by_list = securedfl.deal(X, settings(1, dealing="natural"), user=[k // 10 for k in range(60)])
    assert len({int(v) // 20 for v in by_list.train[:, 0]}) == len(users[1])


def test_what_cannot_be_dealt_is_told():
    with pytest.raises(ConfigError, match="lack 'number'"):
        securedfl.deal(X, {"peers": 3})
    with pytest.raises(InvalidInputError, match="a generator cannot be dealt"):
        securedfl.deal((k for k in range(9)), settings(0))
    with pytest.raises(InvalidInputError, match="different lengths: 3, 60"):
        securedfl.deal((X, Y[:3]), settings(0))
    with pytest.raises(ConfigError, match="needs one label per sample"):
        securedfl.deal(X[:, 0].tolist(), settings(0, dealing="dirichlet"))
    with pytest.raises(ConfigError, match=r"no column 'y' \(it has x, label, who\)"):
        securedfl.deal(Hub(), settings(0), label="y")
    with pytest.raises(InvalidInputError, match="60 samples, but 2 values of user"):
        securedfl.deal(X, settings(0), user=[1, 2])


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        ([X, Y], {}, r"a list of 2 arrays cannot be dealt; give a tuple .* \(x, y\)"),
        ((X.tolist(), Y.tolist()), {}, "a tuple of 2 arrays cannot be dealt"),
        ({"x": X, "y": Y}, {}, "a dict of 2 arrays cannot be dealt"),
        ((X, np.array(["a", None] * 30, dtype=object)), {"dealing": "dirichlet"}, "is one of them missing"),
        ((X, Y + 0.5), {"dealing": "dirichlet"}, "a text or a whole number"),
        ((X, Y), {"number": 4}, "no peer 4 among 4; they count from 0"),
        ((X, Y), {"number": -1}, "no peer -1"),
    ],
)
def test_what_looks_like_data_but_is_not(data, changes, message):
    with pytest.raises((ConfigError, InvalidInputError), match=message):
        securedfl.deal(data, {**settings(0), **changes})


def test_a_part_to_hold_back_is_a_part():
    for part in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="from 0 to less than 1"):
            securedfl.deal((X, Y), settings(0), held_back=part)


def test_samplers_of_the_users_own_are_refused_and_others_kept():
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    batches = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 5, drop_last=True)
    mine = securedfl.deal(DataLoader(data, batch_sampler=batches), settings(0)).train
    assert (mine.batch_size, mine.drop_last) == (5, True)
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * len(data), len(data))
    for given in (
        DataLoader(data, sampler=weighted),
        DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(weighted, 5, drop_last=False)),
    ):
        with pytest.raises(ConfigError, match="has a sampler of its own"):
            securedfl.deal(given, settings(0))


def test_labels_of_parts_and_of_whole_floats_are_known():
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    uneven = {**settings(0, dealing="dirichlet", alpha=9.0), "peers": 2}
    for given in (torch.utils.data.Subset(data, range(40)), torch.utils.data.ConcatDataset([data, data])):
        assert len(securedfl.deal(given, uneven).train) > 0
    whole = securedfl.deal((X, Y.astype(np.float64)), uneven)
    np.testing.assert_array_equal(whole.train[0], securedfl.deal((X, Y), uneven).train[0])
