"""Fixtures: keys of a federation, and peers with real links on loopback."""

from __future__ import annotations

import threading
import time

import pytest

from securedfl.network.wire import keys as certificates
from securedfl.network.wire.contact.relay import RelayServer
from securedfl.network.wire.links import Links
from securedfl.network.wire.values import ControlMessage, Endpoint, LinkUp, Refused
from tests.network.peer_processes import free_ports
from tests.network.wire.by_hand import OPEN

NAMES = [f"p{k}" for k in range(9)]


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    certificates.create_authority(folder)
    return {name: certificates.issue(folder, name) for name in [*NAMES, "relay-a", "relay-b"]}


class Peer:
    """Links that write down what they are told."""

    def __init__(self, name, files, roster, **options):
        self.name, self.events = name, []
        self.changed = threading.Condition()
        self.links = Links(name, files, roster, on_event=self.note, **{"idle": 5.0, **options})

    def note(self, event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def until(self, test, what, timeout=60.0):
        deadline = time.monotonic() + timeout
        with self.changed:
            while not test():
                assert time.monotonic() < deadline, f"no {what}: {self.events}; {self.links.reaches()}"
                # not everything that is waited for is an event
                self.changed.wait(0.05)

    def all_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def refused(self):
        return [event for event in self.all_of(Refused) if event.peer]

    @property
    def strangers(self):
        return [event for event in self.all_of(Refused) if not event.peer]

    def linked(self, *peers, through=None):
        for peer in peers:
            self.until(lambda peer=peer: LinkUp(peer, through) in self.events, f"link to {peer} through {through}")

    def heard(self, peer, data):
        self.until(lambda: ControlMessage(peer, data) in self.events, f"message {data!r}")

    def send_array(self, peer, key, array):
        """Send one array through a stream of its own, and wait until the peer has it."""
        stream = self.links.open(peer, key)
        stream.put(b"", array)
        stream.finish()

    def receive_array(self, peer, key, into):
        """Receive one array of a known number of bytes."""
        self.links.accept(peer, key, inlet := One(memoryview(into).cast("B")))
        assert inlet.over.wait(60)
        assert inlet.complete, inlet.reason


class One:
    """The inlet of one array."""

    def __init__(self, into):
        self._into, self.over, self.complete, self.reason = into, threading.Event(), False, ""

    def begin(self, _head, nbytes):
        return self._into if nbytes == len(self._into) and not self.complete else None

    def arrived(self, _head, _body):
        self.complete = True

    def ended(self, reason):
        self.reason = reason
        self.over.set()


class World:
    """A few peers on loopback; which of them listen, and what relays there are."""

    def __init__(self, keys):
        self.keys, self.peers, self.relays, self.ports = keys, {}, {}, dict(zip(NAMES, free_ports(9), strict=True))

    def member(self, name, host="127.0.0.1", port=None):
        fingerprint = certificates.describe(self.keys[name].certificate).fingerprint
        return Endpoint(name, host, (port or self.ports[name]) if host else 0, fingerprint)

    def roster(self, names, silent=()):
        return [self.member(name, "" if name in silent else "127.0.0.1") for name in names]

    def peer(self, name, roster, **options):
        mine = next((member for member in roster if member.name == name), None)
        listen = mine.address if mine and mine.listens else None
        peer = Peer(name, options.pop("files", self.keys[name]), roster, **{"listen": listen, **options})
        self.peers[name] = peer
        return peer

    def start(self, count, silent=(), **options):
        roster = self.roster(NAMES[:count], silent)
        return [self.peer(name, roster, **options) for name in NAMES[:count]]

    def relay(self, name):
        server = self.relays[name] = RelayServer(self.keys[name], "127.0.0.1:0")
        return self.member(name, port=int(server.address.rpartition(":")[2]))

    def close(self):
        for peer in self.peers.values():
            peer.links.close()
        for relay in self.relays.values():
            relay.close()


@pytest.fixture
def world(keys):
    made = World(keys)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _hang_up():
    yield
    while OPEN:
        OPEN.pop().close()
