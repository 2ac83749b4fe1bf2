"""Watching a peer: logs, live.json, and a Prometheus endpoint, off by default. None of it ever shows a parameter."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.peers.events import PeerStatus
from securedfl.federation.run_folder.live import Live
from securedfl.network.peer import Peer
from securedfl.network.wire.keys import describe
from securedfl.network.wire.values import split_address
from securedfl.network.words import names_of
from securedfl.storage import cannot_write

PHASES = {"idle": "training", "begun": "sharing", "committed": "finishing"}
"""What peers do while the log is in a phase."""

LARGEST_LOG = 10_000_000
"""Bytes after which a log is put aside; three such are kept."""


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        level = record.levelname.lower()
        return json.dumps({"time": when, "level": level, "logger": record.name, "text": record.getMessage()})


class _LogFile(RotatingFileHandler):
    """A log whose own trouble, such as a full disk, never hides that of the peer, which is told with its exit code."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        """Drop the record."""

    def close(self) -> None:
        """Close the file, whatever is left of it."""
        with suppress(OSError):
            super().close()


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write the package's log to a file, one JSON object per line."""
    try:
        handler = _LogFile(path, maxBytes=LARGEST_LOG, backupCount=3, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from None
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("securedfl")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        handler.close()
        logger.removeHandler(handler)


@dataclass(frozen=True)
class Metric:
    """What Prometheus may ask for: a ``gauge``, or a ``counter`` that only grows; one number, or numbers by label."""

    name: str
    kind: str
    help: str
    value: float | Mapping[str, float]
    label: str = "kind"


def serve_metrics(
    address: str, metrics: Callable[[], Iterable[Metric]], trouble: Callable[[], str] = lambda: ""
) -> ThreadingHTTPServer:
    """Serve metrics as Prometheus text at ``http://HOST:PORT/metrics`` until its ``shutdown``.

    ``/healthz`` answers with code 200, or 503 and what the trouble is.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in ("/metrics", "/healthz"):
                self.send_error(404)
                return
            reason = trouble() if self.path == "/healthz" else ""
            text = prometheus(metrics()) if self.path == "/metrics" else f"{reason or 'ok'}\n"
            body = text.encode()
            self.send_response(503 if reason else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Keep requests out of stderr."""

    try:
        server = ThreadingHTTPServer(split_address(address), Handler)
    except (OSError, ConfigError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"metrics = {address!r}: cannot listen there: {reason}; name another port in peer.toml, on this machine"
        ) from None
    threading.Thread(target=server.serve_forever, name="securedfl-metrics", daemon=True).start()
    return server


def prometheus(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    lines = []
    for metric in metrics:
        name = f"securedfl_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        if isinstance(metric.value, Mapping):
            lines += [f'{name}{{{metric.label}="{_escaped(k)}"}} {v}' for k, v in sorted(metric.value.items())]
        else:
            lines.append(f"{name} {metric.value}")
    return "\n".join(lines) + "\n"


def peer_metrics(peer: Peer) -> list[Metric]:
    """Return what there is to know about a running peer."""
    now, links = peer.progress, peer.links
    received, sent = links.traffic
    reaches, roster = links.reaches(), now.state.roster
    linked = {name: int(reach.linked) for name, reach in reaches.items()}
    relayed = {name: int(reach.linked and reach.through is not None) for name, reach in reaches.items()}
    present = {line.name: int(line.number in now.present) for line in roster}
    ready = {line.name: int(line.number in now.ready) for line in roster}
    expiry = describe(peer.settings.files.certificate).not_after.timestamp()
    return [
        Metric("round", "gauge", "The round that the federation is in.", now.state.round),
        Metric("finished_round", "gauge", "The last round of which this peer has the model.", now.applied.round),
        Metric("log_entries", "gauge", "How many decisions the log of the federation holds.", now.state.length),
        Metric(
            "rounds", "gauge", "The last round of the run, as far as it is known now.", now.state.settings.rounds - 1
        ),
        Metric("peers", "gauge", "How many peers belong to the federation.", len(roster)),
        Metric("peers_present", "gauge", "How many peers are there now, this one included.", len(now.present)),
        Metric("peer_present", "gauge", "1 if something is heard from that peer, else 0.", present, "peer"),
        Metric("peer_ready", "gauge", "1 if that peer has trained for the round, else 0.", ready, "peer"),
        Metric("peer_linked", "gauge", "1 if there is a link to that peer, else 0.", linked, "peer"),
        Metric(
            "peer_relayed",
            "gauge",
            "1 if the link to that peer goes through another one or a relay, else 0.",
            relayed,
            "peer",
        ),
        Metric("sent_bytes_total", "counter", "Bytes that this peer has sent since its start.", sent),
        Metric("received_bytes_total", "counter", "Bytes that this peer has received since its start.", received),
        Metric(
            "refused_total",
            "counter",
            "Connections and messages that were refused since the start, by kind.",
            dict(links.counters),
        ),
        Metric(
            "key_expires_seconds",
            "gauge",
            "When the TLS certificate of this peer expires, in seconds since 1970.",
            int(expiry),
        ),
    ]


def live_of(peer: Peer) -> Live:
    """Return where a peer is, whom it hears, and how much it has moved; nothing of any model."""
    now, links = peer.progress, peer.links
    state, me = now.state, peer.settings.number
    received, sent = links.traffic
    waits = state.phase == "idle" and me in now.ready
    return Live(
        time=time.time(),
        phase="lingering" if state.over else "waiting" if waits else PHASES[state.phase],
        round=min(state.round, state.settings.rounds - 1),
        rounds=state.settings.rounds - 1,
        name=peer.settings.name,
        roster=tuple(line.name for line in state.roster),
        present=names_of(now.present, state.roster),
        ready=names_of(now.ready, state.roster),
        links={name: reach.through or "" for name, reach in links.reaches().items() if reach.linked},
        bytes_in=received,
        bytes_out=sent,
    )


def status_of(peer: Peer) -> PeerStatus:
    """Return the same in short."""
    now = live_of(peer)
    return PeerStatus(now.phase, now.round, now.bytes_in, now.bytes_out, now.rounds)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
