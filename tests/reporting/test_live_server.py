"""The live page's server: for browsers on this machine only, and no more than they need."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from securedfl.errors import ConfigError
from securedfl.reporting.live import server

MakeRun = Callable[..., Path]


@pytest.fixture
def address(make_run: MakeRun) -> Iterator[tuple[str, int, Path]]:
    folder = make_run(done=2)
    with server.serving(folder, token=False) as url:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        yield "127.0.0.1", parts.port or 0, folder


def ask(
    address: tuple[str, int, Path], path: str = "/", method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(address[0], address[1], timeout=5)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def test_the_page_comes_with_a_strict_policy_and_needs_nothing_from_elsewhere(address: tuple[str, int, Path]) -> None:
    answer, body = ask(address)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "http" not in body.replace("http-equiv", "")
    assert "SecureD-FL" in body
    for path, kind in server.STATIC.items():
        answer, body = ask(address, f"/{path}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
        assert body


def test_only_reading_and_only_known_paths(address: tuple[str, int, Path]) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(address, "/", method)[0].status == 501
    for path in ("/metrics.jsonl", "/../config.toml", "/%2e%2e/config.toml", "/state/journal", "/events/x"):
        assert ask(address, path)[0].status == 404


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_was_pointed_here_is_refused(address: tuple[str, int, Path], host: str) -> None:
    assert ask(address, host=host)[0].status == 403
    assert ask(address, "/events", host=host)[0].status == 403


def test_localhost_is_a_name_of_this_machine(address: tuple[str, int, Path]) -> None:
    assert ask(address, host=f"localhost:{address[1]}")[0].status == 200


def test_nothing_is_told_without_the_token(make_run: MakeRun) -> None:
    folder = make_run(done=2)
    with server.serving(folder) as url, server.serving(folder) as other:
        token = urlsplit(url).path.strip("/")
        # 128 bits, and another one each time
        assert len(token) >= 22
        assert token != urlsplit(other).path.strip("/")
        place = ("127.0.0.1", urlsplit(url).port or 0, folder)
        names = ("", "snapshot.json", "events", *server.STATIC)
        for name in names:
            for before in ("", token[:-1], token + "x", "%00", "ü", token.swapcase()):
                assert ask(place, quote(f"/{before}/{name}" if before else f"/{name}"))[0].status == 403
            if name != "events":
                assert ask(place, f"/{token}/{name}")[0].status == 200
        # what the page asks for lies beside it
        assert "/page.css" not in ask(place, f"/{token}/")[1]
        assert ask(place, f"/{token}")[0].status == 404
        assert ask(place, f"/{token}/", host="attacker.example")[0].status == 403


def test_the_snapshot_is_there_as_json(address: tuple[str, int, Path]) -> None:
    answer, body = ask(address, "/snapshot.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body)["curves"]["SecureD-FL"][0] == [0, pytest.approx(0.1)]


def next_event(answer: http.client.HTTPResponse) -> dict[str, str]:
    while not (line := answer.fp.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    found: dict[str, str] = json.loads(line[6:])
    return found


def test_events_come_when_something_changes(address: tuple[str, int, Path]) -> None:
    connection = http.client.HTTPConnection(address[0], address[1], timeout=10)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert "77.25 %" not in next_event(answer)["html"]
    with (address[2] / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secured", "round": 3, "accuracy": 0.7725}\n')
    assert "77.25 %" in next_event(answer)["html"]
    connection.close()


def test_connections_are_bounded(address: tuple[str, int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    held = [socket.create_connection(address[:2], timeout=5) for _ in range(server.MOST_CONNECTIONS)]
    try:
        deadline = time.monotonic() + 5
        while sum(t.name.startswith("Thread-") for t in threading.enumerate()) < server.MOST_CONNECTIONS:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(address)
    finally:
        for one in held:
            one.close()


def test_a_port_that_is_taken_is_a_clear_error(address: tuple[str, int, Path]) -> None:
    with pytest.raises(ConfigError, match="leave --port away"), server.serving(address[2], address[1]):
        pass
