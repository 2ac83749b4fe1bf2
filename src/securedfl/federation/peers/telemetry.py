"""Watching a peer: structured logs, and a Prometheus endpoint, off by default. Neither ever shows a parameter."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.network.core.session import Session


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        level = record.levelname.lower()
        return json.dumps({"time": when, "level": level, "logger": record.name, "text": record.getMessage()})


def log_to(path: Path) -> logging.Handler:
    """Write the package's log to a file, one JSON object per line; close the handler at the end."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("securedfl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


@dataclass(frozen=True)
class Metric:
    """What Prometheus may ask for: a ``gauge``, or a ``counter`` that only grows; one number, or numbers by label."""

    name: str
    kind: str
    help: str
    value: float | Mapping[str, float]


def serve_metrics(address: str, metrics: Callable[[], Iterable[Metric]]) -> ThreadingHTTPServer:
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


def prometheus(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    lines = []
    for metric in metrics:
        name = f"securedfl_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        if isinstance(metric.value, Mapping):
            lines += [f'{name}{{kind="{_escaped(k)}"}} {v}' for k, v in sorted(metric.value.items())]
        else:
            lines.append(f"{name} {metric.value}")
    return "\n".join(lines) + "\n"


def session_metrics(session: Session) -> list[Metric]:
    """Return what there is to know about a peer in a session."""
    board, end = session.board, session.endpoint
    present = sum(board.present(peer) for peer in range(session.n))
    return [
        Metric("round", "gauge", "Round that this peer is in.", board.mine.round),
        Metric("finished_round", "gauge", "Last round of which it has the result.", board.mine.finished),
        Metric("peers_present", "gauge", "Peers that are there, this one included.", present),
        Metric("peers", "gauge", "Peers of the roster.", session.n),
        Metric("sent_bytes_total", "counter", "Bytes sent since the start.", end.bytes_out),
        Metric("received_bytes_total", "counter", "Bytes received since the start.", end.bytes_in),
        Metric("open_streams", "gauge", "Streams that are open.", end.open_streams),
        Metric("refused_total", "counter", "What was refused, by kind.", dict(end.counters)),
    ]


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
