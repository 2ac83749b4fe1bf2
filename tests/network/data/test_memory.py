"""Room for vectors is used again, and never while anybody can still see what is in it."""

import numpy as np
import pytest

from securedfl.network.data.memory import COLLECTED, SOON, Heap, Rooms

LIKE = np.zeros(1000, np.float32)


def address(vector):
    return vector.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "look",
    [
        lambda vector: vector,
        lambda vector: vector[10:],
        lambda vector: vector.view(np.uint8),
        lambda vector: memoryview(vector).cast("B")[5:],
        lambda vector: np.frombuffer(vector.data, np.uint8),
        lambda vector: vector.reshape(10, 100).T,
    ],
)
def test_a_room_is_not_given_away_while_anybody_looks_into_it(look):
    rooms = Rooms()
    first = rooms.like(LIKE)
    where, seen = address(first), look(first)
    del first
    assert address(rooms.like(LIKE)) != where
    del seen
    assert address(rooms.like(LIKE)) == where


def test_vectors_are_as_asked_for():
    rooms = Rooms()
    for like in (LIKE, np.zeros(500, np.float64), np.zeros(500, np.float32), np.zeros(0, np.float32)):
        made = rooms.like(like)
        assert (made.shape, made.dtype) == (like.shape, like.dtype)
        made[...] = 1
        del made


def test_only_one_room_is_kept_that_nobody_uses():
    rooms = Rooms()
    made = [rooms.like(LIKE) for _ in range(3)]
    places = {address(vector) for vector in made}
    assert len(places) == 3
    del made[:]
    again, other = rooms.like(LIKE), rooms.like(LIKE)
    assert address(again) in places
    assert rooms._free.nbytes == 0
    assert address(again) != address(other)


def test_memory_is_given_back_unless_the_next_average_asks_for_it_at_once():
    heap = Heap()
    assert heap.due(100.0) == (True, False)
    assert [heap.due(100.0 + second) for second in (1, 2, 3)] == [(False, False)] * 3
    # training took longer than that: memory is for others meanwhile
    assert heap.due(103.0 + SOON + 0.1) == (True, False)


def test_also_of_quick_averages_garbage_is_collected_and_memory_given_back_now_and_then():
    heap = Heap()
    due = [heap.due(0.001 * k) for k in range(2 * COLLECTED)]
    assert [k for k, (trim, _) in enumerate(due, start=1) if trim] == [1, COLLECTED, 2 * COLLECTED]
    assert [k for k, (_, collect) in enumerate(due, start=1) if collect] == [COLLECTED, 2 * COLLECTED]
