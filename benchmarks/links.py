"""Links between peers: everybody sends everybody as many bytes as an average needs, beside plain TCP in the same run.

    python benchmarks/links.py [--peers 9] [--size 11200000] [--repeat 5] [--json]

One process per peer on loopback. The bytes are those of an optimal all-reduce of so many float32: every segment out and
back. Rows: plain TCP sockets and mutual TLS 1.3 sockets, with one thread per connection and direction; links; and
links of peers that only dial out, all of whose pairs are joined by one relay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from wire import barrier, exchange

MESSAGE = 1 << 20


class Sink:
    """An inlet that counts what arrives."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(MESSAGE))
        self.over = threading.Event()

    def begin(self, _head: bytes, nbytes: int) -> memoryview:
        """Give the same memory every time."""
        return self._room[:nbytes]

    def arrived(self, head: bytes, body: memoryview) -> None:
        """Take no note of it."""

    def ended(self, reason: str) -> None:
        """Tell that the sender has finished."""
        assert not reason, reason
        self.over.set()


def linked(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one process of links."""
    from securedfl.network.data.memory import share_one_heap
    from securedfl.network.wire.keys import KeyFiles
    from securedfl.network.wire.links import Links
    from securedfl.network.wire.values import Endpoint, Event, LinkUp

    share_one_heap()
    n, keys, nbytes = job["peers"], folder / "keys", job["bytes"]
    up = threading.Semaphore(0)

    def on_event(event: Event) -> None:
        if isinstance(event, LinkUp):
            up.release()

    roster = [Endpoint(*row) for row in job["roster"]]
    others = [member.name for k, member in enumerate(roster) if k != me]
    relays = [Endpoint(*row) for row in job["relays"]]
    listen = None
    if relays:
        roster = [Endpoint(member.name, fingerprint=member.fingerprint) for member in roster]
    else:
        listen = roster[me].address
    files = KeyFiles(keys / f"p{me}.key", keys / f"p{me}.crt", keys / "ca.crt")
    links = Links(f"p{me}", files, roster, on_event=on_event, listen=listen, relays=relays)
    while not all(reach.linked for reach in links.reaches().values()):
        assert up.acquire(timeout=60), links.reaches()
    message = np.frombuffer(os.urandom(MESSAGE), dtype=np.uint8)

    def once(turn: int) -> None:
        key = str(turn).encode()
        sinks = {peer: Sink() for peer in others}
        for peer, sink in sinks.items():
            links.accept(peer, key, sink)
        streams = [links.open(peer, key) for peer in others]
        for at in range(0, nbytes, MESSAGE):
            for stream in streams:
                stream.put(b"", message[: nbytes - at])
        for stream in streams:
            stream.finish()
        for sink in sinks.values():
            assert sink.over.wait(60)

    once(-1)
    spans, used = [], time.process_time()
    for turn in range(job["repeat"]):
        barrier(folder, me, n, turn)
        began = time.monotonic()
        once(turn)
        spans.append((began, time.monotonic()))
    used = time.process_time() - used
    barrier(folder, me, n, "end")
    links.close()
    return {"spans": spans, "processor": used / job["repeat"]}


def run(role: str, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Start all processes of one measurement, and a relay if it needs one, and collect what they report."""
    from securedfl.federation.founding.files import free_ports
    from securedfl.network.wire import keys as certificates

    names = [f"p{k}" for k in range(job["peers"])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates.create_authority(folder / "keys")
        prints = {}
        for owner in [*names, "relay"]:
            prints[owner] = certificates.describe(certificates.issue(folder / "keys", owner).certificate).fingerprint
        ports = dict(zip([*names, "relay"], free_ports(len(names) + 1), strict=True))
        rows = {owner: (owner, "127.0.0.1", ports[owner], prints[owner]) for owner in ports}
        relays = [rows.pop("relay")] if job["relayed"] else []
        job = {**job, "roster": [rows[owner] for owner in names], "relays": relays}
        (folder / "job.json").write_text(json.dumps(job))
        command = [sys.executable, __file__, "--folder", name]
        processes = []
        if relays:
            processes.append(subprocess.Popen([*command, "--role", "relay", "--me", "0"]))  # noqa: S603
        started = [
            subprocess.Popen([*command, "--role", role, "--me", str(k)], stdout=subprocess.PIPE, text=True)  # noqa: S603
            for k in range(job["peers"])
        ]
        processes += started
        try:
            outputs = [process.communicate(timeout=600)[0] for process in started]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(process.returncode for process in started):
            raise SystemExit(f"a process of {role} failed; see above")
        return [json.loads(output.splitlines()[-1]) for output in outputs]


def relay(folder: Path, _me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run the relay until it is killed."""
    from securedfl.network.wire.contact.relay import RelayServer
    from securedfl.network.wire.keys import KeyFiles
    from securedfl.network.wire.values import Endpoint

    keys = folder / "keys"
    RelayServer(KeyFiles(keys / "relay.key", keys / "relay.crt", keys / "ca.crt"), Endpoint(*job["relays"][0]).address)
    threading.Event().wait(600)
    return {}


ROLES = {"bare": exchange, "links": linked, "relay": relay}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--size", type=int, default=11_200_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON, and the table on standard error")
    parser.add_argument("--role", choices=list(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--me", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        job = json.loads((args.folder / "job.json").read_text())
        print(json.dumps(ROLES[args.role](args.folder, args.me, job)), flush=True)
        return
    table = sys.stderr if args.json else sys.stdout
    nbytes = 8 * args.size // args.peers
    print(f"{args.peers} processes, {nbytes:,} bytes from each to each, median of {args.repeat}", file=table)
    job = {"peers": args.peers, "repeat": args.repeat, "bytes": nbytes, "kind": "socket", "relayed": False}
    rows: list[dict[str, Any]] = []
    for name, role, more in [
        ("plain TCP sockets", "bare", {"insecure": True}),
        ("mutual TLS 1.3 sockets", "bare", {"insecure": False}),
        ("links", "links", {}),
        ("links through a relay", "links", {"relayed": True}),
    ]:
        results = run(role, {**job, **more})
        spans = np.array([result["spans"] for result in results])
        took = float(np.median(spans[..., 1].max(axis=0) - spans[..., 0].max(axis=0)))
        used = float(np.mean([result["processor"] for result in results]))
        rows.append({"name": name, "seconds": took, "processor_seconds_per_peer": used})
        ratio = took / rows[0]["seconds"]
        print(f"{name:<24} {took:6.3f} s  {ratio:5.2f} x TCP  processor per peer {used:.3f} s", file=table, flush=True)
    print(f"through a relay: {rows[3]['seconds'] / rows[2]['seconds']:.2f} x direct", file=table)
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
