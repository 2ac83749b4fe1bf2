"""Options of local training, each against the same thing in plain PyTorch."""

from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn

from securedfl.errors import ConfigError
from securedfl.learning.devices import find_device
from securedfl.learning.slices import PeerData
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.trainer import LocalTrainer, one_thread
from tests.learning.test_local_update import CLASSES, fresh_row, samples, trainer


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def batches(local, row, *, round=1):
    """Train, and return the batches that were taken, in order."""
    taken, original = [], local.model.module.forward

    def record(x):
        taken.append(x.clone())
        return original(x)

    local.model.module.forward = record
    try:
        local.update(0, round, row)
    finally:
        local.model.module.forward = original
    data = samples()
    place = {x.tobytes(): i for i, x in enumerate(data.train_x)}
    return [[place[x.numpy().tobytes()] for x in batch] for batch in taken]


def plain_linear(row):
    """Softmax regression with the parameters of a row, and its samples."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    with torch.no_grad():
        nn.utils.vector_to_parameters(torch.from_numpy(row.copy()), module.parameters())
    data = samples()
    return module, torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)


def flat(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


SGD = {"model": "linear", "optimizer": "sgd", "learning_rate": 0.5, "batch_size": 16}


def test_fedprox_descends_the_loss_plus_half_mu_times_the_squared_distance():
    local = trainer(**SGD, proximal=0.3, epochs=2)
    row = fresh_row(local)
    start = row.copy()
    module, x, y = plain_linear(row)
    anchor = torch.from_numpy(start)
    steps = torch.optim.SGD(module.parameters(), lr=0.5)
    for batch in batches(local, row):
        steps.zero_grad()
        distance = nn.utils.parameters_to_vector(module.parameters()) - anchor
        (nn.functional.cross_entropy(module(x[batch]), y[batch]) + 0.3 / 2 * (distance**2).sum()).backward()
        steps.step()
    np.testing.assert_allclose(row, flat(module), rtol=1e-4, atol=1e-6)
    free = start.copy()
    trainer(**SGD, epochs=2).update(0, 1, free)
    assert np.linalg.norm(row - start) < np.linalg.norm(free - start)


def test_fedprox_leaves_parts_at_home_alone():
    options = {**SGD, "local": ("1.weight",), "epochs": 2}
    with_term, without = trainer(**options, proximal=5.0), trainer(**options)
    rows = [fresh_row(local) for local in (with_term, without)]
    first = with_term.state(0)["home.1.weight"].copy()
    for local, row in zip((with_term, without), rows, strict=True):
        local.update(0, 1, row)
    assert with_term.model.common.shape == (CLASSES,)
    # the bias is held back, the weights at home are free to move
    assert np.abs(rows[0]).sum() != np.abs(rows[1]).sum()
    moved = [np.linalg.norm(local.state(0)["home.1.weight"] - first) for local in (with_term, without)]
    assert moved[0] == pytest.approx(moved[1], rel=0.05)


def test_long_gradients_are_shortened_as_pytorch_does():
    local = trainer(**SGD, gradient_norm=0.01)
    row = fresh_row(local)
    module, x, y = plain_linear(row)
    steps = torch.optim.SGD(module.parameters(), lr=0.5)
    for batch in batches(local, row):
        steps.zero_grad()
        nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
        assert nn.utils.clip_grad_norm_(module.parameters(), 0.01) > 0.01
        steps.step()
    np.testing.assert_allclose(row, flat(module), rtol=1e-4, atol=1e-6)


def test_steps_go_over_the_samples_again_and_again():
    local = trainer(**SGD, steps=7)
    taken = batches(local, fresh_row(local))
    # 40 samples in batches of 16: an epoch is three steps
    assert [len(batch) for batch in taken] == [16, 16, 8, 16, 16, 8, 16]
    assert sorted(chain(*taken[:3])) == sorted(chain(*taken[3:6])) == list(range(40))
    short = trainer(**SGD, steps=1)
    assert len(batches(short, fresh_row(short))) == 1


def test_epochs_are_as_many_steps():
    epochs, steps = trainer(**SGD, epochs=2), trainer(**SGD, steps=6)
    one, other = fresh_row(epochs), fresh_row(steps)
    epochs.update(0, 1, one)
    steps.update(0, 1, other)
    assert np.array_equal(one, other)


def scheduled(scheduler, rounds, **options):
    parameter = nn.Parameter(torch.zeros(1))
    steps = torch.optim.SGD([parameter], lr=1.0)
    made = scheduler(steps, **options)
    found = []
    for _ in range(rounds):
        found.append(steps.param_groups[0]["lr"])
        steps.step()
        made.step()
    return found


def factor(round, schedule, **options):
    given = {f"learning_rate_{key}" if key != "warmup" else key: value for key, value in options.items()}
    made = TrainingOptions(model="linear", learning_rate=1.0, learning_rate_schedule=schedule, **given)
    return made.rate(round)


def test_schedules_are_those_of_pytorch():
    rates = torch.optim.lr_scheduler
    cosine = [factor(r, "cosine", decay=0.2, period=8) for r in range(1, 9)]
    np.testing.assert_allclose(cosine, scheduled(rates.CosineAnnealingLR, 8, T_max=8, eta_min=0.2), rtol=1e-9)
    assert factor(100, "cosine", decay=0.2, period=8) == pytest.approx(0.2)
    step = [factor(r, "step", decay=0.5, period=3) for r in range(1, 10)]
    np.testing.assert_allclose(step, scheduled(rates.StepLR, 9, step_size=3, gamma=0.5), rtol=1e-9)
    rising = [factor(r, "constant", decay=0.1, warmup=4) for r in range(1, 8)]
    linear = scheduled(rates.LinearLR, 7, start_factor=0.2, end_factor=1.0, total_iters=4)
    np.testing.assert_allclose(rising, linear, rtol=1e-9)


def test_the_optimiser_takes_the_rate_of_the_round():
    local = trainer(**SGD, learning_rate_schedule="step", learning_rate_period=1, learning_rate_decay=0.0)
    row = fresh_row(local)
    before = row.copy()
    local.update(0, 1, row)
    assert not np.array_equal(row, before)
    after = row.copy()
    local.update(0, 2, row)
    assert np.array_equal(row, after)


@pytest.mark.parametrize("model", ["linear", "cnn-small"])
def test_mixed_precision_is_pytorchs_autocast(model):
    local = trainer(**{**SGD, "model": model, "learning_rate": 0.05}, precision="bfloat16", steps=1)
    row = fresh_row(local)
    local.load(0, row)
    start = row.copy()
    (batch,) = batches(local, row)
    full = start.copy()
    trainer(**{**SGD, "model": model, "learning_rate": 0.05}, steps=1).update(0, 1, full)
    assert row.dtype == np.float32
    assert not np.array_equal(row, full)
    # the same direction, in about three digits
    assert np.linalg.norm(row - full) < 0.1 * np.linalg.norm(full - start)
    if model == "linear":
        module, x, y = plain_linear(start)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(module(x[batch]), y[batch])
        loss.backward()
        torch.optim.SGD(module.parameters(), lr=0.05).step()
        np.testing.assert_allclose(row, flat(module), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("model", "shape"),
    [("gru", (6,)), ("cnn", (1, 10, 10)), ("resnet18", (3, 9, 9)), ("resnet18-running", (3, 9, 9))],
)
def test_every_model_trains_in_mixed_precision(model, shape):
    random = np.random.default_rng(0)
    x = random.integers(0, 5, (4, *shape)) if model == "gru" else random.random((4, *shape), dtype=np.float32)
    y = random.integers(0, 5, (4, 6) if model == "gru" else 4)
    options = {"model": model, "width": 0.125, "optimizer": "sgd"}
    rows = []
    for precision in ("float32", "bfloat16"):
        given = TrainingOptions(**options, precision=precision)
        local = LocalTrainer({0: PeerData(x, y, x, y)}, shape, 5, given)
        row = fresh_row(local)
        start = row.copy()
        local.update(0, 1, row)
        rows.append(row - start)
    assert not np.array_equal(*rows)
    # in the same direction
    assert rows[0] @ rows[1] > 0.9 * np.linalg.norm(rows[0]) * np.linalg.norm(rows[1])


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ConfigError, match=rf"device = '{device}'.*it finds cpu"):
        trainer(device=device)
    assert find_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 5, "epochs": 2}, "give one of them"),
        ({"optimizer": "adamw", "momentum": 0.9}, "adamw takes none"),
        ({"learning_rate_schedule": "step"}, "needs learning_rate_period"),
        ({"learning_rate_period": 3}, "the learning rate is constant"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        TrainingOptions(model="linear", **options)
