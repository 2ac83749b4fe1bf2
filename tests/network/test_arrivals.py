"""What waits for the shell: no peer can fill it, nor keep the others from being heard."""

from securedfl.network.arrivals import MOST_WAITING, Arrivals
from securedfl.network.core import events as ev
from securedfl.network.core.messages import encode
from securedfl.network.letters import Want, unpack
from securedfl.network.signing import Keyring
from securedfl.network.wire import keys as certificates
from securedfl.network.wire.values import ControlMessage, LinkUp


def test_a_peer_that_sends_more_than_is_read_fills_nothing_and_silences_nobody():
    waiting, large = Arrivals(), ControlMessage("p1", bytes(MOST_WAITING // 2))
    for _ in range(1000):
        waiting.put(large)
    waiting.put(ControlMessage("p2", b"heartbeat"))
    waiting.put(LinkUp("p3"))
    found = [waiting.get(0.0) for _ in range(5)]
    assert found == [large, large, ControlMessage("p2", b"heartbeat"), LinkUp("p3"), ev.Tick()]
    assert waiting.counters["dropped: too many control messages"] == 998
    # what was read makes room again
    waiting.put(large)
    assert waiting.get(0.0) is large


def test_empty_messages_are_not_for_free_either():
    waiting = Arrivals()
    for _ in range(100_000):
        waiting.put(ControlMessage("p1", b""))
    assert waiting.counters["dropped: too many control messages"] > 90_000


def test_the_key_of_a_wanted_result_is_one_that_streams_can_have():
    assert unpack(encode(Want(1, b"digest", bytes(512)))) is not None
    assert unpack(encode(Want(1, b"digest", bytes(513)))) is None


def test_a_letter_full_of_certificates_that_are_none_costs_one_look(tmp_path, monkeypatch):
    certificates.create_authority(tmp_path / "keys")
    files = [certificates.issue(tmp_path / "keys", name) for name in ("p0", "p1")]
    mine, other = (Keyring(one, tmp_path / one.key.stem) for one in files)
    looks, take = [], mine._take
    monkeypatch.setattr(mine, "_take", lambda der: looks.append(der) or take(der))
    (good,) = other.certificates
    assert not mine.learn([good[:-1] + bytes([k]) for k in range(100) if k != good[-1]])
    assert len(looks) == 1
    assert mine.learn([*mine.certificates, good])
    assert good in mine.certificates
