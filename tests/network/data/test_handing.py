"""Results from others: one that sends almost nothing keeps nobody from those that send all of it."""

import queue
import threading
import time

import numpy as np

from securedfl.network.core.events import Fetch
from securedfl.network.data.handing import Handing
from securedfl.network.data.results import Results
from securedfl.network.letters import Want, unpack


class Holders:
    """Links to two holders: the first sends a byte now and then, the second all at once."""

    def __init__(self, data):
        self._data, self._inlets, self._over = data, {}, threading.Event()

    def accept(self, peer, key, inlet):
        self._inlets[peer] = (key, inlet)

    def send(self, peer, _data):
        threading.Thread(target=self._slowly if peer == "p1" else self._at_once, args=self._inlets[peer]).start()
        return True

    def forget(self, peer, _key):
        self._inlets.pop(peer, None)

    def _slowly(self, key, inlet):
        for at in range(len(self._data)):
            if self._over.wait(0.05) or self._inlets.get("p1", (None,))[0] != key:
                return
            self._piece(inlet, self._data[at : at + 1])

    def _at_once(self, _key, inlet):
        self._piece(inlet, self._data)
        inlet.ended("")

    @staticmethod
    def _piece(inlet, data):
        room = inlet.begin(b"", len(data))
        room[:] = data
        inlet.arrived(b"", room)

    def close(self):
        self._over.set()


def test_a_holder_that_sends_a_byte_now_and_then_is_left_for_another(tmp_path):
    vector = np.arange(1000, dtype=np.float32)
    wanted = Results(tmp_path / "theirs", 1000, "float32").store(0, 0, vector)
    links, told = Holders(memoryview(vector.tobytes())), queue.SimpleQueue()
    handing = Handing(links, Results(tmp_path / "mine", 1000, "float32"), told.put)
    began = time.monotonic()
    handing.fetch(Fetch(wanted, (1, 2)), {1: "p1", 2: "p2"}, patience=0.5)
    try:
        assert told.get(timeout=30) == wanted
    finally:
        handing.stop()
        links.close()
    assert time.monotonic() - began < 30


class Steady:
    """Links to two holders that send a piece now and then; counts who is asked."""

    def __init__(self, data, pause):
        self._data, self._pause, self.asked, self.over = data, pause, [], threading.Event()
        self._inlets = {}

    def accept(self, peer, key, inlet):
        self._inlets[peer, key] = inlet

    def send(self, peer, data):
        self.asked.append(peer)
        key = unpack(data).key
        threading.Thread(target=self._send, args=(peer, key)).start()
        return True

    def forget(self, peer, key):
        self._inlets.pop((peer, key), None)

    def _send(self, peer, key):
        for piece in np.array_split(np.frombuffer(self._data, np.uint8), 10):
            inlet = self._inlets.get((peer, key))
            if self.over.wait(self._pause) or inlet is None:
                return
            room = inlet.begin(b"", len(piece))
            room[:] = piece.tobytes()
            inlet.arrived(b"", room)
        inlet.ended("")


def test_more_holders_and_slow_lines_do_not_make_a_result_be_fetched_twice(tmp_path):
    """It takes longer than the patience for a piece, and holders of it come one after the other."""
    vector = np.arange(1000, dtype=np.float32)
    wanted = Results(tmp_path / "theirs", 1000, "float32").store(0, 0, vector)
    links, told = Steady(vector.tobytes(), 0.1), queue.SimpleQueue()
    handing = Handing(links, Results(tmp_path / "mine", 1000, "float32"), told.put)
    try:
        for holders in ((1,), (1, 2), (1, 2, 3), (2, 1)):
            handing.fetch(Fetch(wanted, holders), {1: "p1", 2: "p2", 3: "p3"}, patience=0.5)
        assert told.get(timeout=30) == wanted
        assert links.asked == ["p1"]
    finally:
        handing.stop()
        links.over.set()


class Slow:
    """Links on which streams take their time."""

    def __init__(self):
        self.opened, self.free = [], threading.Semaphore(0)

    def open(self, _peer, key):
        self.opened.append(key)
        return self

    def put(self, _head, _piece, _patience):
        assert self.free.acquire(timeout=30)

    def finish(self, _patience):
        pass

    over = True


def test_who_asks_again_is_given_the_last_that_it_asked_for(tmp_path):
    """It gave up the first stream, and waits for the other; nobody would ask a third time."""
    results, links = Results(tmp_path / "mine", 1000, "float32"), Slow()
    held = results.store(0, 0, np.arange(1000, dtype=np.float32))
    handing = Handing(links, results, lambda _event: None)
    for key in (b"first", b"second", b"third"):
        handing.give("p1", Want(0, held.digest, key), 5.0)
    deadline = time.monotonic() + 30
    while links.opened != [b"first", b"third"] and time.monotonic() < deadline:
        links.free.release()
        time.sleep(0.01)
    assert links.opened == [b"first", b"third"]
    while handing._giving and time.monotonic() < deadline:
        links.free.release()
        time.sleep(0.01)
    assert not handing._giving


def test_a_holder_that_is_gone_is_not_waited_for(tmp_path):
    """It died before it sent anything, and the core names others."""
    vector = np.arange(1000, dtype=np.float32)
    wanted = Results(tmp_path / "theirs", 1000, "float32").store(0, 0, vector)
    links, told = Steady(vector.tobytes(), 0.0), queue.SimpleQueue()
    send = links.send
    links.send = lambda peer, data: peer == "p1" or send(peer, data)
    handing = Handing(links, Results(tmp_path / "mine", 1000, "float32"), told.put)
    try:
        handing.fetch(Fetch(wanted, (1,)), {1: "p1", 2: "p2"}, patience=600.0)
        time.sleep(0.1)
        handing.fetch(Fetch(wanted, (2,)), {1: "p1", 2: "p2"}, patience=600.0)
        assert told.get(timeout=30) == wanted
    finally:
        handing.stop()
        links.over.set()
