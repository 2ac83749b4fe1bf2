"""Which peers train where, and what does not fit."""

from dataclasses import replace

import pytest
import torch

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig
from securedfl.federation.task import make_task
from securedfl.learning.optimizers import make_optimizer
from securedfl.learning.slices import Slices
from securedfl.learning.training.cluster.placement import MODELS, PROCESS, Needs, Node, Placement, moved, seats, stated

MB = 10**6
SMALL = Needs(shard=400 * MB, peers=(10 * MB,) * 9, home=PROCESS + 90 * MB)


def node(name, cores=2, memory=4000 * MB, **options):
    return Node(name, name, cores, memory, **options)


def test_one_shard_per_core_and_every_peer_once():
    found = seats([node("a"), node("b", 4)], [1] * 9, SMALL, "auto")
    assert [seat.node.id for seat in found].count("a") == 2
    assert sorted(peer for seat in found for peer in seat.peers) == list(range(9))
    assert {seat.memory for seat in found} == {410 * MB, 420 * MB}


def test_shards_are_spread_and_never_more_than_peers():
    assert [seat.node.id for seat in seats([node("a"), node("b")], [1] * 9, SMALL, 2)] == ["a", "b"]
    assert len(seats([node("a", 64, memory=10**11)], [1] * 9, SMALL, "auto")) == 9


def test_gpus_are_counted_instead_of_cores():
    found = seats([node("a", 8), node("b", 8, gpus=2)], [1] * 9, SMALL, "auto", gpu=True)
    assert [seat.node.id for seat in found] == ["b", "b"]
    with pytest.raises(ConfigError, match="have no GPU"):
        seats([node("a")], [1] * 9, SMALL, "auto", gpu=True)


def test_more_workers_than_cores_are_refused():
    with pytest.raises(ConfigError, match=r"workers = 3, but the cluster has 2 cores.*set workers to 2 or auto"):
        seats([node("a")], [1] * 9, SMALL, 3)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        # two shards of 450 and 440 MB and 590 MB for averaging, or one of 490 MB
        (1100, r"offers 1.1 GB .* about 1.5 GB \(2 shards of up to 450 MB and 590 MB .*; workers = 1 would fit"),
        # 400 MB and, of k peers, 10 k MB, and 500 + 10 k MB for averaging
        (1050, r"; 7 peers would fit with workers = 1; or add nodes, so that they offer about 1.1 GB together"),
        (900, r"; add nodes, so that they offer about 1.1 GB together, or take a smaller model"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(memory, message):
    with pytest.raises(ConfigError, match=message):
        seats([node("a", memory=memory * MB, home=True)], [1] * 9, SMALL, "auto")
    if "workers = 1 would" in message:
        (seat,) = seats([node("a", memory=memory * MB, home=True)], [1] * 9, SMALL, 1)
        assert seat.memory == 490 * MB
    if "7 peers" in message:
        for peers in (7, 8):
            some = SMALL.first(peers)
            assert (some.of_shard(range(peers)) + some.home <= memory * MB) == (peers == 7)


def test_a_node_without_the_averaging_process_needs_less():
    assert len(seats([node("a", memory=900 * MB)], [1] * 9, SMALL, "auto")) == 2


def test_the_line_before_the_start_says_how_much_memory():
    found = seats([node("a"), node("b")], [1] * 9, SMALL, "auto")
    assert stated(found, SMALL) == (
        "Ray: 4 shards on 2 nodes, up to 3 peers and about 430 MB of memory in each, activations not counted; "
        "averaging takes 590 MB"
    )


def test_a_lost_shard_goes_where_most_is_left_and_where_it_fits():
    a, b, c, small = node("a", 2), node("b", 4), node("c"), node("d", 8, memory=500 * MB)
    lost, others = Placement(c, (0,), 400 * MB), [Placement(where, (1,), 400 * MB) for where in (a, b, b, b)]
    assert moved(lost, [a, b, c], others, SMALL) == lost
    assert moved(lost, [a, b], others[:1], SMALL) == replace(lost, node=b)
    assert moved(lost, [a, b], others, SMALL) == replace(lost, node=a)
    assert moved(lost, [small], [], SMALL) == replace(lost, node=small)
    assert moved(lost, [small], [Placement(small, (1,), 400 * MB)], SMALL) is None
    # there, averaging takes 590 MB
    assert moved(lost, [replace(small, home=True)], [], SMALL) is None
    assert moved(lost, [], others, SMALL) is None


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", "adam", "adamw"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_an_optimiser_keeps_is_counted_as_torch_has_it(optimizer, momentum):
    if momentum and optimizer.startswith("adam"):
        return
    settings = {"peers": 3, "model": "linear", "optimizer": optimizer, "momentum": momentum}
    options = TrainConfig.resolve(settings).options()
    parameter = torch.nn.Parameter(torch.zeros(100))
    parameter.grad = torch.ones(100)
    torch_one = make_optimizer(parameter, options)
    torch_one.step()
    vectors = [value for value in torch_one.state[parameter].values() if value.numel() == 100]
    assert options.slots == len(vectors)


def test_needs_of_a_known_data_set():
    task = make_task(TrainConfig.resolve({"peers": 3, "model": "linear", "optimizer": "adam"}))
    row = 4 * task.schema().size
    needs = Needs.of(task)
    data = Slices(task.dataset, {1: task.dealt[1]})[1]
    held = sum(array.nbytes for array in vars(data).values())
    assert needs.shard == PROCESS + MODELS * row
    assert needs.peers[1] == 3 * row + held
    assert needs.home == PROCESS + 3 * row + 2 * 3 * 2 * row
