"""Why somebody is not reached: each kind of failure is told from the others, with what to do."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading

import pytest

from securedfl.errors import PeerLostError
from securedfl.network.wire import keys as certificates
from securedfl.network.wire.contact import dial as dialling
from securedfl.network.wire.contact.why import why
from tests.network.peer_processes import free_ports


@pytest.mark.parametrize(
    ("error", "told", "of_proxy"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused; the machine is there", "the proxy"),
        (TimeoutError(), "no answer in time; no machine answers there", "the proxy does not answer"),
        (TimeoutError(errno.ETIMEDOUT, "x"), "timed out; no machine answers there", "the proxy does not answer"),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host; no network leads there", "to the proxy"),
        (socket.gaierror(socket.EAI_NONAME, "Name not known"), "name not known; the name server knows no", "the proxy"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), "this machine's name server does not answer", "the proxy"),
    ],
)
def test_each_kind_of_failure_is_told_with_what_to_do(error, told, of_proxy):
    assert told in why(error)
    assert of_proxy in why(error, proxied=True)
    assert "proxy" not in why(error)


def test_what_needs_no_advice_gets_none():
    assert why(OSError("the proxy refused with code 403"), proxied=True) == "the proxy refused with code 403"
    assert why(OSError(errno.EPIPE, "x")) == os.strerror(errno.EPIPE).lower()


@pytest.mark.parametrize(("host", "told"), [("nobody.invalid", "name server"), ("127.0.0.1", "nothing listens")])
def test_dialling_tells_a_name_that_is_not_known_from_a_port_where_nobody_listens(host, told):
    with pytest.raises(PeerLostError, match=told) as found:
        asyncio.run(dialling.dial(host, free_ports(1)[0], proxy="", timeout=30.0))
    assert str(found.value).startswith(f"{host}:")


def test_a_site_of_another_authority_is_told_what_to_compare(world, tmp_path):
    certificates.create_authority(tmp_path)
    alone = world.peer("p0", world.roster(["p0", "p1"], silent=("p1",)))
    stranger = world.peer("p1", world.roster(["p0", "p1"], silent=("p1",)), files=certificates.issue(tmp_path, "p1"))
    stranger.until(lambda: stranger.refused, "reason")
    assert "all sites need certificates of one authority" in stranger.refused[0].reason
    assert stranger.refused[0].unfit
    alone.until(lambda: any("compare the two files" in one.reason for one in alone.strangers), "the same at the other")


def test_another_service_at_the_port_is_told(world):
    with socket.create_server(("127.0.0.1", world.ports["p1"])) as server:

        def serve():
            sock, _ = server.accept()
            with sock:
                sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        first = world.peer("p0", world.roster(["p0", "p1"]))
        first.until(lambda: first.refused, "reason")
        assert "is another service at this port?" in first.refused[0].reason
        first.links.close()
        thread.join(60)


@pytest.mark.parametrize(
    ("silent", "count", "told"),
    [
        (("p1",), 2, "it only dials out, and has not come yet: start it there, and see that it reaches 127.0.0.1:"),
        (("p0", "p1"), 2, "nobody can join them: name a relay"),
        (("p0", "p1"), 3, "joins them (p2)"),
    ],
)
def test_a_site_that_only_dials_out_is_told_where_it_must_come(world, silent, count, told):
    names = ["p0", "p1", "p2"][:count]
    first = world.peer("p0", world.roster(names, silent=silent))
    first.until(lambda: first.links._pursuits, "pursuit")
    assert told in first.links._pursuits["p1"].awaited
    if count == 2:
        assert told in first.links.reaches()["p1"].reason


def test_an_old_reason_does_not_outlive_that_the_third_is_reached(world):
    """Its peer was started later than this one: then the site that only dials out is the one that has not come."""
    roster = world.roster(["p0", "p1", "p2", "p3"], silent=("p1",))
    first = world.peer("p0", roster)
    # of several that do not join them the last one is told
    first.until(lambda: any("p2 does not join the two" in one.reason for one in first.refused), "p2 to blame")
    world.peer("p2", roster)
    first.linked("p2")
    first.until(lambda: "and has not come yet" in first.links.reaches()["p1"].reason, "that it has not come")
    # p3, which is not there, is no reason either, as p2 may join the two
    first.links.loop.call(first.links._pursuits["p1"]._failed, "p3", "connection refused")
    done = threading.Event()
    first.links.loop.call(done.set)
    assert done.wait(60)
    assert "does not join" not in first.links.reaches()["p1"].reason


def test_the_third_that_cannot_be_reached_is_named_with_its_address(world):
    relay = world.member("relay-a", port=free_ports(1)[0])
    first = world.peer("p0", world.roster(["p0", "p1"], silent=("p0", "p1")), relays=[relay])
    first.until(lambda: first.refused, "reason")
    assert f"the relay relay-a does not join the two: {relay.address}: connection refused" in first.refused[0].reason
    second = world.peer("p2", world.roster(["p2", "p3", "p4"], silent=("p2", "p3")))
    second.until(lambda: any(one.peer == "p3" for one in second.refused), "reason")
    reason = next(one.reason for one in second.refused if one.peer == "p3")
    assert f"and p4 does not join the two: 127.0.0.1:{world.ports['p4']}: connection refused" in reason
