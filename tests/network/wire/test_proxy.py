"""Dialling through a proxy: what is sent to it, what it may answer, and when the environment's proxy is left out."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading

import pytest

from securedfl.errors import ConfigError, PeerLostError
from securedfl.federation.peers.config import PeerConfig
from securedfl.network.wire.contact import dial as dialling

DONE = b"HTTP/1.1 200 OK\r\n\r\n"


class Answering:
    """A proxy that gives one answer to everybody, and notes what it is asked for."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                with client, contextlib.suppress(OSError):
                    request = b""
                    while b"\r\n\r\n" not in request and (data := client.recv(4096)):
                        request += data
                    self.asked.append(request)
                    client.sendall(self.answer)

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)


@pytest.fixture
def proxy(request):
    made = Answering(getattr(request, "param", DONE))
    yield made
    made.close()


def dial(host="a.example.org", proxy=None):
    sock, rest = asyncio.run(dialling.dial(host, 7443, proxy=proxy, timeout=5.0))
    sock.close()
    return rest


@pytest.mark.parametrize(
    "proxy",
    [
        b"HTTP/1.1 201 Created\r\n\r\nrest",
        b"HTTP/1.0 299\r\n\r\nrest",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest",
    ],
    indirect=True,
)
def test_a_proxy_may_say_yes_in_several_ways(proxy):
    assert dial(proxy=f"http://{proxy.address}/") == b"rest"


@pytest.mark.parametrize(
    ("proxy", "text"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            r"wants a user and a password.*peer\.toml or HTTPS_PROXY",
        ),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refused with code 403"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", r"refused with code \?"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + DONE, "no proper answer"),
        (b"\r\n\r\n", r"refused with code \?"),
    ],
    indirect=["proxy"],
)
def test_a_proxy_that_does_not_want_to_is_understood(proxy, text):
    with pytest.raises(PeerLostError, match=text) as error:
        dial(proxy=f"http://user:S3CRET@{proxy.address}")
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize(("given", "sent"), [(":S3CRET", ":S3CRET"), ("a", "a:"), ("a%40b:1%2F2", "a@b:1/2")])
def test_credentials_are_sent_to_a_proxy_as_they_were_meant(proxy, given, sent):
    dial(proxy=f"http://{given}@{proxy.address}")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(sent.encode()) in proxy.asked[0].split(b"\r\n")


@pytest.mark.parametrize("password", ["1234/S3CRET", "1234?S3CRET", "1234#S3CRET", "1234/@S3CRET"])
def test_a_password_that_reads_as_a_port_is_refused_and_not_shown(password):
    with pytest.raises(ConfigError, match="%2F") as error:
        dial(proxy=f"http://127.0.0.1:{password}@proxy.example.org:3128")
    assert "S3CRET" not in str(error.value)
    assert "1234" not in str(error.value)


@pytest.mark.parametrize("value", ['["http://u:S3CRET@p:1"]', '{u = "http://u:S3CRET@p:1"}', "5"])
def test_a_proxy_of_another_type_is_refused_and_not_shown(tmp_path, value):
    (tmp_path / "peer.toml").write_text(f'name = "a"\nfederation = "f"\nout = "o"\nproxy = {value}\n')
    with pytest.raises(ConfigError, match=r"proxy in .*: must be text") as error:
        PeerConfig.load(tmp_path / "peer.toml")
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize(
    ("without", "host", "direct"),
    [
        ("", "a.example.org", False),
        ("example.org", "a.example.org", True),
        (".example.org", "a.example.org", True),
        ("b.example.org, a.example.org:7443", "a.example.org", True),
        ("a.example.org:7444", "a.example.org", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "a.example.org", False),
        ("fd00::/8,nonsense/99", "fd00::2", True),
        ("[fd00::2]", "fd00::2", True),
        ("[fd00::2]:7443", "fd00::2", True),
        ("fd00::2", "fd00::2", True),
        ("*", "a.example.org", True),
        ("", "127.0.0.1", True),
    ],
)
def test_no_proxy_of_the_environment_is_understood(monkeypatch, without, host, direct):
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy.example.org:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, without)

    async def connected(host, _port, _timeout):
        raise OSError(f"dialled {host}")

    monkeypatch.setattr(dialling, "_connected", connected)
    with pytest.raises(PeerLostError, match=f"dialled {host if direct else 'proxy.example.org'}"):
        dial(host)


def test_a_host_of_other_letters_reaches_the_proxy_under_its_own_name(proxy):
    dial("bücher.example", f"http://{proxy.address}")
    assert proxy.asked[0].startswith(
        b"CONNECT xn--bcher-kva.example:7443 HTTP/1.1\r\nHost: xn--bcher-kva.example:7443\r\n"
    )
