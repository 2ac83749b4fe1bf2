"""What all adapters share, in plain loops with real peers; and torch's ModelAverager."""

from __future__ import annotations

import logging
import threading
import warnings

import pytest
import torch

import securedfl
from securedfl.adapters.loop import FederatedLoop, adapter_of, every, samples_of
from securedfl.adapters.peft import freeze_a_
from securedfl.adapters.torch_averager import FederatedAverager
from securedfl.errors import ConfigError, InvalidInputError, PeerLostError
from securedfl.federation.peers.config import PeerConfig
from securedfl.network.operator import Wish, want

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its jit
    from torch.distributed.optim import PostLocalSGDOptimizer


def one(value: float) -> torch.nn.Module:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, value)
    return model


def add(model: torch.nn.Module, value: float) -> None:
    with torch.no_grad():
        model.weight += value


def value(model: torch.nn.Module) -> float:
    return pytest.approx(float(model.weight.detach()), abs=1e-5)


def test_common_start_averages_and_the_end(sites, caplog):
    caplog.set_level(logging.INFO, "securedfl.peer")

    def work(k, peer):
        model, steps = one(float(k)), 0
        loop = FederatedLoop(peer, every=3)
        assert loop.begin(model)
        assert value(model) == 1.0
        while loop.trained(model):
            add(model, float(k))
            steps += 1
        add(model, 100.0)
        loop.end(model)
        return value(model), steps, loop.ended

    # one step has no time to count before the first average, as the loop asks first
    results = sites(work, rounds=2)
    assert [steps for _, steps, _ in results] == [5, 5, 5]
    assert all(found == 1.0 + 5 for found, _, _ in results)
    assert "2 after the common start" in results[0][2]
    assert caplog.text.count("training stops") == 3


def test_a_restarted_loop_takes_the_last_average(sites, caplog):
    def first(k, peer):
        model, loop = one(float(k)), FederatedLoop(peer, every=2)
        loop.begin(model)
        add(model, float(k))
        loop.trained(model)
        # the last steps are averaged too
        loop.end(model)
        return value(model)

    assert all(found == 2.0 for found in sites(first, rounds=2))
    assert "the others wait for round 2" in caplog.text

    def again(k, peer):
        model, loop = one(50.0), FederatedLoop(peer)
        assert loop.begin(model)
        before = value(model)
        add(model, 3.0 * k)
        assert not loop.trained(model)
        loop.end(model)
        return before, value(model)

    assert all(found == (2.0, 5.0) for found in sites(again))

    def late(_k, peer):
        model, loop = one(50.0), FederatedLoop(peer)
        assert not loop.begin(model)
        # a framework may train one more step before it looks
        add(model, 1.0)
        loop.trained(model)
        loop.end(model)
        return value(model)

    assert all(found == 5.0 for found in sites(late))


def test_sites_whose_models_differ_all_fail(sites, monkeypatch):
    """None of them waits for the others without end."""
    monkeypatch.setattr("securedfl.network.strangers.PATIENCE", 1.0)

    def work(k, peer):
        model = torch.nn.Linear(3 if k == 1 else 2, 1, bias=k != 2)
        with pytest.raises(ConfigError, match="mend that, then start all sites again") as told:
            FederatedLoop(peer).begin(model)
        return str(told.value)

    first, second, third = sites(work, rounds=1)
    assert "model.weight is float32[1, 3] there and float32[1, 2] here" in first
    assert "model.weight is float32[1, 2] there and float32[1, 3] here" in second
    assert "model.bias is float32[1] there and not set here" in third


def test_samples_are_the_weight(sites):
    def work(k, peer):
        model = one(float(k))
        FederatedLoop(peer).begin(model, samples=(1, 2, 7)[k])
        return value(model)

    assert all(found == 1.6 for found in sites(work, weighted=True, settings={"max_weight": 10}))

    def unknown_count(_k, peer):
        with pytest.raises(ConfigError, match="pass weight="):
            FederatedLoop(peer).begin(one(0.0))
        with pytest.raises(ConfigError, match="pass weight="):
            FederatedAverager(peer, 4)

    sites(unknown_count)


def operator(peer, wish: Wish) -> str:
    return want(PeerConfig.load(peer._path).out / "state", wish, 30)


def test_an_operator_ends_the_run(sites, caplog):
    def work(k, peer):
        model, loop = one(float(k)), FederatedLoop(peer)
        loop.begin(model)
        add(model, 1.0)
        if k == 0:
            operator(peer, Wish("stop", reason="the trial is over"))
        assert not loop.trained(model)
        assert not loop.trained(model)
        loop.end(model)
        return value(model), loop.ended

    for found, why in sites(work, rounds=9):
        # what was trained in the round that was never averaged is dropped
        assert found == 1.0
        assert why == "an operator ended the run: the trial is over"
    assert "training stops here, with the last average" in caplog.text

    def late(_k, peer):
        model, loop = one(50.0), FederatedLoop(peer)
        return loop.begin(model), value(model), loop.ended

    for goes_on, found, why in sites(late):
        assert not goes_on
        assert (found, why) == (1.0, "an operator ended the run: the trial is over")


def test_a_peer_is_removed(sites):
    def work(k, peer):
        model, loop = one(float(k)), FederatedLoop(peer)
        loop.begin(model)
        if k == 0:
            # it is decided between two rounds
            threading.Thread(target=operator, args=(peer, Wish("remove", name="p3")), daemon=True).start()
        # those who stay see it in the same round
        while loop.trained(model) and (k == 3 or len(peer.last.members) == 4):
            pass
        loop.end(model)
        return value(model), loop.ended

    *stayed, (found, why) = sites(work, count=4, rounds=500, protocol="resilient")
    assert [why for _, why in stayed] == ["", "", ""]
    assert (found, why) == (1.5, "p3 was removed from the roster")


def test_the_averager_of_torch(sites):
    def work(k, peer):
        model = one(float(k))
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        optimizer = PostLocalSGDOptimizer(inner, FederatedAverager(peer, period=2, warmup_steps=1))
        assert not peer.resume_(optimizer)
        seen = []
        for _ in range(5):
            model.weight.grad = torch.full((1, 1), -float(k))
            optimizer.step()
            seen.append(float(model.weight.detach()))
        assert peer.done
        assert optimizer.state_dict()["step"] == 5
        with pytest.raises(PeerLostError, match="all 2 averages of this run are done"):
            optimizer.step()
        return seen

    # step 0 is the warm-up; steps 1 and 3 average
    for k, seen in enumerate(sites(work, rounds=1)):
        assert seen == pytest.approx([2.0 * k, 3.0, 3.0 + k, 5.0, 5.0 + k], abs=1e-4)


def test_steps_or_epochs():
    assert (every(8, None), every(None, 2), every(None, None)) == ((8, False), (2, True), (1, True))
    with pytest.raises(ConfigError, match="one of the two"):
        every(1, 1)
    assert samples_of(torch.utils.data.DataLoader([1, 2, 3])) == 3
    assert samples_of(iter([])) is None


@pytest.mark.parametrize("peer", [None, "peer.toml", securedfl.join])
def test_an_adapter_without_join(peer):
    with pytest.raises(ConfigError, match=r"not a peer; pass what `with securedfl\.join"):
        FederatedLoop(peer)
    with pytest.raises(ConfigError, match="not a peer"):
        FederatedAverager(peer, 4)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, None])
def test_averages_lie_whole_steps_apart(count):
    with pytest.raises(ConfigError, match="whole number of steps"):
        FederatedLoop(securedfl.join("peer.toml"), every=count)


class Lora(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.peft_config = {"default": None, "legal": None}
        self.lora_A = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2, bias=False) for name in self.peft_config})
        self.lora_B = torch.nn.ModuleDict({name: torch.nn.Linear(2, 4, bias=False) for name in self.peft_config})


def test_a_is_the_same_everywhere_and_frozen():
    first, second = freeze_a_(Lora(), seed=3), freeze_a_(Lora(), seed=3)
    assert torch.equal(first.lora_A["legal"].weight, second.lora_A["legal"].weight)
    assert not torch.equal(first.lora_A["legal"].weight, first.lora_A["default"].weight)
    assert not torch.equal(freeze_a_(Lora(), seed=4).lora_A["legal"].weight, second.lora_A["legal"].weight)
    assert list(adapter_of(first, "legal")) == ["lora_B.legal.weight"]
    with pytest.raises(ConfigError, match="unknown adapter 'leagl'; did you mean 'legal'"):
        adapter_of(first, "leagl")
    with pytest.raises(ConfigError, match="has no adapters"):
        adapter_of(one(1.0), "default")
    with pytest.raises(InvalidInputError, match="lora_A"):
        freeze_a_(one(1.0))
