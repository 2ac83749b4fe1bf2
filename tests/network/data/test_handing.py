"""Results from others: one that sends almost nothing keeps nobody from those that send all of it."""

import queue
import threading
import time

import numpy as np

from securedfl.network.core.events import Fetch
from securedfl.network.data.handing import Handing
from securedfl.network.data.results import Results


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
