"""Hand the live page out on loopback: read-only, to browsers on this machine, with events as the run goes on.

Loopback is open to every user of the machine. So the address carries a random token, and nothing is told without it.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.run_folder.metrics import finite
from securedfl.reporting.live import page
from securedfl.reporting.live.folder import Watched
from securedfl.reporting.live.snapshot import Snapshot, snapshot

HOST = "127.0.0.1"
EVERY = 0.5
"""Seconds between two looks at the folder."""

MOST_CONNECTIONS = 16
TIMEOUT = 10.0
"""Seconds for which a browser may keep the server waiting."""

TOKEN_BYTES = 16

STATIC = {"page.css": "text/css", "live.js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Server(ThreadingHTTPServer):
    """A server that takes a bounded number of connections, and knows when it is to end."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, port: int, look: Callable[[], Snapshot], token: str) -> None:
        self.look, self.ending, self.streams = look, threading.Event(), 0
        self.token = token
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((HOST, port), _Handler)

    def names(self) -> frozenset[str]:
        """Return how a browser on this machine may call this server; any other name was pointed here by a stranger."""
        return frozenset({f"{name}:{self.server_port}" for name in (HOST, "localhost")})

    def asked_for(self, path: str) -> str | None:
        """Return what a path asks for behind the token; None without the right one, which takes no longer to tell."""
        if not self.token:
            return path[1:]
        token, _, rest = path[1:].partition("/")
        return rest if hmac.compare_digest(token.encode(), self.token.encode()) else None

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep browsers that hang up out of stderr."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT
    server_version, sys_version = "securedfl", ""

    def do_GET(self) -> None:
        known = self.headers.get("Host", "") in self.server.names()
        wanted = self.server.asked_for(self.path) if known else None
        if wanted is None:
            self._answer(403, "text/plain", b"ask for this page by the whole address that was printed\n")
        elif wanted == "" and self.path.endswith("/"):
            self._answer(200, "text/html; charset=utf-8", page.page(self.server.look()).encode())
        elif wanted == "snapshot.json":
            self._answer(200, "application/json", to_json(self.server.look()).encode())
        elif wanted == "events":
            self._events()
        elif wanted in STATIC:
            self._answer(200, STATIC[wanted], page.static(wanted))
        else:
            self._answer(404, "text/plain", b"there is one page here: the address that was printed, to its last /\n")

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self._head(code, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self, code: int, kind: str) -> None:
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)

    def _events(self) -> None:
        """Tell what changed, until the browser hangs up or this process ends."""
        self._head(200, "text/event-stream")
        self.end_headers()
        self.server.streams += 1
        before, spoke = "", 0.0
        while not self.server.ending.is_set():
            now = self.server.look()
            told = page.part(now)
            if told != before:
                event = {"html": told, "title": f"{now.name}: {now.state}", "over": now.over}
                self._tell(f"data: {json.dumps(event)}\n\n")
                before, spoke = told, time.monotonic()
            elif time.monotonic() - spoke > TIMEOUT / 2:
                # a browser that is gone is noticed by what cannot be sent to it
                self._tell(":\n\n")
                spoke = time.monotonic()
            self.server.ending.wait(EVERY)

    def _tell(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def log_message(self, *_args: Any) -> None:
        """Keep requests out of stderr."""


def to_json(now: Snapshot) -> str:
    """Return a snapshot as JSON, without the rows of metrics, which metrics.jsonl has."""
    values = {key: value for key, value in asdict(now).items() if key not in ("rows", "links")}
    links = None if now.links is None else [[*pair, through] for pair, through in now.links.items()]
    return json.dumps({**values, "links": links, "accuracy": finite(now.accuracy)})


class _Shared:
    """One look at the folder for all browsers, no older than `EVERY` seconds."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._lock = watched, threading.Lock()
        self._last: tuple[float, Snapshot] | None = None

    def __call__(self) -> Snapshot:
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] >= EVERY:
                self._last = (time.monotonic(), snapshot(self._watched.read(), time.time()))
            return self._last[1]


@contextmanager
def serving(folder: Path, port: int = 0, *, token: bool = True) -> Iterator[str]:
    """Serve the live page of a run folder, and give its address.

    Parameters
    ----------
    folder
        Of a simulation, of `securedfl up` or of a real peer; it may still be to come.
    port
        On loopback; 0 takes one that is free.
    token
        Let the address carry a random token, without which nobody is told anything.

    Raises
    ------
    ConfigError
        The port is taken.
    MissingDependencyError
        jinja2 is not installed.
    """
    look, secret = _Shared(Watched(folder)), secrets.token_urlsafe(TOKEN_BYTES) if token else ""
    # what is missing is told now and not to the browser
    page.page(look())
    try:
        server = _Server(port, look, secret)
    except OSError as error:
        told = f"cannot listen at {HOST}:{port} ({error.strerror}); leave --port away to take a free one"
        raise ConfigError(told) from None
    thread = threading.Thread(target=server.serve_forever, name="securedfl-watch", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/" + (f"{secret}/" if secret else "")
    finally:
        if server.streams:
            # browsers hear how it ended
            time.sleep(2 * EVERY)
        server.ending.set()
        server.shutdown()
        server.server_close()
