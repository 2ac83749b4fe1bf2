"""Local training on the flat model against plain PyTorch, and what must not leak between peers or to the caller."""

import numpy as np
import pytest
import torch
from torch import nn

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.models.flat import FlatModel, canonical
from securedfl.learning.models.registry import build
from securedfl.learning.slices import PeerData
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.trainer import LocalTrainer, one_thread
from tests.learning.plugin import install

SHAPE, CLASSES = (1, 8, 8), 10


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def samples(seed=0, count=40):
    random = np.random.default_rng(seed)
    x = random.random((count, *SHAPE), dtype=np.float32)
    return PeerData(x, random.integers(0, CLASSES, count), x[:10].copy(), random.integers(0, CLASSES, 10))


def trainer(*, peers=1, **options):
    data = {peer: samples(peer) for peer in range(peers)}
    return LocalTrainer(data, SHAPE, CLASSES, TrainingOptions(**{"model": "cnn-small", **options}))


def fresh_row(local, peer=0):
    row = np.zeros(local.model.size, np.float32)
    local.initialise(peer, row)
    return row


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "adamw", "sgd"])
def test_an_update_equals_the_same_steps_in_plain_pytorch(optimizer):
    local = trainer(optimizer=optimizer, learning_rate=0.01, weight_decay=0.1, batch_size=16, epochs=2)
    row = fresh_row(local)

    module = build("cnn-small", SHAPE, CLASSES)
    at = 0
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(row[at : at + p.numel()]).view(p.shape))
            at += p.numel()
    kinds = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    kind = (kinds | {"adamw": torch.optim.AdamW})[optimizer]
    steps = kind(module.parameters(), lr=0.01, weight_decay=0.1)

    orders = []
    original = torch.randperm
    try:
        torch.randperm = lambda n: orders.append(original(n)) or orders[-1]
        local.update(0, 1, row)
    finally:
        torch.randperm = original
    data = samples()
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    for order in orders:
        for batch in (order[:16], order[16:32], order[32:]):
            steps.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            steps.step()
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-5)


def test_training_learns():
    local = trainer(model="linear", optimizer="adam", learning_rate=0.1)
    row = fresh_row(local)
    losses = [local.update(0, r, row) for r in range(1, 41)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("initial", ["common", "own"])
def test_peers_start_from_common_or_own_parameters_and_the_seed_decides(initial):
    a, b = (trainer(peers=2, seed=1, initial=initial) for _ in range(2))
    assert np.array_equal(fresh_row(a, 0), fresh_row(b, 0))
    assert np.array_equal(fresh_row(a, 0), fresh_row(a, 1)) == (initial == "common")
    assert not np.array_equal(fresh_row(a, 0), fresh_row(trainer(seed=2, initial=initial), 0))


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "sgd"])
def test_a_peer_does_not_depend_on_who_else_trains_here(optimizer):
    alone, together = (trainer(peers=2, optimizer=optimizer) for _ in range(2))
    row = fresh_row(alone)
    mine, other = row.copy(), fresh_row(together, 1)
    for r in (1, 2):
        alone.update(0, r, row)
        together.update(1, r, other)
        together.update(0, r, mine)
    assert np.array_equal(row, mine)


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "sgd"])
def test_optimiser_state_can_be_carried_to_another_trainer(optimizer):
    first, second = (trainer(optimizer=optimizer, momentum=0.0) for _ in range(2))
    row = fresh_row(first)
    first.update(0, 1, row)
    copy = row.copy()
    second.restore(0, first.state(0))
    first.update(0, 2, row)
    second.update(0, 2, copy)
    assert np.array_equal(row, copy)


def test_the_callers_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    local = trainer()
    local.update(0, 1, fresh_row(local))
    assert torch.equal(torch.rand(3), expected)


def test_buffers_travel_with_the_parameters_and_counters_stay_whole():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    flat = FlatModel(module, integers="average")
    assert [leaf.name for leaf in flat.schema.leaves][-3:] == [
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
    ]
    module(torch.randn(8, 3))
    row = np.zeros(flat.size, np.float32)
    flat.write(row)
    assert row[-1] == 1
    assert np.abs(row[-7:-4]).max() > 0
    row[-1], row[-7:-4] = 2.6, 9
    flat.read(row, {})
    assert int(module[0].num_batches_tracked) == 3
    assert module[0].running_mean.tolist() == [9, 9, 9]


def test_gradients_reach_the_flat_parameter():
    module = nn.Linear(2, 1)
    flat = FlatModel(module)
    module(torch.ones(1, 2)).sum().backward()
    assert flat.gradient.tolist() == [1, 1, 1]


def test_layout_never_depends_on_where_numpy_put_an_array():
    odd = np.zeros((5, 8, 8), np.float32)[:, None][np.arange(5)]
    assert canonical(odd).stride() == torch.zeros(5, 1, 8, 8).stride()
    assert canonical(np.zeros((4, 6), np.float32).T).is_contiguous()
    shifted = np.zeros(101, np.float32)[1:]
    assert canonical(shifted).data_ptr() % 64 == 0


def test_divergence_is_an_error_that_names_peer_and_round():
    local = trainer(learning_rate=1e30)
    with pytest.raises(InvalidInputError, match=r"peer 0 diverged in round 4.*lower learning_rate"):
        local.update(0, 4, fresh_row(local))


def test_unknown_names_are_errors_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'linear'"):
        build("linera", (4,), 2)
    with pytest.raises(ConfigError, match="unknown optimizer 'lion'"):
        trainer(optimizer="lion")
    with pytest.raises(ConfigError, match="needs images of at least 4x4"):
        build("cnn-small", (12,), 3)


def test_sequences_are_scored_per_position(monkeypatch, tmp_path):
    code = "from torch import nn\n\ndef tokens(shape, classes, width):\n    return nn.Embedding(7, classes)\n"
    install(monkeypatch, tmp_path, code, models={"tokens": "tokens"})
    x = np.arange(60).reshape(12, 5) % 7
    data = PeerData(x[:10], x[:10].copy(), x[10:], x[10:].copy())
    local = LocalTrainer({0: data}, (5,), 7, TrainingOptions(model="tokens", optimizer="adam", learning_rate=0.5))
    row = fresh_row(local)
    for r in range(1, 9):
        local.update(0, r, row)
    score = local.evaluate(0, row)
    assert (score.correct, score.count) == (10, 10)
