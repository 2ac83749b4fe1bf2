"""Watching a peer: structured logs, and a Prometheus endpoint, off by default. Neither ever shows a parameter."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        return json.dumps(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
                + f".{int(record.msecs):03d}Z",
                "level": record.levelname.lower(),
                "logger": record.name,
                "text": record.getMessage(),
            }
        )


def log_to(path: Path) -> logging.Handler:
    """Write the package's log to a file, one JSON object per line; close the handler at the end."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("securedfl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


Metrics = Callable[[], Mapping[str, Any]]
"""Gives the current values: numbers, or numbers by label."""


def serve_metrics(address: str, metrics: Metrics) -> ThreadingHTTPServer:
    """Serve metrics as Prometheus text at ``http://HOST:PORT/metrics``; call ``shutdown`` to end it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = prometheus(metrics()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Keep requests out of stderr."""

    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"metrics = {address!r}: cannot listen there ({error})") from None
    threading.Thread(target=server.serve_forever, name="securedfl-metrics", daemon=True).start()
    return server


def prometheus(values: Mapping[str, Any]) -> str:
    """Return values in Prometheus' text format, under the prefix ``securedfl_``."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f'securedfl_{name}{{kind="{_escaped(k)}"}} {v}' for k, v in sorted(value.items())]
        else:
            lines.append(f"securedfl_{name} {value}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
